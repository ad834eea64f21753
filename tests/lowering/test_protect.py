"""Loads that a Select protects are masked where they could leave their buffer."""

from __future__ import annotations

from ir_tools import A, B, I, J, T, loop, store, text

from autotensor.ir.expr import Expr, Load, all_of, const, select
from autotensor.ir.stmt import If
from autotensor.ir.visit import walk
from autotensor.lowering.passes.protect_loads import protect

ZERO = const(0.0, A.dtype)


def value(e: Expr, extent: int = 64) -> str:
    """The stored value after the pass, in a loop over i."""
    return text(protect(loop(I, extent, store(B, I, e)))).partition(" = ")[2]


def test_a_load_that_may_be_outside_gets_the_condition() -> None:
    assert value(select(I >= 1, Load(A, (I - 1,)), ZERO)) == "((A[i-1] if i >= 1) if i >= 1 else 0)"


def test_the_other_side_gets_its_negation() -> None:
    assert value(select(I < 1, ZERO, Load(A, (I - 1,)))) == "(0 if i < 1 else (A[i-1] if not i < 1))"


def test_a_load_that_is_inside_gets_none() -> None:
    assert value(select(I >= 1, Load(A, (I,)), ZERO)) == "(A[i] if i >= 1 else 0)"
    assert value(Load(A, (I,))) == "A[i]"


def test_conditions_nest() -> None:
    inner = select(I < 60, Load(A, (I + 4 - 1,)), ZERO)
    assert value(select(I >= 1, inner, ZERO)) == (
        "(((A[i+4-1] if i >= 1 and i < 60) if i < 60 else 0) if i >= 1 else 0)"
    )


def test_a_guard_outside_counts() -> None:
    guarded = If(I >= 1, store(B, I, select(I < 60, Load(A, (I - 1,)), ZERO)))
    assert "(A[i-1] if i < 60 else 0)" in text(protect(loop(I, 64, guarded)))


def test_loads_inside_a_mask_are_masked_too() -> None:
    """The condition reads A[i-1] itself: evaluated for the mask, it must not be read at i = 0."""
    inner = select(Load(A, (I - 1,)) > 0.0, Load(A, (I - 1,)), ZERO)
    found = value(select(I >= 1, inner, ZERO))
    assert found == "(((A[i-1] if i >= 1) if (A[i-1] if i >= 1) > 0 else 0) if i >= 1 else 0)"


def test_conditions_on_data_protect_where_only_they_do() -> None:
    at = Load(T, (I,)).astype("int64")
    found = value(select(all_of(at >= 0, at < 64), Load(A, (at,)), ZERO))
    assert "(A[int64(T[i])] if int64(T[i]) >= 0 and int64(T[i]) < 64)" in found


def test_a_side_that_is_compared_has_the_masks_of_the_comparison() -> None:
    """The value is computed for the condition in any case."""
    x = Load(A, (I - 1,))
    assert value(select(x > ZERO, x, ZERO)) == "(A[i-1] if A[i-1] > 0 else 0)"
    assert value(select(x > ZERO, x * 2.0, ZERO)) == "((A[i-1] if A[i-1] > 0) * 2.0 if A[i-1] > 0 else 0)"


def test_a_chain_of_maxima_grows_by_its_length() -> None:
    """Each element is compared and selected. With separate masks for both, every step would double the
    expression."""
    best: Expr = Load(A, (I - 40,))
    for n in range(1, 40):
        x = Load(A, (I - n,))
        best = select(x > best, x, best)
    found = protect(loop(I, 64, store(B, I, select(I >= 1, best, ZERO))))
    assert len({n for n in walk(found) if isinstance(n, Load)}) == 40


def test_other_loops_keep_their_ranges() -> None:
    body = loop(I, 8, loop(J, 8, store(B, I * 8 + J, select(J < 4, Load(A, (I * 8 + J,)), ZERO))))
    assert protect(body) is body
