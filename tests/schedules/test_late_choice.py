"""A select with the same condition for all terms is evaluated once, and sums that it drops are not
computed."""

from __future__ import annotations

from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.late_choice import late_choice
from schedules.generate import default_trace, generate

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")


def product(cond: Any, n: int = 40, shift: int = 0, most: bool = False) -> ComputeDAG:
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    k = te.reduce_axis(n, name="k")

    def body(i: Any, j: Any) -> Any:
        if most:
            return te.max(te.select(cond(i, j, k), a[i, k] + b[k, j], te.min_value("float32")), axis=k)
        return te.sum(te.select(cond(i, j, k), a[i, k - shift] * b[k, j], 0.0), axis=k)

    return ComputeDAG.of([a, b, te.compute((n, n), body, name="p")])


def is_late(dag: ComputeDAG) -> bool:
    return any(isinstance(s, UseAlgorithm) for s in default_trace(dag, TARGET).steps)


@pytest.mark.parametrize("most", [False, True])
def test_a_choice_by_place(most: bool) -> None:
    dag = product(lambda i, j, k: j <= i, most=most)
    assert is_late(dag)
    for sketch in generate(dag, TARGET)[:3]:
        check(dag, sketch.fill(sketch.defaults()))


def test_a_choice_by_term_is_made_for_each() -> None:
    dag = product(lambda i, j, k: k <= i)
    assert not is_late(dag)
    assert any(isinstance(s, Pragma) and s.key == "skip_zeros" for s in default_trace(dag, TARGET).steps)
    check(dag, default_trace(dag, TARGET))


def test_what_is_unsafe_to_read_stays_under_its_choice() -> None:
    n = 40
    x = te.placeholder((n,), name="x")
    k = te.reduce_axis(8, name="k")
    y = te.compute((n,), lambda i: te.sum(te.select(i >= 8, x[i - k], 0.0), axis=k), name="y")
    dag = ComputeDAG.of([x, y])
    state = State.initial(dag)
    assert late_choice(state, state.stages[-1]) is None
    check(dag, default_trace(dag, TARGET))


def test_other_numbers_than_the_neutral_one_stay() -> None:
    n = 24
    a = te.placeholder((n, n), name="a")
    k = te.reduce_axis(n, name="k")
    p = te.compute((n, n), lambda i, j: te.sum(te.select(j <= i, a[i, k] * a[j, k], 1.0), axis=k), name="p")
    dag = ComputeDAG.of([a, p])
    assert not is_late(dag)
    check(dag, default_trace(dag, TARGET))
