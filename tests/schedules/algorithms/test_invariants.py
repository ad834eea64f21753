"""Function values that are the same along an axis: those that get a stage of their own; results do not
change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.invariants import NAME, invariants
from schedules.generate import default_trace

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=1")
N, C = 150, 40
Body = Callable[..., Any]


def program(body: Body, k: int = 0) -> ComputeDAG:
    x, v = te.placeholder((N, C), name="x"), te.placeholder((C,), name="v")
    r = te.reduce_axis(k, name="r") if k else None
    y = te.compute((N, C), lambda i, j: body(x, v, i, j) if r is None else body(x, v, i, j, r), name="y")
    return ComputeDAG.of([x, v, y])


def root(v: Any, j: Any) -> Any:
    return te.sqrt(te.abs(v[j]) + 1.0)


SAME: dict[str, Sequence[Any]] = {
    "a root for each channel": (lambda x, v, i, j: x[i, j] / root(v, j),),
    "twice the same": (lambda x, v, i, j: x[i, j] / root(v, j) + root(v, j),),
    "a function of the place": (lambda x, v, i, j: x[i, j] * te.cos(te.cast("float32", j)) + v[j],),
    "of terms": (lambda x, v, i, j, r: te.sum(x[i, r] * te.exp(v[r]) + v[j], axis=r), C),
}
NOT: dict[str, Sequence[Any]] = {
    "different everywhere": (lambda x, v, i, j: te.sqrt(te.abs(x[i, j]) + v[j] * v[j]),),
    "the same for a row": (lambda x, v, i, j: x[i, j] * te.exp(x[i, 0]) + v[j],),
    "no call": (lambda x, v, i, j: x[i, j] / (v[j] * v[j] + 1.0),),
    "unsafe elsewhere": (lambda x, v, i, j: te.select(j < C - 1, x[i, j] + te.exp(v[j + 1]), v[j]),),
}


def stages(dag: ComputeDAG) -> list[list[str]]:
    state = State.initial(dag)
    made = invariants(state, state.stage("y")) or ()
    return [[a.name for a in o.axes] for o in made[:-1]]


@pytest.mark.parametrize("how", SAME)
@pytest.mark.sample(1)
def test_what_is_the_same_is_computed_once(how: str) -> None:
    dag = program(*SAME[how])
    assert stages(dag) == [["r" if how == "of terms" else "j"]]
    trace = default_trace(dag, TARGET)
    assert f'algorithm("y", "{NAME}")' in trace.to_python()
    check(dag, trace)


@pytest.mark.parametrize("how", NOT)
def test_other_values_stay(how: str) -> None:
    dag = program(*NOT[how])
    assert not stages(dag)
    check(dag, default_trace(dag, TARGET))
