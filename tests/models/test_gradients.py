"""Gradients of the built-in models, for all their weights, against torch's from the same weights."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from reduced import REDUCED  # noqa: E402
from test_against_torch import SEED, SHAPES  # noqa: E402
from torch_models import TORCH  # noqa: E402

from autotensor.api.models import compile_model  # noqa: E402
from autotensor.autodiff import gradients  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402
from autotensor.graph.ir import Graph  # noqa: E402
from autotensor.models.weights import Seeded  # noqa: E402

STATISTICS = ("running_mean", "running_var")  # torch has no gradients for these
TOLERANCE = 1e-4


def in_torch(name, arrays, seed):
    """The gradient of the weighted sum of the outputs, by weight."""
    weights = {n: torch.from_numpy(np.array(a)) for n, a in Seeded(SHAPES[name](), SEED).items()}
    for n, w in weights.items():
        w.requires_grad = not n.endswith(STATISTICS)
    (
        TORCH[name](weights, *(torch.from_numpy(a) for a in arrays.values())) * torch.from_numpy(seed)
    ).sum().backward()
    return {n: w.grad.numpy() for n, w in weights.items() if w.grad is not None}


def backward(name):
    """The graph of all weights' gradients, their names, inputs and the outputs' weights."""
    graph, arrays = REDUCED[name]()
    seed = np.random.default_rng(1).standard_normal(graph.outputs[0].shape).astype(np.float32)
    wanted = {c.name: c for c in graph.constants if c.dtype.is_float and "." in c.name}
    slopes = gradients(graph.outputs, list(wanted.values()), [seed])
    names = tuple(f"d_{n}" for n in range(len(slopes)))
    made = Graph(graph.inputs, slopes, f"d_{name}", names)
    return made, tuple(wanted), arrays, seed


def check(name, found, names, expected):
    assert len(set(names) & set(expected)) >= 0.8 * len(expected)
    scale = max(float(np.abs(e).max()) for e in expected.values())
    for n, got in zip(names, found, strict=True):
        if n in expected:
            want = expected[n].reshape(got.shape) if expected[n].size == got.size else None
            if want is None:  # a table of which the model takes a part (positions)
                want = expected[n][: got.shape[0]]
            assert np.abs(got - want).max() <= TOLERANCE * max(scale, 1.0), n


@pytest.mark.parametrize("name", TORCH)
def test_gradients_equal_torch(name):
    graph, names, arrays, seed = backward(name)
    check(name, evaluate(graph, **arrays), names, in_torch(name, arrays, seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_base", "dcgan", "mobilenet_v2"])
def test_compiled_gradients_equal_torch(name):
    graph, names, arrays, seed = backward(name)
    found = compile_model(graph, db=":memory:")(*(arrays[n] for n in graph.input_names))
    check(name, found, names, in_torch(name, arrays, seed))
