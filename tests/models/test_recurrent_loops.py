"""Recurrent layers as a loop over steps: the same numbers as unrolled steps, and code whose size does not
grow."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.base.errors import TensorError
from autotensor.graph import steps as step_loops
from autotensor.graph.build import constant
from autotensor.graph.ir import Constant, GraphNode, topological
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
    monkeypatch.setattr(step_loops, "MOST_WRITTEN_OUT", 4)
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


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.sample(1)
def test_gradients_equal_those_of_written_out_steps(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = at.input((12, 3, 20))

    def slopes() -> list[np.ndarray]:
        made = recurrent.recurrent("lstm", x, WeightSource("layer", None, 0), "r", 24, 0, reverse)
        constants = (n for n in topological([made]) if isinstance(n, Constant))
        weights = sorted((n for n in constants if n.shape[0] == 4 * 24), key=lambda n: n.shape)
        graph = at.Graph((x,), at.gradients(made * made, [x, *weights]), "backward")
        return [np.asarray(g) for g in at.compile_model(graph)(given)]

    given = np.random.default_rng(0).standard_normal((12, 3, 20)).astype(np.float32)
    written_out = slopes()
    monkeypatch.setattr(step_loops, "MOST_WRITTEN_OUT", 4)
    for a, b in zip(slopes(), written_out, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_step_whose_state_stays() -> None:
    """A state that a step returns unchanged, a sequence of integers, and weights of the outer graph."""
    x, n = at.input((80, 3, 4)), at.input((80, 3, 1), "int64")
    a, b = at.input((3, 4)), at.input((3, 4))

    def step(h: GraphNode, kept: GraphNode, row: GraphNode, count: GraphNode) -> list[GraphNode]:
        return [at.ops.where(at.ops.greater(count, 2), h * 0.5 + row, h), kept]

    (hs, ks), (h, _) = step_loops.over_steps(step, [a, b], [x, n])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(np.float32) for v in (x, a, b)]
    counts = rng.integers(0, 5, (80, 3, 1))
    graph = at.Graph((x, n, a, b), (hs, ks, h), "steps")
    got = at.compile_model(graph)(arrays[0], counts, *arrays[1:])
    state, expected = arrays[1], []
    for row, count in zip(arrays[0], counts, strict=True):
        state = np.where(count > 2, state * np.float32(0.5) + row, state)
        expected.append(state)
    np.testing.assert_allclose(got[0], expected, atol=1e-6)
    np.testing.assert_array_equal(got[1], np.broadcast_to(arrays[2], (80, 3, 4)))
    np.testing.assert_allclose(got[2], state, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.sample(1)
def test_what_steps_give_besides_states(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """States of several shapes and types. Results read the old state, the new state, a row, or none of
    them."""
    x, a, w = at.input((9, 3)), at.input((3,)), at.input((3, 3))

    def step(h: GraphNode, n: GraphNode, m: GraphNode, row: GraphNode) -> list[GraphNode]:
        new = at.ops.tanh(at.ops.reshape(at.ops.dense(at.ops.reshape(h, (1, 3)), w), (3,)) + row)
        grown = at.ops.add(m, at.ops.reshape(new, (3, 1)))
        others = [h * row, new, at.ops.sum(new, axis=0) + at.ops.cast(n, dtype="float32"), row, a, m]
        return [new, n + 1, grown, *others]

    def run() -> list[np.ndarray]:
        states = [a, constant(np.int64(3)), constant(np.ones((3, 2), np.float32))]
        rows, last = step_loops.over_steps(step, states, [x], reverse)
        return [
            np.asarray(y) for y in at.compile_model(at.Graph((x, a, w), (*rows, *last), "steps"))(*arrays)
        ]

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(np.float32) for v in (x, a, w)]
    written_out = run()
    monkeypatch.setattr(step_loops, "MOST_WRITTEN_OUT", 4)
    looped = run()
    assert len(looped) == 12
    for mine, want in zip(looped, written_out, strict=True):
        assert mine.dtype == want.dtype
        np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-6)


def test_a_state_that_changes_its_shape_is_refused() -> None:
    with pytest.raises(TensorError, match=r"a state is float32\[3\], and after a step float32\[6\]"):
        step_loops.over_steps(
            lambda h, x: [at.ops.concat(h, x, axis=0)], [at.input((3,))], [at.input((80, 3))]
        )


def test_a_loop_of_no_steps_is_refused() -> None:
    with pytest.raises(TensorError, match="the sequences have no steps"):
        step_loops.over_steps(lambda h, x: [h], [at.input((2, 3))], [at.input((0, 2, 3))])
