"""Recurrent layers as a loop over steps: the same numbers as step by step, and code that does not grow."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.graph.ir import GraphNode
from autotensor.models import recurrent
from autotensor.models.weights import WeightSource


def layer(kind: str, reverse: bool, steps: int, batch: int = 3) -> GraphNode:
    x = at.input((steps, batch, 20))
    return recurrent.recurrent(kind, x, WeightSource("layer", None, 0), "r", 24, 0, reverse)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("reverse", [False, True])
def test_equals_step_by_step(kind: str, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((12, 3, 20)).astype(np.float32)
    written_out = at.compile_model(layer(kind, reverse, 12))(x)
    monkeypatch.setattr(recurrent, "MOST_WRITTEN_OUT", 4)
    looped = at.compile_model(layer(kind, reverse, 12))(x)
    np.testing.assert_allclose(looped, written_out, atol=2e-6)


def test_a_long_sequence_has_few_tasks() -> None:
    plan = at.plan_model(layer("lstm", False, 512))
    assert len(plan.tasks) <= 4


def test_scans_in_graphs() -> None:
    from recurrences import iir

    def smoothed(v: at.te.Tensor) -> at.te.Tensor:
        s = at.te.placeholder(v.shape, name="s")
        first = at.te.compute((1, v.shape[1]), lambda i, j: v[i, j], name="first")
        step = at.te.compute(v.shape, lambda i, j: 0.5 * s[i - 1, j] + v[i, j], name="step")
        return at.te.scan(first, step, s, name="smoothed")

    x = np.random.default_rng(0).standard_normal((40, 37)).astype(np.float32)
    given = at.input((40, 37))
    model = at.compile_model(at.ops.relu(at.call(smoothed, at.ops.tanh(given))))
    expected = np.maximum(at.build(list(iir()))(np.tanh(x)), 0.0)
    np.testing.assert_allclose(model(x), expected, atol=1e-6)
