"""Pointwise stages: vectors end where their operand starts again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.ir.expr import Binary, Op
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import lower
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.primitives.split import SplitStep
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")


def kronecker(n: int) -> ComputeDAG:
    a, b = te.placeholder((4, 6), name="a"), te.placeholder((n, n), name="b")
    body = lambda i, j: a[i // n, j // n] * b[i % n, j % n]  # noqa: E731
    return ComputeDAG.of([a, b, te.compute((4 * n, 6 * n), body, name="k")])


def vectors_of_remainders(dag: ComputeDAG) -> list[Binary]:
    bodies = [f.body for f in lower(default_trace(dag, TARGET).replay(dag), TARGET).run]
    found = [e for body in bodies for e in collect(body, Binary)]
    return [e for e in found if e.op in (Op.MOD, Op.FLOORDIV) and e.dtype.lanes > 1]


@pytest.mark.parametrize("n", [20, 30, 33, 48])
def test_no_vector_lies_across_the_end_of_a_run(n: int) -> None:
    assert not vectors_of_remainders(kronecker(n))


@pytest.mark.parametrize("n", [3, 20, 30, 32])
def test_every_sketch_is_right(n: int) -> None:
    dag, rng = kronecker(n), np.random.default_rng(0)
    a, b = (rng.standard_normal(s, np.float32) for s in ((4, 6), (n, n)))
    for sketch in generate(dag, parse("llvm -threads=2")):
        f = open_artifact(compile_trace(dag, sketch.fill(sketch.defaults()), parse("llvm -threads=2")), 2)
        np.testing.assert_array_equal(f(a, b), np.kron(a, b))


def test_runs_that_do_not_divide_one_another_stay() -> None:
    a, b = te.placeholder((30,), name="a"), te.placeholder((45,), name="b")
    assert vectors_of_remainders(
        ComputeDAG.of([te.compute((90,), lambda j: a[j % 30] * b[j % 45], name="c")])
    )


def test_rows_that_are_joined_again_are_no_runs() -> None:
    a, b = te.placeholder((5, 3, 30), name="a"), te.placeholder((90,), name="b")
    dag = ComputeDAG.of([te.compute((5, 90), lambda i, j: a[i, j // 30, j % 30] * b[j], name="c")])
    assert not any(isinstance(s, SplitStep) and 30 in s.factors for s in default_trace(dag, TARGET).steps)


def planes(count: int, weighted: bool = False) -> ComputeDAG:
    """Sums and differences of a pixel's colours, a plane of each."""
    x, w = te.placeholder((20, 70, 3), name="x"), te.placeholder((count,), name="w")

    def body(c: Any, i: Any, j: Any) -> Any:
        r, g, b = (x[i, j, n] for n in range(3))
        whole = te.select(c.equal(0), r + g + b, te.select(c.equal(1), r - g, b - g))
        return whole * w[c] if weighted else whole

    y = te.compute((count, 20, 70), body, name="y")
    return ComputeDAG.of([x, *([w] if weighted else []), y])


@pytest.mark.parametrize(
    ("dag", "together"), [(planes(3), True), (planes(4), True), (planes(5), False), (planes(3, True), False)]
)
def test_planes_of_one_picture_are_written_together(dag: ComputeDAG, together: bool) -> None:
    trace = default_trace(dag, TARGET)
    assert ('unroll("c")' in trace.to_python()) is together
    check(dag, trace)


@pytest.mark.parametrize("ones", [(), (1,), (1, 1)])
def test_the_axis_of_vectors_is_no_plane(ones: tuple[int, ...]) -> None:
    """Elements that share work along the last axis are one vector; axes of one element may follow."""
    x = te.placeholder((17,), name="x")
    y = te.compute((17, 4, *ones), lambda i, c, *_: te.exp(x[i]) * (c + 1).astype("float32"), name="y")
    dag = ComputeDAG.of([y])
    for sketch in generate(dag, parse("llvm -mcpu=x86-64-v2")):
        check(dag, sketch.fill(sketch.defaults()))


SHORT = {"two axes": (70, 3), "no axis of a vector's length": (40, 6, 6), "two short rows": (30, 3, 3),
         "one element between": (50, 1, 5), "wide blocks": (9, 2, 14, 15)}  # fmt: skip


@pytest.mark.parametrize("shape", SHORT.values(), ids=SHORT)
@pytest.mark.parametrize("turned", [False, True])
def test_rows_shorter_than_a_vector_fill_vectors_together(shape: tuple[int, ...], turned: bool) -> None:
    *outer, last = shape
    x, g = te.placeholder((*outer, last), name="x"), te.placeholder((last,), name="g")
    square = turned and len(outer) > 1 and outer[-1] == last

    def body(*i: te.Expr) -> te.Expr:
        other = (*i[:-2], i[-1], i[-2]) if square else (*i[:-1], last - 1 - i[-1])
        return (x[i] - x[other]) / (g[i[-1]] + 9.0)

    dag = ComputeDAG.of([x, g, te.compute(shape, body, name="y")])
    trace = default_trace(dag, TARGET)
    check(dag, trace)
    assert ".vectorize(" in trace.to_python()


def test_rows_share_what_stages_inlined_into_them_read() -> None:
    u, o = te.placeholder((22, 50), name="u"), te.placeholder((20, 48), name="o")
    around = lambda i, j: u[i, j + 1] + u[i + 2, j + 1] + u[i + 1, j] + u[i + 1, j + 2]  # noqa: E731
    laplace = te.compute((20, 48), lambda i, j: around(i, j) - 4.0 * u[i + 1, j + 1], name="laplace")
    dag = ComputeDAG.of([u, o, te.compute((20, 48), lambda i, j: o[i, j] + 0.5 * laplace[i, j], name="y")])
    trace = default_trace(dag, TARGET)
    check(dag, trace)
    assert 's["y"].unroll("i.1")' in trace.to_python()
