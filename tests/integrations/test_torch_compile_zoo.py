"""The torch twins of the zoo through `torch.compile(backend="autotensor")`: equal to eager."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

MODELS = str(Path(__file__).parents[1] / "models")
if MODELS not in sys.path:
    sys.path.append(MODELS)

from drawn_weights import drawn_weights  # noqa: E402
from reduced import REDUCED  # noqa: E402
from test_against_torch import SHAPES as FIRST_SHAPES  # noqa: E402
from torch_models import TORCH  # noqa: E402
from torch_zoo import ZOO  # noqa: E402
from zoo_reduced import SHAPES, WIDER  # noqa: E402

from autotensor.integrations import torch_compile  # noqa: E402

SLOW = (
    "alexnet",
    "overfeat",
    "vgg16",
    "vgg19",
    "googlenet",
    "r3d_18",
    "mobilenet_v2",
    "dcgan",
    "gnmt",
    "bilstm",
)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in (*TORCH, *ZOO)]
)
def test_twins(name, monkeypatch):
    said = []
    monkeypatch.setattr(torch_compile, "_tell", lambda why, options: said.append(why))
    torch._dynamo.reset()
    twin, shapes = (ZOO | TORCH)[name], (SHAPES | FIRST_SHAPES)[name]()
    weights = {n: torch.from_numpy(np.asarray(a)) for n, a in drawn_weights(shapes, 0).items()}
    inputs = [torch.from_numpy(a) for a in (WIDER | REDUCED)[name]()[1].values()]
    f = torch.compile(
        lambda *x: twin(weights, *x), backend=torch_compile.autotensor, options={"log": ":memory:"}
    )
    with torch.no_grad():
        expected, got = twin(weights, *inputs), f(*inputs)
    for g, e in zip(*([t] if isinstance(t, torch.Tensor) else t for t in (got, expected)), strict=True):
        assert (g - e).abs().max() <= 1e-4 * e.abs().max()
    assert not said
