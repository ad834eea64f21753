"""Reductions without a register tile: short rows fill a vector together if they fill it evenly."""

from __future__ import annotations

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=1")  # vectors of eight


def products(count: int, side: int) -> ComputeDAG:
    a, b = (te.placeholder((count, side, side), name=x) for x in "ab")
    k = te.reduce_axis(side, name="k")
    return ComputeDAG.of(
        [
            a,
            b,
            te.compute(
                (count, side, side), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="c"
            ),
        ]
    )


@pytest.mark.parametrize(("side", "fused"), [(4, True), (3, False)])
def test_rows_that_fill_a_vector_are_one(side: int, fused: bool) -> None:
    """Ten matrices are too few to lie across lanes."""
    dag = products(10, side)
    trace = default_trace(dag, TARGET)
    assert ('fuse("i", "j")' in trace.to_python()) is fused
    assert ('vectorize("(i*j).2")' in trace.to_python()) is fused
    check(dag, trace)


def pairs(n: int, terms: int) -> ComputeDAG:
    """The nearest of some points to each place of a picture, with its number."""
    nearest = te.comm_reducer(
        lambda a, b: (te.select(a[1] <= b[1], a[0], b[0]), te.select(a[1] <= b[1], a[1], b[1])),
        lambda t0, t1: (te.const(-1, t0), te.max_value(t1)),
    )
    x, k = te.placeholder((terms, 2), name="x"), te.reduce_axis(terms, name="k")

    def body(i, j):
        far = te.abs(te.cast("float32", j) - x[k, 0]) + te.cast("float32", i) * x[k, 1]
        return nearest((te.cast("int32", k), far), axis=k)

    return ComputeDAG.of([x, *te.compute((6, n), body, name="y")])


@pytest.mark.parametrize(("n", "vectors"), [(8, 1), (9, 1), (64, 2), (100, 2)])
def test_several_vectors_take_a_term_at_once(n: int, vectors: int) -> None:
    """The tile leaves registers for the term: with two results and sixteen registers, two vectors of each."""
    dag = pairs(n, 21)
    trace = default_trace(dag, TARGET)
    assert f's["y"].split("j", factors=[{vectors}, 8])' in trace.to_python()
    check(dag, trace)
