"""Places next to values are reduced in 32 bits if this cannot change the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from comparison import check, interpreted

from autotensor import te
from autotensor.base.dtype import int32, int64
from autotensor.base.target import parse
from autotensor.lowering.pipeline import lower
from autotensor.schedule.state import State
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.narrow.places import narrow_places
from schedules.generate import default_trace

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=1")
BIG = 1 << 40
Pair = Sequence[Any]


def first_best(a: Pair, b: Pair) -> tuple[Any, Any]:
    keep = te.any(a[1] > b[1], te.all(a[1].equal(b[1]), a[0] < b[0]))
    return te.select(keep, a[0], b[0]), te.maximum(a[1], b[1])


def least_place(a: Pair, b: Pair) -> tuple[Any, Any]:
    return te.minimum(a[0], b[0]), te.maximum(a[1], b[1])


def added(a: Pair, b: Pair) -> tuple[Any, Any]:
    return a[0] + b[0], te.maximum(a[1], b[1])


def program(
    join: Callable[[Pair, Pair], tuple[Any, Any]] = first_best,
    begin: Callable[[Any], Any] = lambda t: te.const(-1, t),
    place: Callable[[Any, Any], Any] = lambda x, k: k,
    shape: tuple[int, int] = (30, 20),
) -> ComputeDAG:
    x, k = te.placeholder(shape, name="x"), te.reduce_axis(shape[0], name="k")
    best = te.comm_reducer(join, lambda t0, t1: (begin(t0), te.min_value(t1)), name="best")
    at, value = te.compute((shape[1],), lambda j: best((place(x, k), x[k, j]), axis=k), name="at")
    return ComputeDAG.of([x, at, value])


NARROW = {
    "from -1 on": program(),
    "from an extreme on": program(begin=te.max_value),
    "the least": program(join=least_place, begin=te.max_value),
    "apart": program(place=lambda x, k: k * 1000 + 7),
}
WIDE = {
    "places of data": program(place=lambda x, k: te.cast("int64", x[k, 0])),
    "large places": program(place=lambda x, k: k + BIG),
    "sums of places": program(join=added, begin=lambda t: te.const(0, t)),
}


@pytest.mark.parametrize("how", NARROW)
def test_places_of_axes_are_narrow(how: str) -> None:
    dag = NARROW[how]
    state = State.initial(dag)
    made = narrow_places(state, state.stage("at"))
    assert made is not None
    small, wide = made
    assert (small.buffers[0].dtype, wide.buffers[0].dtype) == (int32, int64)
    assert 'algorithm("at", "narrow_places")' in default_trace(dag, TARGET).to_python()
    check(dag, default_trace(dag, TARGET))


@pytest.mark.parametrize("how", WIDE)
def test_others_stay(how: str) -> None:
    dag = WIDE[how]
    state = State.initial(dag)
    assert narrow_places(state, state.stage("at")) is None
    check(dag, default_trace(dag, TARGET))


def test_what_a_reduction_begins_with_comes_out_where_no_term_is_better() -> None:
    """If all values are the least value, the initial place stays, because a value is not less than itself."""

    def better(a: Pair, b: Pair) -> tuple[Any, Any]:
        keep = a[1] >= b[1]
        return te.select(keep, a[0], b[0]), te.select(keep, a[1], b[1])

    dag = program(join=better, begin=te.max_value)
    inputs = {"x": np.full((30, 20), -np.inf, np.float32)}
    for trace in (Trace(), default_trace(dag, TARGET)):
        got = interpreted(dag, lower(trace.replay(dag), TARGET), inputs, 1)["at"]
        assert (got == np.iinfo(np.int64).max).all()
