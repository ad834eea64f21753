"""Reductions whose result lies across their operands: which are turned, and that it is right."""

from __future__ import annotations

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.axis_last import NAME, axis_along_memory
from schedules.generate import default_trace, generate
from schedules.placement.cost import vectors_in_box

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")


def batch_last(rows: int = 37, columns: int = 7, depth: int = 11, most: bool = False) -> ComputeDAG:
    """c[i, j] of a[k, i] and b[j, k, i]: both lie along i, a computed one among them."""
    a = te.placeholder((depth, rows), name="a")
    b = te.placeholder((columns, depth, rows), name="b")
    k = te.reduce_axis(depth, name="k")
    e = te.compute((columns, depth, rows), lambda j, k, i: te.exp(b[j, k, i]), name="e")
    join = te.max if most else te.sum
    c = te.compute((rows, columns), lambda i, j: join(a[k, i] * e[j, k, i], axis=k), name="c")
    d = te.compute((rows, columns), lambda i, j: c[i, j] + 1.0, name="d")
    return ComputeDAG.of([a, b, d])


def largest(rows: int = 37, columns: int = 7, depth: int = 11) -> ComputeDAG:
    """Two results: the largest of b[j, :, i], and where it is."""
    b = te.placeholder((columns, depth, rows), name="b")
    k = te.reduce_axis(depth, name="k")
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    where, most = te.compute((rows, columns), lambda i, j: argmax((k, b[j, k, i]), axis=k), name="most")
    return ComputeDAG.of([b, where, most])


def is_turned(dag: ComputeDAG) -> bool:
    return any(isinstance(s, UseAlgorithm) and s.algorithm == NAME for s in default_trace(dag, TARGET).steps)


@pytest.mark.parametrize(
    "dag",
    [
        batch_last(columns=23),
        batch_last(columns=23, most=True),
        batch_last(rows=16, columns=24),
        largest(columns=23),
    ],
)
def test_made_along_its_operands(dag: ComputeDAG) -> None:
    assert is_turned(dag)
    check(dag, default_trace(dag, TARGET))


def test_the_general_tile_stays_on_offer() -> None:
    assert any("tile_general" in s.made_by for s in generate(batch_last(), TARGET))


def test_a_product_whose_last_axis_lies_well_stays() -> None:
    a = te.placeholder((33, 20), name="a")
    b = te.placeholder((20, 40), name="b")
    k = te.reduce_axis(20, name="k")
    dag = ComputeDAG.of(
        [a, b, te.compute((33, 40), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")]
    )
    assert not is_turned(dag)


def test_the_longest_axis_is_chosen() -> None:
    x = te.placeholder((5, 6, 48), name="x")
    y = te.placeholder((6, 32), name="y")
    k = te.reduce_axis(6, name="k")
    c = te.compute((48, 32, 5), lambda i, j, m: te.sum(x[m, k, i] * y[k, j], axis=k), name="c")
    (op,) = ComputeDAG.of([x, y, c]).stages
    axis = axis_along_memory(op)
    assert axis is not None
    assert axis.name == "i"


def test_a_turned_result_is_not_computed_in_slivers() -> None:
    """Parts of rows lie apart: one element of each of 64 rows is 64 vectors."""
    by_default = generate(largest(1000, 256, 32), TARGET)[0]
    assert "pipeline" not in by_default.made_by
    (op,) = largest(64, 3, 32).stages  # of rows of three elements
    assert vectors_in_box(op, (64, 1), 8) == 64
    assert vectors_in_box(op, (64, 3), 8) == 24
