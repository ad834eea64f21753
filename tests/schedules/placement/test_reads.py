"""Points that a stage reads through inlined stages, compared with a count of the points."""

from __future__ import annotations

import random

import pytest

from autotensor import te
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.reference import evaluate
from schedules.placement import reads
from schedules.placement.reads import Part, Sum, points_read


def chain(seed: int) -> ComputeDAG:
    """Three pointwise stages; each reads the stage before it at random points."""
    rng = random.Random(seed)
    x = y = te.placeholder((64,), name="x")
    for n in range(3):
        offsets = [rng.randint(0, 3) for _ in range(rng.randint(1, 3))]
        y = te.compute(
            (y.shape[0] - 3,),
            lambda i, y=y, offsets=offsets: sum((y[i + o] for o in offsets[1:]), y[i + offsets[0]]),
            name=f"s{n}",
        )
    return ComputeDAG.of([x, y])


@pytest.mark.parametrize("seed", range(30))
def test_as_many_points_as_move_the_result(seed: int) -> None:
    """An input element counts if the first element of the result changes when only this element is one, and
    all others are zero."""
    dag = chain(seed)
    found = points_read(dag.stages[-1], {"s0", "s1"}, dag.stages)
    assert found is not None
    moved = set()
    for at in range(64):
        x = evaluate(dag, {"x": _one(at)})[dag.stages[-1].buffers[0].name]
        if x[0]:
            moved.add(at)
    assert {p[0].constant for p in found["x"]} == moved  # type: ignore[union-attr]


def _one(at: int):  # type: ignore[no-untyped-def]
    import numpy as np

    x = np.zeros(64, np.float32)
    x[at] = 1.0
    return x


def stages(shape: tuple[int, ...], body, *, inner) -> tuple[StageOp, ...]:  # type: ignore[no-untyped-def]
    x = te.placeholder((40, 40), name="x")
    a = te.compute((36, 36), lambda i, j: inner(x, i, j), name="a")
    return ComputeDAG.of([x, te.compute(shape, lambda i, j: body(a, i, j), name="b")]).stages


def test_what_two_inlined_stages_share_counts_once() -> None:
    order = stages(
        (34, 36), lambda a, i, j: a[i, j] + a[i + 2, j], inner=lambda x, i, j: x[i, j] + x[i + 2, j]
    )
    found = points_read(order[-1], {"a"}, order)
    assert found is not None
    assert len(found["a"]) == 2
    assert len(found["x"]) == 3


def test_quotients_are_told_apart() -> None:
    order = stages((36, 36), lambda a, i, j: a[i // 2, j] + a[i // 2 + 1, j], inner=lambda x, i, j: x[i, j])
    found = points_read(order[-1], (), order)
    assert found is not None
    assert {p[1] for p in found["a"]} == {Sum((("j", 1),), 0)}
    assert {p[0] for p in found["a"]} == {Part(Sum((("i", 1),), n), 2, 0) for n in (0, 2)}


def test_too_many_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    dag = chain(1)
    monkeypatch.setattr(reads, "MOST_POINTS", 1)
    assert points_read(dag.stages[-1], {"s0", "s1"}, dag.stages) is None
