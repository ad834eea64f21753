"""Mixtures of experts: each group of rows by its own matrix."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import autotensor as at  # noqa: E402
from autotensor.frontends.torch import Unsupported  # noqa: E402
from autotensor.frontends.torch.element_types import to_array, to_tensor  # noqa: E402
from autotensor.frontends.torch.families.experts import grouped  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402


class Grouped(nn.Module):
    def forward(self, x, weight, offsets):
        return torch.nn.functional.grouped_mm(x, weight, offs=offsets)


@pytest.mark.parametrize("ends", [[3, 3, 9, 11], [0, 0, 0, 11], [11, 11, 11, 11], [1, 2, 3, 4]])
def test_each_group_by_its_matrix(ends):
    torch.manual_seed(0)
    x, w = torch.randn(11, 16).bfloat16(), torch.randn(4, 16, 24).bfloat16()
    offsets = torch.tensor(ends, dtype=torch.int32)
    f = at.compile_model(at.from_torch(Grouped(), (x, w, offsets)), db=":memory:")
    got = to_tensor(f(to_array(x), to_array(w), offsets.numpy())).float()
    begin = 0
    for expert, end in enumerate(ends):  # rows after the last group are anything
        wanted = x[begin:end].float() @ w[expert].float()
        torch.testing.assert_close(got[begin:end], wanted, rtol=1e-2, atol=1e-2)
        begin = end


def test_float32_as_transformers_calls_it():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((6, 8), np.float32), rng.standard_normal((3, 8, 5), np.float32)
    offsets = np.array([2, 2, 6], np.int64)
    nodes = [at.input(a.shape, str(a.dtype), n) for a, n in ((x, "x"), (w, "w"), (offsets, "offsets"))]
    got = evaluate(at.Graph(tuple(nodes), (grouped(*nodes),), "experts"), x, w, offsets)[0]
    np.testing.assert_allclose(got, np.concatenate([x[:2] @ w[0], x[2:] @ w[2]]), rtol=1e-5, atol=1e-5)


def test_other_shapes_are_refused():
    x = at.input((3, 4, 5))
    with pytest.raises(Unsupported, match=r"of rows \[rows, k\] by matrices \[experts, k, n\]"):
        grouped(x, x)
