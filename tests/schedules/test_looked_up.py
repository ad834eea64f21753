"""Look-ups by data: matrices y[b] = x[b] @ W[e[b]], and tables."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.runtime.module import Module
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace, generate
from schedules.kit.stage_analysis import packable, reads

TARGET = parse("llvm -threads=2")


def product(
    blocks: int, rows: int, k: int, n: int, *, constant: bool = True, relu: bool = False
) -> ComputeDAG:
    x = te.placeholder((blocks, rows, k), name="x")
    w = te.placeholder((3, k, n), name="w", constant=constant)
    e = te.placeholder((blocks,), "int64", name="e")
    r = te.reduce_axis(k, "r")
    y = te.compute((blocks, rows, n), lambda b, i, j: te.sum(x[b, i, r] * w[e[b], r, j], axis=r), name="y")
    if relu:
        y = te.compute(y.shape, lambda *at: te.maximum(y[at], 0), name="z")
    return ComputeDAG.of([x, w, e, y])


@pytest.mark.parametrize(
    ("sizes", "how"),
    [
        ((5, 4, 24, 40), {}),
        ((5, 3, 17, 33), {"relu": True}),
        ((4, 1, 40, 64), {"relu": True}),
        ((4, 8, 16, 48), {"constant": False}),
    ],
    ids=str,
)
def test_every_sketch_is_right(sizes, how):
    dag, rng, draws = product(*sizes, **how), np.random.default_rng(0), random.Random(str(sizes))
    blocks, rows, k, n = sizes
    x, w = (rng.integers(-3, 4, s).astype(np.float32) for s in ((blocks, rows, k), (3, k, n)))
    e = rng.integers(0, 3, blocks)
    want = np.maximum(x @ w[e], 0) if how.get("relu") else x @ w[e]
    for sketch in generate(dag, TARGET)[:12]:
        for decisions in (sketch.defaults(), sketch.random(draws)):
            trace = sketch.fill(decisions)
            f = Module(compile_trace(dag, trace, TARGET), threads=2)
            given = {b.name: v for b, v in zip(dag.inputs, (x, w, e), strict=True)}
            f = f.bind(**{name: given.pop(name) for name in dag.constants})
            np.testing.assert_array_equal(f(*given.values()), want, err_msg=trace.to_python())


def test_neighbours_share_a_panel():
    """Loops over columns are outside of blocks, one panel at a time. So a block does not read a whole
    matrix."""
    trace = default_trace(product(32, 4, 256, 384), TARGET)
    (packed,) = (s for s in trace.steps if isinstance(s, Layout))
    assert packed.order == "2.0 0 1 2.1"
    order = next(s.axes for s in trace.steps if isinstance(s, Reorder))
    assert order.index("j.0") < order.index("b") < order.index("j.1")
    (columns,) = (
        s.factors for s in trace.steps if isinstance(s, SplitStep) and (s.axis, len(s.factors)) == ("j", 3)
    )
    assert columns == (1, packed.tiles[0][1] // columns[2], columns[2])


def test_what_is_looked_up_along_the_columns_is_not_packed():
    x, e = te.placeholder((8, 16), name="x"), te.placeholder((32,), "int64", name="e")
    w = te.placeholder((16, 40), name="w", constant=True)
    r = te.reduce_axis(16, "r")
    y = te.compute((8, 32), lambda i, j: te.sum(x[i, r] * w[r, e[j]], axis=r), name="y")
    dag = ComputeDAG.of([x, e, w, y])
    (op,) = dag.stages
    (read,) = (found for found in reads(op) if found.looked_up)
    assert not packable(read, "j")
    assert read.uses("j")
    assert not read.uses("i")
    assert not any(isinstance(s, Layout) for s in default_trace(dag, TARGET).steps)


def test_a_table_that_is_looked_up_often_is_computed_whole():
    """Curves of an image: 256 numbers, not one for every pixel."""
    x = te.placeholder((64, 64), "uint8", name="x")
    w = te.placeholder((256,), name="w")
    curve = te.compute((256,), lambda k: te.exp(w[k]) * te.sqrt(w[k]), name="curve")
    y = te.compute((64, 64), lambda i, j: curve[x[i, j].astype("int32")], name="y")
    assert not inlined(ComputeDAG.of([x, w, y]))


def test_one_that_is_looked_up_once_or_only_moves_elements_is_not():
    x, w = te.placeholder((64,), "int32", name="x"), te.placeholder((256,), name="w")
    curve = te.compute((256,), lambda k: w[k] * w[k] + 1.0, name="curve")
    y = te.compute((64,), lambda i: curve[x[i]], name="y")
    assert inlined(ComputeDAG.of([x, w, y]))
    many = te.placeholder((4096,), "int32", name="many")
    turned = te.compute((256,), lambda k: w[255 - k], name="turned")
    z = te.compute((4096,), lambda i: turned[many[i]], name="z")
    assert inlined(ComputeDAG.of([many, w, z]))


def inlined(dag):
    return any(isinstance(s, Inline) for s in default_trace(dag, TARGET).steps)


def test_vectors_run_along_what_is_not_looked_up():
    """Vectors run along a sparse matrix's rows, and along the rows of a table that are added."""
    w, at = te.placeholder((64, 32), name="w"), te.placeholder((64, 32), "int32", name="at")
    x, table = te.placeholder((100,), name="x"), te.placeholder((100, 32), name="table")
    k = te.reduce_axis(32, name="k")
    sparse = te.compute((64,), lambda i: te.sum(w[i, k] * x[at[i, k]], axis=k), name="sparse")
    bag = te.compute((64, 32), lambda i, j: te.sum(w[i, k] * table[at[i, k], j], axis=k), name="bag")
    assert [vectors(ComputeDAG.of([t])) for t in (sparse, bag)] == ["r0", "i1"]


def test_places_that_are_computed_are_not_looked_up():
    """Blocks of eight columns, each by one matrix: vectors run along the columns."""
    t, d = te.placeholder((64, 64), name="t"), te.placeholder((8, 8), name="d")
    k = te.reduce_axis(8, name="k")
    z = te.compute((64, 64), lambda i, j: te.sum(t[i, j // 8 * 8 + k] * d[j % 8, k], axis=k), name="z")
    assert vectors(ComputeDAG.of([z])) == "i1"


def vectors(dag):
    """The axis of the last stage along which vectors run."""
    steps = default_trace(Workload.of(dag, "k").dag, TARGET).steps
    return next(s.axis.split(".")[0] for s in steps if isinstance(s, Vectorize) and s.stage == "t0")
