"""The cost of a stage counts each side of a shared select as often as its loops take this side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.te.dag import ComputeDAG
from schedules.placement.cost import Group
from schedules.placement.sides import mean_evaluation, sides

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=1")
Body = Callable[[Any, Any, Any, Any], Any]

SHARES: dict[str, tuple[Body, list[float]]] = {
    "none": (lambda a, k, i, j: a[i, j], [1.0]),
    "one of nine": (lambda a, k, i, j: te.select(k.equal(0), a[i, j], 1.0), [1 / 9, 8 / 9]),
    "two of nine": (
        lambda a, k, i, j: te.select(k.equal(0), a[i, j], te.select(k.equal(1), 2.0, 1.0)),
        [1 / 9, 1 / 9, 7 / 9],
    ),
    "every second row": (lambda a, k, i, j: te.select((i % 2).equal(0), a[i, j], 1.0), [1 / 2, 1 / 2]),
    "a vector's own": (lambda a, k, i, j: te.select(j.equal(0), a[i, j], 1.0), [1.0]),
    "what data says": (lambda a, k, i, j: te.select(a[k, i] > 0.5, a[i, j], 1.0), [1.0]),
    "a border": (lambda a, k, i, j: te.select(i > 0, a[i, j], 1.0), [1.0]),
}


def stage(body: Body) -> Any:
    a = te.placeholder((32, 32), name="a")
    dag = ComputeDAG.of([a, te.compute((9, 32, 32), lambda k, i, j: body(a, k, i, j), name="out")])
    return dag.stages[-1]


@pytest.mark.parametrize("how", SHARES)
def test_how_often_each_side_is_taken(how: str) -> None:
    body, shares = SHARES[how]
    assert [share for share, _ in sides(stage(body))] == pytest.approx(shares)


def test_the_cost_is_the_mean_of_the_sides() -> None:
    dear = lambda a, i, j: a[i, j] * a[i, j] * a[i, j] + 3.0 * a[i, j]  # noqa: E731
    cheap = lambda a, i, j: a[i, j]  # noqa: E731
    bodies: list[Body] = [
        lambda a, k, i, j: dear(a, i, j),
        lambda a, k, i, j: cheap(a, i, j),
        lambda a, k, i, j: te.select(k.equal(3), dear(a, i, j), cheap(a, i, j)),
    ]
    ops = [stage(b) for b in bodies]
    first, second, both = (mean_evaluation(Group((op,), 8, TARGET), op, frozenset()) for op in ops)
    assert first > second
    assert both == pytest.approx(first / 9 + second * 8 / 9)
