"""Products under a condition on data: which operand is masked, and when. Results stay right for operands that
are not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import Target, parse
from autotensor.compiler import compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Root, State
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.masked_operand import NAME, masked
from schedules.generate import default_trace

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=2")
WITH_MASKS = parse("llvm -mcpu=x86-64-v4 -threads=2")
Term = Callable[[Any, Any, Any, Any, Any, Any], Any]


def product(term: Term, n: int = 33, depth: int = 9, columns: int = 40) -> ComputeDAG:
    """C[i, j] = Σ_k term(a, b, m, i, j, k), of a, m: [n, depth] and b: [depth, columns]."""
    a, m = te.placeholder((n, depth), name="a"), te.placeholder((n, depth), name="m")
    b = te.placeholder((depth, columns), name="b")
    k = te.reduce_axis(depth, name="k")
    c = te.compute((n, columns), lambda i, j: te.sum(term(a, b, m, i, j, k), axis=k), name="c")
    return ComputeDAG.of([a, b, m, c])


def by_rows(a: Any, b: Any, m: Any, i: Any, j: Any, k: Any) -> Any:
    return te.select(m[i, k] > 0.0, a[i, k] * b[k, j], 0.0)


def by_columns(a: Any, b: Any, m: Any, i: Any, j: Any, k: Any) -> Any:
    return te.select(b[k, j] > 0.0, a[i, k] * b[k, j] * m[i, k], 0.0)


def is_masked(dag: ComputeDAG, target: Target = TARGET) -> bool:
    return any(isinstance(s, UseAlgorithm) and s.algorithm == NAME for s in default_trace(dag, target).steps)


@pytest.mark.parametrize("term", [by_rows, by_columns])
def test_the_operand_that_is_chosen_is_masked(term: Term) -> None:
    dag = product(term)
    assert is_masked(dag)
    check(dag, default_trace(dag, TARGET))


def test_instructions_with_masks_take_many_terms_to_be_slower() -> None:
    assert not is_masked(product(by_rows), WITH_MASKS)
    assert is_masked(product(by_rows, 160, 9, 160), WITH_MASKS)


OTHERS: dict[str, Term] = {
    "of both operands": lambda a, b, m, i, j, k: te.select(
        a[i, k] > b[k, j], a[i, k] * b[k, j] * m[i, k], 0.0
    ),
    "of places": lambda a, b, m, i, j, k: te.select(k <= i, a[i, k] * b[k, j] * m[i, k], 0.0),
    "between numbers": lambda a, b, m, i, j, k: te.select(m[i, k] > 0.0, a[i, k] * b[k, j], 1.0),
    "of a sum": lambda a, b, m, i, j, k: te.select(m[i, k] > 0.0, a[i, k] + b[k, j], 0.0),
    "of what must not be read": lambda a, b, m, i, j, k: te.select(m[i, k] > 0.0, a[i, k] * b[k - 1, j], 0.0),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_choices_are_made_for_every_term(what: str) -> None:
    op = product(OTHERS[what]).stages[-1]
    assert masked(op) is None


def test_few_terms_are_chosen_one_by_one() -> None:
    assert not is_masked(product(by_rows, n=4))


def test_the_sum_as_it_is_written_is_made_only_where_it_is_wanted() -> None:
    dag = product(by_rows)
    program = lower(default_trace(dag, TARGET).replay(dag))
    each = next(f for f in program.run if f.name == "c.each")
    signature, *lines = str(each).splitlines()
    guard = next(n for n, line in enumerate(lines) if line.strip() == "if c_harm[0] != 0:")
    assert signature.startswith("def c.each(")
    assert all("c_each" not in line or " for " in line for line in lines[:guard])


def test_no_operand_is_packed_for_the_sum_as_it_is_written() -> None:
    """The operand would be packed in every call, and again for the product, which has other panels."""
    a, b = te.placeholder((48, 24, 24), name="a"), te.placeholder((24, 96, 24), name="b")
    k = te.reduce_axis(24, name="k")
    c = te.compute(
        (48, 24, 96),
        lambda i, j, n: te.sum(te.select(a[i, j, k] > 0.0, a[i, j, k] * b[k, n, j], 0.0), axis=k),
        name="c",
    )
    dag = ComputeDAG.of([a, b, c])
    trace = default_trace(dag, TARGET)
    assert is_masked(dag)
    product = trace.replay(dag).stage("c.plain")
    assert not isinstance(product.place, Root)  # registers of a tile
    check(dag, trace)


def test_the_state_after_it() -> None:
    state = UseAlgorithm("c", NAME).apply(State.initial(product(by_rows)))
    assert state.names == ("c.masked", "c.harms", "c.harm", "c.each", "c.plain", "c")


@pytest.mark.parametrize("term", [by_rows, by_columns])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 0.0])
def test_what_is_left_out_does_no_harm(term: Term, value: float) -> None:
    """Also next to an operand that is not finite: 0 * ∞ is left out, so the result is not NaN."""
    dag = product(term)
    rng = np.random.default_rng(0)
    a, m = (rng.standard_normal((33, 9)).astype(np.float32) for _ in range(2))
    b = rng.standard_normal((9, 40)).astype(np.float32)
    a[3, 5] = b[7, 29] = value
    with np.errstate(invalid="ignore"):
        if term is by_rows:
            kept, terms = m[:, :, None] > 0, a[:, :, None] * b
        else:
            kept, terms = np.broadcast_to(b > 0, (33, 9, 40)), (a * m)[:, :, None] * b
        expected = np.where(kept, terms, 0).sum(axis=1, dtype=np.float64)
    found = open_artifact(compile_trace(dag, default_trace(dag, TARGET), TARGET))(a, b, m)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
