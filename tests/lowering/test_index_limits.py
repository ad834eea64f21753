"""What comparisons of sums say of one variable."""

from __future__ import annotations

from ir_tools import I, J, K, text

from autotensor.ir.bounds import Interval, bounds
from autotensor.ir.simplify import simplify
from autotensor.lowering.index_limits import end, weakest

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
