"""Limits of indices are removed if a select implies them, and only then. Answers stay right at every
border."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import host
from autotensor.compiler import compile_trace
from autotensor.ir.expr import Binary, Load, Op
from autotensor.ir.visit import any_node, collect
from autotensor.lowering.pipeline import PIPELINE, lower
from autotensor.runtime.module import Module
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.state import State
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs

N = 50
Body = Callable[[Any, Any], Any]

IMPLIED: dict[str, Body] = {
    "from below": lambda a, i: te.select(i >= 4, a[te.maximum(i - 4, 0)], 0.0),
    "from above": lambda a, i: te.select(i < N - 4, a[te.minimum(i + 4, N - 1)], 0.0),
    "otherwise": lambda a, i: te.select(i < 4, 0.0, a[te.maximum(i - 4, 0)]),
    "both": lambda a, i: te.select(
        te.all(i >= 2, i < N - 2), a[te.maximum(i - 2, 0)] + a[te.minimum(i + 2, N - 1)], a[i]
    ),
    "it always holds": lambda a, i: te.select(i >= 4, 0.0, a[te.maximum(i - 4, 0)]),
    "within another": lambda a, i: te.select(
        i >= 2, te.select(i >= 4, a[te.maximum(i - 4, 0)], a[te.maximum(i - 2, 0)]), 1.0
    ),
}
NOT_IMPLIED: dict[str, Body] = {
    "too little is known": lambda a, i: te.select(i >= 3, a[te.maximum(i - 4, 0)], 0.0),
    "no choice": lambda a, i: a[te.maximum(i - 4, 0)],
    "what data says": lambda a, i: te.select(a[i] > 0.5, a[te.maximum(i - 4, 0)], 0.0),
}


def program(body: Body) -> ComputeDAG:
    a = te.placeholder((N,), name="a")
    return ComputeDAG.of([a, te.compute((N,), lambda i: body(a, i) * 2.0, name="out")])


def limits(dag: ComputeDAG) -> int:
    """Loads at limited indices when loads have their masks."""
    upto = [p.name for p in PIPELINE].index("protect loads") + 1
    (function,) = lower(State.initial(dag), None, passes=PIPELINE[:upto]).run
    return sum(
        any(any_node(i, lambda n: isinstance(n, Binary) and n.op in (Op.MAX, Op.MIN)) for i in x.indices)
        for x in collect(function.body, Load)
    )


@pytest.mark.parametrize("body", IMPLIED.values(), ids=IMPLIED)
def test_limits_that_a_choice_implies_go(body: Body) -> None:
    assert limits(program(body)) == 0


@pytest.mark.parametrize("body", NOT_IMPLIED.values(), ids=NOT_IMPLIED)
def test_others_stay(body: Body) -> None:
    assert limits(program(body)) > 0


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("body", [*IMPLIED.values(), *NOT_IMPLIED.values()], ids=[*IMPLIED, *NOT_IMPLIED])
def test_answers_are_right(body: Body, lanes: int) -> None:
    dag = program(body)
    steps = (SplitStep("out", "i", (lanes,)), Vectorize("out", "i.1")) if lanes > 1 else ()
    module = Module(compile_trace(dag, Trace(steps), host()), threads=1)
    given = random_inputs(dag, 0)
    out = np.full((N,), np.nan, np.float32)
    module(given["a"], out)
    np.testing.assert_allclose(out, evaluate(dag, given)["out"], rtol=1e-6)
