"""One pass over the terms, in whatever form the program selects terms; the answers are those of the program
as written."""

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
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from schedules.generate import default_trace

TERMS, PLACES = 60, 13
TARGET = parse("llvm -mcpu=x86-64-v3 -threads=2")
Body = Callable[[Any, Any, Any], Any]


def f32(c: Any) -> Any:
    return te.cast("float32", c)


SCATTERS: dict[str, Body] = {  # of u[k] at p[k]; i is the place
    "where": lambda p, u, i: te.select(p.equal(i), u, 0.0),
    "not equal": lambda p, u, i: te.select(p != i, 0.0, u),
    "a difference": lambda p, u, i: te.select((p - i).equal(0), u, 0.0),
    "one more": lambda p, u, i: te.select((i + 1).equal(p), u, 0.0),
    "a cast": lambda p, u, i: f32(p.equal(i)) * u,
    "a cast of a count": lambda p, u, i: u * te.select(p.equal(i), 1.0, 0.0) * 3.0,
    "a choice times": lambda p, u, i: te.select(p.equal(i), u, 0.0) * u,
    "counts": lambda p, u, i: f32(p.equal(i)),
}
SQUARES: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {  # of u[k] at p[k], q[k]
    "both": lambda p, q, u, i, j: te.select(te.all(p.equal(i), q.equal(j)), u, 0.0),
    "casts": lambda p, q, u, i, j: f32(p.equal(i)) * f32(q.equal(j)),
    "casts times": lambda p, q, u, i, j: f32(p.equal(i)) * u * f32(q.equal(j)),
    "choices": lambda p, q, u, i, j: te.select(p.equal(i), u, 0.0) * te.select(q.equal(j), u, 0.0),
    "whole casts": lambda p, q, u, i, j: te.cast("int32", p.equal(i)) * te.cast("int32", q.equal(j)),
    "a number": lambda p, q, u, i, j: te.select(te.all(p.equal(i), q.equal(j)), u, 0.0) * 3.0,
}
RUNNING: dict[str, Body] = {  # of x[k]; k and j are places
    "up to": lambda k, x, j: te.select(k <= j, x, 0.0),
    "below the next": lambda k, x, j: te.select(k < j + 1, x, 0.0),
    "not beyond": lambda k, x, j: te.select(k > j, 0.0, x),
    "a difference": lambda k, x, j: te.select(j - k > 0, x, 0.0),
    "a cast": lambda k, x, j: f32(k >= j) * x,
}


def scatter(name: str, width: int = 0) -> ComputeDAG:
    p, k = te.placeholder((TERMS,), "int32", name="p"), te.reduce_axis(TERMS, name="k")
    u = te.placeholder((TERMS, width) if width else (TERMS,), name="u")

    def body(i: Any, *j: Any) -> Any:
        return te.sum(SCATTERS[name](p[k], u[k, *j], i), axis=k)

    y = te.compute((PLACES, width) if width else (PLACES,), body, name="y")
    return ComputeDAG.of([*y.op.input_tensors, y])


def square(name: str) -> ComputeDAG:
    p, q = (te.placeholder((TERMS,), "int32", name=n) for n in "pq")
    u, k = te.placeholder((TERMS,), name="u"), te.reduce_axis(TERMS, name="k")

    def body(i: Any, j: Any) -> Any:
        return te.sum(SQUARES[name](p[k], q[k], u[k], i, j), axis=k)

    y = te.compute((PLACES, PLACES), body, name="y")
    return ComputeDAG.of([*y.op.input_tensors, y])


def running(name: str) -> ComputeDAG:
    x, k = te.placeholder((5, 40), name="x"), te.reduce_axis(40, name="k")
    y = te.compute((5, 40), lambda i, j: te.sum(RUNNING[name](k, x[i, k], j), axis=k), name="y")
    return ComputeDAG.of([x, y])


ALL = {
    **{f"scatter, {n}": scatter(n) for n in SCATTERS},
    **{f"scatter of rows, {n}": scatter(n, 7) for n in SCATTERS if n != "counts"},
    **{f"square, {n}": square(n) for n in SQUARES},
    **{f"running, {n}": running(n) for n in RUNNING},
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.sample(7)
def test_every_spelling_takes_one_pass(name: str) -> None:
    dag = ALL[name]
    trace = default_trace(dag, TARGET)
    text = trace.to_python()
    assert any(word in text for word in (".solve(", ".scan(", '"recurrence"')), text
    check(dag, trace)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ALL)
@pytest.mark.sample(16)
def test_what_is_not_finite_counts_as_written(name: str, value: float) -> None:
    """0 times infinity is NaN, in every element that has such a term."""
    dag, rng = ALL[name], np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal(b.shape, np.float32) for b in dag.inputs}
    for a in arrays.values():
        a.flat[a.size // 2] = value
    for name in {"p", "q"} & arrays.keys():
        arrays[name] = rng.integers(0, PLACES, TERMS).astype(np.int32)
    module = Module(compile_trace(dag, default_trace(dag, host()), host()), threads=1)
    wanted = evaluate(dag, arrays)["y"]
    out = np.zeros(wanted.shape, wanted.dtype)
    module(*(arrays[b.name] for b in dag.inputs), out)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
