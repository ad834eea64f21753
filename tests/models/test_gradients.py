"""Gradients of the built-in models, for all their weights, against torch's from the same weights."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from drawn_weights import drawn_weights  # noqa: E402
from reduced import REDUCED  # noqa: E402
from test_against_torch import SEED, SHAPES  # noqa: E402
from torch_models import TORCH  # noqa: E402

from autotensor.api.model_compiling import compile_model  # noqa: E402
from autotensor.autodiff import gradients  # noqa: E402
from autotensor.graph.build import constant, input, ops  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402
from autotensor.graph.ir import Graph  # noqa: E402

STATISTICS = ("running_mean", "running_var")  # torch has no gradients for these
TOLERANCE = 1e-4


def in_torch(name, arrays, seed):
    """The gradient of the weighted sum of the outputs, by weight."""
    weights = {n: torch.from_numpy(np.array(a)) for n, a in drawn_weights(SHAPES[name](), SEED).items()}
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


def lstm(x, h, c, weights):
    """One layer over time: x [steps, batch, inputs]; torch's weights, gates in the order i, f, g, o."""
    steps, batch, _ = x.shape
    width = h.shape[1]
    w_ih, w_hh, b_ih, b_hh = weights
    outs = []
    for n in range(steps):
        now = ops.reshape(ops.slice(x, begin=(n,), end=(n + 1,)), (batch, x.shape[2]))
        gates = ops.dense(now, w_ih, b_ih) + ops.dense(h, w_hh, b_hh)
        i, f, g, o = (ops.slice(gates, (k * width,), ((k + 1) * width,), axes=(1,)) for k in range(4))
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        outs.append(ops.reshape(h, (1, batch, width)))
    return ops.concat(*outs, axis=0)


def test_lstm_gradients_equal_torch():
    steps, batch, inputs, width = 7, 3, 5, 8
    torch.manual_seed(0)
    layer = torch.nn.LSTM(inputs, width)
    x = torch.randn(steps, batch, inputs, requires_grad=True)
    seed = torch.randn(steps, batch, width)
    (layer(x)[0] * seed).sum().backward()
    arrays = [x.detach().numpy(), *(p.detach().numpy() for p in layer.parameters())]
    nodes = [input(a.shape, name=f"x{n}") for n, a in enumerate(arrays)]
    zero = constant(np.zeros((batch, width), np.float32))
    y = lstm(nodes[0], zero, zero, nodes[1:])
    graph = Graph(tuple(nodes), gradients(y, nodes, [seed.numpy()]), "lstm", tuple(f"d{n}" for n in range(5)))
    found = compile_model(graph, db=":memory:")(*arrays)
    for got, tensor in zip(found, (x, *layer.parameters()), strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), atol=TOLERANCE)
