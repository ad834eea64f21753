"""Limits of one variable that follow from comparisons of sums."""

from __future__ import annotations

import itertools

import pytest
from ir_tools import I, J, K, text

from autotensor.base.dtype import int64
from autotensor.ir.bounds import NO_RANGES, Interval, bounds
from autotensor.ir.expr import Cmp, Var, compare, const, maximum, minimum
from autotensor.ir.simplify import simplify
from autotensor.lowering.index_limits import end, weakest
from autotensor.lowering.passes.inside_extents import Facts

RANGES = {J: Interval(0, 99), K: Interval(0, 7), I: Interval(0, 9)}
KNOWN = bounds(RANGES)


def test_a_condition_for_some_values_of_others() -> None:
    found = weakest(J * 9 <= I * 8 + K, {K}, RANGES)
    assert found is not None
    assert KNOWN.decide(simplify(found, {I: Interval(1, 1), J: Interval(1, 1)})) is True
    assert KNOWN.decide(simplify(found, {I: Interval(1, 1), J: Interval(2, 2)})) is False


def test_ends_for_all_and_for_some() -> None:
    cond = J <= I * 8 + K
    always, ever = (end(cond, J, {K}, KNOWN, always=a) for a in (True, False))
    assert text(simplify(always)) == "i * 8 + 1"
    assert text(simplify(ever)) == "i * 8 + 8"


def test_multiples_are_rounded_down() -> None:
    found = end(J * 3 <= I, J, set(), KNOWN, always=True)
    assert [KNOWN.of(simplify(found, {I: Interval(n, n)})).value for n in (2, 3)] == [1, 2]


def test_what_bounds_from_below_has_no_end() -> None:
    assert end(J >= I, J, set(), KNOWN, always=True) is None
    assert end(J < I, J, {I}, bounds({}), always=True) is None
    assert weakest(J <= I, {I}, {}) is None


@pytest.mark.parametrize("width", [3, 6, 10, 48])
def test_rows_of_a_fused_loop_in_vectors(width: int) -> None:
    """Elements a*16*width + b*16 + c of [n*2, width]: the row is a*16 + (b*16 + c)//width."""
    n, a, b, c = (Var(name, int64) for name in "nabc")
    element = simplify(a * (16 * width) + b * 16 + c)
    row = simplify(a * 16 + (b * 16 + c) // width)
    scope = Facts(bounds(NO_RANGES).assuming(compare(Cmp.LT, element, n * 2 * width), True))
    assert scope.below(row, simplify(n * 2))
    assert not scope.below(row, simplify(n * 2 - 1))
    assert not scope.below(simplify(row + 1), simplify(n * 2))


def test_the_law_by_trying() -> None:
    """a + x//q < e  ⇔  a*q + x < e*q, with numbers of both signs."""
    for a_, x, q, e in itertools.product(range(-3, 4), range(-9, 10), (1, 2, 3, 5), range(-2, 3)):
        assert (a_ + x // q < e) == (a_ * q + x < e * q)


def test_an_index_below_a_least_and_a_greatest_extent() -> None:
    n, i = Var("n", int64), Var("i", int64)
    scope = Facts(bounds({n: Interval(1, 9)}).assuming(i < minimum(n // 2 + 1, n)))
    assert scope.below(i, minimum(n, const(5)))
    assert not scope.below(i, minimum(n, const(4)))
    assert scope.below(i, maximum(n - 1, n))
    assert not scope.below(i, maximum(n - 1, const(4)))


def test_an_extent_that_is_simpler_here_is_that_of_a_loop_outside() -> None:
    """Inside `for i in range(max(n, 3)): if n >= 4`, max(n, 3) is n, but the bound of i is max(n, 3)."""
    n, i = Var("n", int64), Var("i", int64)
    scope = Facts(bounds({n: Interval(1, 9)}).assuming(i < maximum(n, const(3))).assuming(n >= 4))
    assert scope.below(i, maximum(n, const(3)))
    assert not scope.below(i, maximum(n - 1, const(3)))
