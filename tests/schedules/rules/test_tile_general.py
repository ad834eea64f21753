"""Reductions without a register tile: short rows fill a vector together, where they do so evenly."""

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
