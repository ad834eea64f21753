"""Every built-in model, compiled, against torch with the same weights; full size if slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from drawn_weights import drawn_weights  # noqa: E402
from reduced import DRAW, REDUCED, TINY  # noqa: E402
from torch_models import TORCH  # noqa: E402
from tuned import tuned  # noqa: E402

from autotensor.api.model_compiling import compile_model  # noqa: E402
from autotensor.graph.ir import Graph  # noqa: E402
from autotensor.models import MODELS, bert, dcgan, gpt2, mobilenet, resnet3d, vgg  # noqa: E402
from autotensor.models.weights import shapes_of  # noqa: E402
from autotensor.runtime.open_artifact import Function  # noqa: E402

SHAPES = {
    "vgg16": lambda: shapes_of(vgg.build, image=32, hidden=64, classes=10),
    "mobilenet_v2": lambda: shapes_of(mobilenet.build, classes=10),
    "r3d_18": lambda: shapes_of(resnet3d.build, classes=10),
    "dcgan": lambda: shapes_of(dcgan.build, latent=20, width=8),
    "bert_base": lambda: shapes_of(bert.build, tokens=24, size=TINY),
    "gpt2": lambda: shapes_of(gpt2.build, tokens=33, size=TINY),
}
SEED = 0  # of the weights: build's default


def in_torch(name: str, shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, Any]) -> np.ndarray:
    weights = {n: torch.from_numpy(np.asarray(a)) for n, a in drawn_weights(shapes, SEED).items()}
    with torch.no_grad():
        result = TORCH[name](weights, *(torch.from_numpy(a) for a in arrays.values()))
    return result.numpy()


def check(
    graph: Graph, arrays: Mapping[str, Any], expected: np.ndarray, model: Function | None = None
) -> None:
    f = model or compile_model(graph, db=":memory:")
    got = f(*(arrays[n] for n in graph.input_names))
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()
    assert np.abs(expected).max() > 0.01
    assert expected.std() > 1e-3


@pytest.mark.parametrize("name", TORCH)
def test_reduced(name):
    graph, arrays = REDUCED[name]()
    check(graph, arrays, in_torch(name, SHAPES[name](), arrays))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TORCH)
def test_tuned(name, tmp_path):
    graph, arrays = REDUCED[name]()
    check(graph, arrays, in_torch(name, SHAPES[name](), arrays), tuned(graph, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TORCH)
def test_full_size(name):
    model = MODELS.get(name)
    arrays = model.inputs(np.random.default_rng(DRAW))
    check(model.build(), arrays, in_torch(name, model.shapes(), arrays))


def test_padded_bert():
    """Padding tokens change no result, whatever their values are."""
    arrays = dict(bert.inputs(np.random.default_rng(DRAW), 2, 24, TINY, "int32"))
    arrays["attention_mask"] = np.ones((2, 24), np.int32)
    arrays["attention_mask"][1, 15:] = 0
    graph = bert.build(2, tokens=24, size=TINY, ids="int32", padded=True)
    expected = in_torch("bert_base", shapes_of(bert.build, tokens=24, size=TINY), arrays)
    check(graph, arrays, expected)
    f = compile_model(graph, db=":memory:")
    other = {**arrays, "input_ids": arrays["input_ids"].copy()}
    other["input_ids"][1, 15:] = 7
    before, after = (f(*(a[n] for n in graph.input_names)) for a in (arrays, other))
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_allclose(before[1, :15], after[1, :15], rtol=1e-5, atol=1e-5)


def test_later_words_do_not_change_earlier_logits():
    graph, arrays = REDUCED["gpt2"]()
    f = compile_model(graph, db=":memory:")
    words = arrays["input_ids"]
    other = words.copy()
    other[:, 20:] = 3
    np.testing.assert_allclose(f(words)[:, :20], f(other)[:, :20], rtol=1e-6, atol=1e-6)
