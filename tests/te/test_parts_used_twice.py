"""An expression that uses a part twice at each of its levels: few nodes, but 2^n of them when written out.

With 60 levels, a function that visits every occurrence never ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import te_text
from autotensor.ir.expr import Var, const, select
from autotensor.ir.printer import to_text
from autotensor.ir.visit import LEAST_SHARED, MOST_WRITTEN, shared, sizes
from autotensor.lowering.nest.nest import build_program
from autotensor.lowering.passes.protect_loads import protect
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.checks import exact_on_integers
from autotensor.te.dag import ComputeDAG
from autotensor.te.index_bounds import check_reads
from autotensor.te.indices import index_ranges
from autotensor.te.reference import evaluate
from autotensor.te.stage import operations
from autotensor.te.workload import Workload, expr_from_json, expr_to_json
from schedules.generate import default_trace

A = te.placeholder((40,), name="A")
LEVELS = 60


def ladder(condition: Callable[[Any, Any, int], Any], levels: int = LEVELS) -> ComputeDAG:
    def body(i: Any) -> Any:
        x = A[i]
        for n in range(levels):
            x = te.select(condition(i, x, n), x * 0.5, x + 1.0)
        return x

    return ComputeDAG.of([A, te.compute((40,), body, name="C")])


BY_PLACE = ladder(lambda i, x, n: i > n)
BY_VALUE = ladder(lambda i, x, n: x > float(n))


@pytest.mark.parametrize("dag", [BY_PLACE, BY_VALUE], ids=["place", "value"])
def test_nothing_looks_at_every_occurrence(dag: ComputeDAG) -> None:
    workload = Workload.of(dag)
    assert len(workload.text) < 40_000
    assert Workload.from_text(workload.text).dag == workload.dag
    assert len(te_text(dag)) < 20_000
    check_reads(dag)
    exact_on_integers(dag)
    body = build_program(Trace().replay(dag)).run[0].body
    assert protect(body) is body
    x = np.linspace(-3.0, 50.0, 40, dtype=np.float32)
    want = evaluate(dag, {"A": x})["C"]
    if dag is BY_PLACE:  # built with its texts, and run
        f = at.build([A, te.compute((40,), lambda i: ladder_at(i), name="C")])
        np.testing.assert_allclose(f(x), want, rtol=1e-6)


def ladder_at(i: Any) -> Any:
    x = A[i]
    for n in range(LEVELS):
        x = te.select(i > n, x * 0.5, x + 1.0)
    return x


def test_operations_are_counted_at_every_occurrence() -> None:
    """Three occurrences of x and three operations at each level."""
    (body,) = ladder(lambda i, x, n: x > float(n), 4).stages[0].bodies
    assert operations(body) == 3 * (1 + 3 + 9 + 27)
    (body,) = BY_VALUE.stages[0].bodies
    assert operations(body) == 3 * (3**LEVELS - 1) // 2


def test_the_reference_still_sees_what_leaves() -> None:
    dag = ComputeDAG.of(te.compute((41,), lambda i: te.select(i < 40, A[i], A[i - 1]), name="C"))
    x = np.arange(40, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(dag, {"A": x})["C"], [*x, 39.0])
    bad = ComputeDAG.of(te.compute((41,), lambda i: te.select(i < 41, A[i], 0.0), name="C"))
    with pytest.raises(at.AutotensorError, match=r"index 0 of 'A' becomes 40"):
        evaluate(bad, {"A": x})


def test_small_expressions_are_written_out() -> None:
    dag = ladder(lambda i, x, n: i > n, 8)
    (body,) = dag.stages[0].bodies
    assert LEAST_SHARED < sizes(body)[body] < MOST_WRITTEN
    assert not shared(body)
    assert "$" not in te_text(dag)
    assert expr_to_json(body)[0] == "s"


def test_the_parts_follow_the_text() -> None:
    i = Var("i")
    e = i
    for n in range(20):
        e = select(i > n, e * 2, e + 1)
    first, *parts = to_text(e).splitlines()
    assert first == "($18 * 2 if i > 19 else $18 + 1)"
    assert parts[-1] == "where $18 = ($17 * 2 if i > 18 else $17 + 1)"
    assert all(re.fullmatch(rf"where \${n} = .*", line) for n, line in enumerate(parts))
    data = expr_to_json(e)
    assert data[0] == "d"
    assert expr_from_json(data, {}) is e
    assert to_text(e, types=True) != to_text(e + const(0), types=True)


def test_gathers_are_found_in_time() -> None:
    k = te.placeholder((40,), "int64", name="k")

    def body(i: Any) -> Any:
        x = A[k[i]]
        for _ in range(LEVELS):
            x = x * 0.5 + x * 0.25
        return x

    assert index_ranges(ComputeDAG.of(te.compute((40,), body, name="C"))) == {"k": (0, 39)}


def test_a_chain_behind_a_stage_has_a_default_schedule() -> None:
    """Rules determine which values of the stage are read for every outcome of the selects."""
    B = te.compute((40,), lambda i: A[i] * 2.0, name="B")

    def body(i: Any) -> Any:
        x = B[i]
        for _ in range(LEVELS):
            x = x + x
        return x

    dag = Workload.of(ComputeDAG.of([A, te.compute((40,), body, name="C")])).dag
    assert default_trace(dag, parse("llvm -mcpu=x86-64-v4 -threads=1")).replay(dag)
