"""The end of a sum's loop comes from memory. Answers are right for all contents of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import host, parse
from autotensor.compiler import compile_trace
from autotensor.ir.expr import Binary, Const, Load, Op
from autotensor.ir.stmt import For, Stmt
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import PIPELINE, lower
from autotensor.runtime.module import Module
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from schedules.generate import default_trace

ROWS, MOST, TERMS, WIDE = 37, 50, 37 * 50, 20
Given = dict[str, np.ndarray[Any, Any]]

LENGTHS = {
    "any": lambda rng: rng.integers(0, MOST + 1, ROWS),
    "none": lambda rng: np.zeros(ROWS),
    "all": lambda rng: np.full(ROWS, MOST),
    "far out": lambda rng: rng.choice([-(2**31), -1, 0, MOST - 1, MOST, MOST + 1, 2**31 - 1], ROWS),
}


def begins(lengths: Any, rng: Any) -> Any:
    """The beginnings of rows, and the end of the last one; some lie beyond the existing terms."""
    if lengths is LENGTHS["far out"]:
        return rng.choice([-(2**31), -7, 0, 5, TERMS - 3, TERMS, TERMS + 9, 2**31 - 1], ROWS + 1)
    return np.concatenate([[0], np.cumsum(lengths(rng))])


def lengths_of_rows(reduction: Any, neutral: Any, extra: bool = False) -> Callable[[], ComputeDAG]:
    def make() -> ComputeDAG:
        n = te.placeholder((ROWS,), "int32", name="n")
        x, k = te.placeholder((ROWS, MOST), name="x"), te.reduce_axis(MOST, name="k")

        def body(i: Any) -> Any:
            there = te.all(k < n[i], x[i, k] > -0.5) if extra else k < n[i]
            return reduction(te.select(there, x[i, k], neutral), axis=k)

        return ComputeDAG.of([n, x, te.compute((ROWS,), body, name="y")])

    return make


def means() -> ComputeDAG:
    n = te.placeholder((ROWS,), "int32", name="n")
    x, k = te.placeholder((ROWS, MOST, WIDE), name="x"), te.reduce_axis(MOST, name="k")
    s = te.compute(
        (ROWS, WIDE), lambda i, j: te.sum(te.select(k + 1 <= n[i], x[i, k, j], 0.0), axis=k), name="s"
    )
    y = te.compute((ROWS, WIDE), lambda i, j: s[i, j] / te.cast("float32", te.maximum(n[i], 1)), name="y")
    return ComputeDAG.of([n, x, y])


def sparse(wide: bool, kept: bool = True) -> Callable[[], ComputeDAG]:
    """kept: whether the program itself keeps places inside of the array that it reads."""

    def make() -> ComputeDAG:
        p = te.placeholder((ROWS + 1,), "int32", name="p")
        at, v = te.placeholder((TERMS,), "int32", name="at"), te.placeholder((TERMS,), name="v")
        x = te.placeholder((WIDE, WIDE) if wide else (WIDE,), name="x")
        k = te.reduce_axis(MOST, name="k")

        def body(i: Any, *j: Any) -> Any:
            e = te.maximum(te.minimum(p[i] + k, TERMS - 1), 0) if kept else p[i] + k
            return te.sum(te.select(p[i] + k < p[i + 1], v[e] * x[at[e], *j], 0.0), axis=k)

        return ComputeDAG.of([p, at, v, x, te.compute((ROWS, WIDE) if wide else (ROWS,), body, name="y")])

    return make


def from_its_end() -> ComputeDAG:
    """The terms from the first one that counts to the last one: a limit from below."""
    n = te.placeholder((ROWS,), "int32", name="n")
    x, k = te.placeholder((ROWS, MOST), name="x"), te.reduce_axis(MOST, name="k")
    y = te.compute((ROWS,), lambda i: te.sum(te.select(k >= n[i], x[i, k], 0.0), axis=k), name="y")
    return ComputeDAG.of([n, x, y])


def made_before() -> ComputeDAG:
    """The limit is a stage's result."""
    n = te.placeholder((ROWS,), "int32", name="n")
    x, k = te.placeholder((ROWS, MOST), name="x"), te.reduce_axis(MOST, name="k")
    half = te.compute((ROWS,), lambda i: n[i] // 2, name="half")
    y = te.compute((ROWS,), lambda i: te.sum(te.select(k < half[i], x[i, k], 0.0), axis=k), name="y")
    return ComputeDAG.of([n, x, y])


PROGRAMS: dict[str, Callable[[], ComputeDAG]] = {
    "sum": lengths_of_rows(te.sum, 0.0),
    "greatest": lengths_of_rows(te.max, te.min_value("float32")),
    "sum of some": lengths_of_rows(te.sum, 0.0, extra=True),
    "means": means,
    "sparse row": sparse(wide=False),
    "sparse rows": sparse(wide=True),
    "sparse row, not kept": sparse(wide=False, kept=False),
    "sparse rows, not kept": sparse(wide=True, kept=False),
    "from its end": from_its_end,
    "made before": made_before,
}


def given(dag: ComputeDAG, lengths: Any) -> Given:
    rng = np.random.default_rng(0)
    found = {}
    for b in dag.inputs:
        if b.name == "n":
            values = lengths(rng)
        elif b.name == "p":
            values = begins(lengths, rng)
        else:
            values = rng.integers(0, WIDE, b.shape) if b.name == "at" else rng.standard_normal(b.shape)
        found[b.name] = np.asarray(values, str(b.dtype))
    return found


def lowered(dag: ComputeDAG, trace: Trace, upto: str) -> list[Stmt]:
    target = parse("llvm -mcpu=x86-64-v4 -threads=1")
    last = [p.name for p in PIPELINE].index(upto) + 1
    return [f.body for f in lower(trace.replay(dag), target, passes=PIPELINE[:last]).run]


@pytest.mark.parametrize("name", ["sum", "greatest", "means", "sparse row", "sparse rows"])
def test_loops_end_where_terms_do(name: str) -> None:
    dag = PROGRAMS[name]()
    for trace in (Trace(()), default_trace(dag, parse("llvm -mcpu=x86-64-v4 -threads=1"))):
        loops = [x for body in lowered(dag, trace, "partition tails") for x in collect(body, For)]
        assert any(not isinstance(loop.extent, Const) for loop in loops), trace


@pytest.mark.parametrize("kept", [True, False])
def test_places_of_terms_are_in_a_row(kept: bool) -> None:
    """If two rows lie inside of the terms, no place between them needs a limit."""
    dag = sparse(wide=False, kept=kept)()
    (body,) = lowered(dag, Trace(()), "unclamp")
    values = [x for x in collect(body, Load) if x.buffer.name == "v"]
    limits = [bool([b for b in collect(x, Binary) if b.op in (Op.MIN, Op.MAX)]) for x in values]
    assert sorted(limits) == [False, True]  # and one where rows may lie anywhere


def test_a_limit_from_below_stays_a_mask() -> None:
    (body,) = lowered(from_its_end(), Trace(()), "partition tails")
    assert all(isinstance(loop.extent, Const) for loop in collect(body, For))


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sample(14)
def test_answers_are_right(name: str, lengths: Any) -> None:
    dag = PROGRAMS[name]()
    arrays = given(dag, lengths)
    if name.endswith("not kept") and lengths is LENGTHS["far out"]:
        pytest.skip("places outside of what is read mean nothing")
    wanted = evaluate(dag, arrays, accumulate=np.float64)["y"]
    for trace in (Trace(()), default_trace(dag, host())):
        module = Module(compile_trace(dag, trace, host()), threads=1)
        out = np.full(wanted.shape, np.nan, np.float32)
        module(*arrays.values(), out)
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-4)
