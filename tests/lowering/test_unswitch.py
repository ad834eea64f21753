"""Selects with the same condition in all iterations are moved before the loop, and no others. Answers stay
right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import host
from autotensor.compiler import compile_trace
from autotensor.ir.expr import Select
from autotensor.ir.func import PrimFunc
from autotensor.ir.stmt import For
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import PIPELINE, lower
from autotensor.runtime.module import Module
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.step import Step
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs

K, N = 6, 40
Body = Callable[[Any, Any, Any], Any]


def long(x: Any) -> Any:
    return x * x * x + x * 2.0 + 1.0


def other(x: Any) -> Any:
    return (x + 3.0) * (x - 1.0) * (x - 5.0)


MADE: dict[str, Body] = {
    "two sides": lambda a, k, j: te.select(k.equal(0), long(a[j]), other(a[j])),
    "one of four": lambda a, k, j: te.select(
        k.equal(0),
        long(a[j]),
        te.select(k.equal(1), other(a[j]), te.select(k.equal(2), te.sqrt(a[j] * a[j]), -long(-a[j]))),
    ),
    "of two comparisons": lambda a, k, j: te.select(te.all(k >= 1, k < 4), long(a[j]), other(a[j])),
    "inside a sum": lambda a, k, j: a[j] + 2.0 * te.select(k < 2, long(a[j]), other(a[j])),
    "twice": lambda a, k, j: te.select(k < 2, long(a[j]), 0.0) * te.select(k < 2, other(a[j]), 1.0),
}
NOT_MADE: dict[str, Body] = {
    "the loop's own": lambda a, k, j: te.select(j < 7, long(a[j]), other(a[j])),
    "both loops'": lambda a, k, j: te.select(j < k, long(a[j]), other(a[j])),
    "what data says": lambda a, k, j: te.select(a[k] > 0.5, long(a[j]), other(a[j])),
    "too little": lambda a, k, j: te.select(k.equal(0), a[j], 1.0),
    "too much around": lambda a, k, j: long(other(long(a[j]))) * te.select(k < 2, long(a[j] + 1.0), 1.0),
}
SCHEDULES: dict[str, tuple[Step, ...]] = {
    "plain": (),
    "vectors": (SplitStep("out", "j", (16,)), Vectorize("out", "j.1")),
    "fused": (FuseStep("out", "k", "j"),),
}


def program(body: Body) -> ComputeDAG:
    a = te.placeholder((N,), name="a")
    return ComputeDAG.of([a, te.compute((K, N), lambda k, j: body(a, k, j), name="out")])


def lowered(dag: ComputeDAG, steps: tuple[Step, ...] = ()) -> PrimFunc:
    upto = [p.name for p in PIPELINE].index("unswitch") + 1
    (function,) = lower(Trace(steps).replay(dag), None, passes=PIPELINE[:upto]).run
    return function


def choices_in_loops(function: PrimFunc) -> int:
    """Selects in the innermost loops."""
    inner = [loop for loop in collect(function.body, For) if not collect(loop.body, For)]
    return sum(len(collect(loop, Select)) for loop in inner)


@pytest.mark.parametrize("how", ["plain", "vectors"])
@pytest.mark.parametrize("body", MADE.values(), ids=MADE)
def test_a_shared_choice_is_made_before(body: Body, how: str) -> None:
    assert choices_in_loops(lowered(program(body), SCHEDULES[how])) == 0


@pytest.mark.parametrize("body", NOT_MADE.values(), ids=NOT_MADE)
def test_others_stay(body: Body) -> None:
    assert choices_in_loops(lowered(program(body))) > 0


def test_sums_stay() -> None:
    a, r = te.placeholder((K, N), name="a"), te.reduce_axis(K, name="r")

    def term(k: Any, j: Any) -> Any:
        return te.select(k.equal(0), long(a[r, j]), other(a[r, j]))

    out = te.compute((K, N), lambda k, j: te.sum(term(k, j), axis=r), name="out")
    assert choices_in_loops(lowered(ComputeDAG.of([a, out]))) > 0


@pytest.mark.parametrize("how", SCHEDULES)
@pytest.mark.parametrize("body", [*MADE.values(), *NOT_MADE.values()], ids=[*MADE, *NOT_MADE])
def test_answers_are_right(body: Body, how: str) -> None:
    dag = program(body)
    module = Module(compile_trace(dag, Trace(SCHEDULES[how]), host()), threads=1)
    given = random_inputs(dag, 0)
    out = np.full((K, N), np.nan, np.float32)
    module(given["a"], out)
    np.testing.assert_allclose(out, evaluate(dag, given)["out"], rtol=1e-5, atol=1e-5)
