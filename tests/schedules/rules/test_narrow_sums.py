"""Sums of integers are computed in the narrowest type that holds them, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import host, parse
from autotensor.compiler import compile_trace
from autotensor.runtime.module import Module
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.narrow.sums import narrow_sums
from schedules.generate import default_trace

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=1")
Term = Callable[[Any, Any, Any, Any], Any]


def program(term: Term, dtype: str = "float32", terms: int = 40, reduction: Any = te.sum) -> ComputeDAG:
    """C[i] = Σ_k of a term of x[i, k] and y[k]."""
    x, y = te.placeholder((30, terms), dtype, name="x"), te.placeholder((terms,), dtype, name="y")
    k = te.reduce_axis(terms, name="k")
    c = te.compute((30,), lambda i: reduction(term(x, y, i, k), axis=k), name="C")
    return ComputeDAG.of([*c.op.input_tensors, c])


def sign(v: Any) -> Any:
    return te.select(v > 0, 1, te.select(v < 0, -1, 0))


def int32(v: Any) -> Any:
    return te.cast("int32", v)


NARROW: dict[str, tuple[ComputeDAG, str]] = {
    "counts": (program(lambda x, y, i, k: te.select(x[i, k] <= y[k], 1, 0)), "int32"),
    "products of signs": (program(lambda x, y, i, k: sign(x[i, k] - y[k]) * sign(y[k])), "int32"),
    "bytes compared": (
        program(lambda x, y, i, k: te.select(x[i, k].equal(y[k]), 0, 1), "uint8", 255),
        "uint8",
    ),
    "one more than a byte holds": (
        program(lambda x, y, i, k: te.select(x[i, k].equal(y[k]), 0, 1), "uint8", 256),
        "uint16",
    ),
    "as far below 0 as a byte goes": (
        program(lambda x, y, i, k: te.select(x[i, k].equal(y[k]), 0, -1), "int8", 128),
        "int8",
    ),
    "bytes": (program(lambda x, y, i, k: int32(x[i, k]), "uint8", 257), "uint16"),
    "places": (program(lambda x, y, i, k: te.select(x[i, k] > 0, k - 7, i)), "int32"),
}

WIDE: dict[str, ComputeDAG] = {
    "floats": program(lambda x, y, i, k: x[i, k]),
    "any integers": program(lambda x, y, i, k: x[i, k], "int32"),
    "more than 16 bits": program(lambda x, y, i, k: int32(x[i, k]), "uint8", 258),
    "the greatest": program(lambda x, y, i, k: te.select(x[i, k] > 0, 1, 0), reduction=te.max),
    "as wide as what is compared": program(
        lambda x, y, i, k: int32(te.select(x[i, k] > y[k], 1, 0)), "float32"
    ),
}


@pytest.mark.parametrize("how", NARROW)
@pytest.mark.sample(3)
def test_sums_that_fit_are_narrow(how: str) -> None:
    dag, wanted = NARROW[how]
    state = State.initial(dag)
    made = narrow_sums(state, state.stage("C"))
    assert made is not None
    small, wide = made
    assert str(small.buffers[0].dtype) == wanted
    assert wide.buffers == state.stage("C").op.buffers
    trace = default_trace(dag, TARGET)
    assert 'algorithm("C", "narrow_sums")' in trace.to_python()
    check(dag, trace)


@pytest.mark.parametrize("how", WIDE)
def test_others_stay(how: str) -> None:
    state = State.initial(WIDE[how])
    assert narrow_sums(state, state.stage("C")) is None


@pytest.mark.parametrize(("dtype", "terms", "each"), [("uint8", 257, 255), ("int8", 256, -128)])
def test_the_furthest_sum_fits(dtype: str, terms: int, each: int) -> None:
    dag = program(lambda x, y, i, k: int32(x[i, k]), dtype, terms)
    module = Module(compile_trace(dag, default_trace(dag, host()), host()), threads=1)
    out = np.zeros(30, np.int32)
    module(np.full((30, terms), each, dtype), out)
    assert (out == terms * each).all()
