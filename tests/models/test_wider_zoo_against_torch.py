"""The zoo's other models, compiled, against torch with the same weights; full size if slow."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from drawn_weights import drawn_weights  # noqa: E402
from reduced import DRAW  # noqa: E402
from torch_zoo import ZOO, resnet101  # noqa: E402
from tuned import tuned  # noqa: E402
from zoo_reduced import SHAPES, WIDER  # noqa: E402

from autotensor.api.model_compiling import compile_model  # noqa: E402
from autotensor.models import MODELS, moe, resnet  # noqa: E402
from autotensor.models.weights import shapes_of  # noqa: E402


def in_torch(function, shapes, arrays, **how):
    held = {n: torch.from_numpy(np.asarray(a)) for n, a in drawn_weights(shapes, 0).items()}
    with torch.no_grad():
        result = function(held, *(torch.from_numpy(a) for a in arrays.values()), **how)
    return [t.numpy() for t in (result if isinstance(result, tuple) else (result,))]


def check(graph, arrays, expected, model=None):
    got = (model or compile_model(graph, db=":memory:"))(**arrays)
    for g, e in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
        assert g.shape == e.shape
        assert np.abs(g - e).max() <= 1e-4 * np.abs(e).max()
        assert e.size == 1 or e.std() > 1e-3


@pytest.mark.parametrize("name", ZOO)
def test_reduced(name):
    graph, arrays = WIDER[name]()
    check(graph, arrays, in_torch(ZOO[name], SHAPES[name](), arrays))


@pytest.mark.parametrize("depth", [101, pytest.param(152, marks=pytest.mark.slow)])
def test_deep_resnets(depth):
    arrays = resnet.inputs(np.random.default_rng(DRAW), image=64)
    check(resnet.build(depth, image=64), arrays, in_torch(resnet101, shapes_of(resnet.build, depth), arrays))


def test_experts_without_room():
    arrays = moe.inputs(np.random.default_rng(DRAW), tokens=12, hidden=16)
    graph = moe.build(tokens=12, hidden=16, capacity=2)
    check(graph, arrays, in_torch(ZOO["moe"], shapes_of(moe.build, hidden=16), arrays, room=2))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ZOO)
def test_tuned(name, tmp_path):
    graph, arrays = WIDER[name]()
    check(graph, arrays, in_torch(ZOO[name], SHAPES[name](), arrays), tuned(graph, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [n for n in ZOO if n != "gpt2_decode"])
def test_full_size(name):
    model = MODELS.get(name)
    arrays = model.inputs(np.random.default_rng(DRAW))
    check(model.build(), arrays, in_torch(ZOO[name], model.shapes(), arrays))
