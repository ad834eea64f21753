"""Times that were taken alternately, and the conditions under which they count as different."""

from __future__ import annotations

import random
from functools import cache
from math import comb

import pytest

from autotensor.base.paired_times import RISK, Paired, apart, paired


def noisy(rng: random.Random, count: int, scale: float = 1.0) -> list[float]:
    return [scale * rng.gauss(1.0, 0.02) for _ in range(count)]


def test_a_constant_ratio_leaves_no_doubt() -> None:
    theirs = [1.0, 1.3, 0.9, 5.0, 1.1]
    found = paired([0.9 * s for s in theirs], theirs)
    assert found == Paired(0.9, 0.9, 0.9)
    assert found.faster_than(0.95)
    assert not found.faster_than(0.85)


def test_bounds_of_small_numbers_can_be_worked_out() -> None:
    """With seven pairs, only a result with all pairs on one side is that certain, so the bounds are the
    outermost ratios."""
    found = paired([0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97], [1.0] * 7)
    assert (found.middle, found.lower, found.upper) == pytest.approx((0.94, 0.91, 0.97), rel=1e-3)
    six = paired([0.91, 0.92, 0.93, 0.94, 0.95, 0.96], [1.0] * 6)
    assert six.lower < 0.91
    assert six.upper > 0.96


@pytest.mark.parametrize("rounds", [2, 3, 5, 7, 8, 15, 60])
def test_equal_things_are_rarely_told_apart(rounds: int) -> None:
    rng = random.Random(rounds)
    tries = [paired(noisy(rng, rounds), noisy(rng, rounds)) for _ in range(400)]
    assert sum(p.upper < 1.0 for p in tries) <= 12
    assert sum(p.lower > 1.0 for p in tries) <= 12


def test_different_things_are_told_apart_in_spite_of_outliers() -> None:
    rng = random.Random(0)
    found = 0
    for _ in range(200):
        mine, theirs = noisy(rng, 15, 0.95), noisy(rng, 15)
        mine[rng.randrange(15)] *= 4.0  # another program took the core
        found += paired(mine, theirs).faster_than(0.99)
    assert found >= 180


def test_changing_places_turns_the_ratio_over() -> None:
    rng = random.Random(1)
    mine, theirs = noisy(rng, 9), noisy(rng, 9, 1.02)
    one, other = paired(mine, theirs), paired(theirs, mine)
    assert (1 / one.middle, 1 / one.upper, 1 / one.lower) == pytest.approx(
        (other.middle, other.lower, other.upper)
    )


def test_rounds_without_a_partner_do_not_count() -> None:
    assert paired([1.0, 1.0, 1.0, 99.0], [2.0, 2.0, 2.0]) == Paired(0.5, 0.5, 0.5)
    assert paired([1.0], [2.0, 3.0]) == Paired(0.5, 0.0, float("inf"))
    with pytest.raises(ValueError, match="that share no round"):
        paired([], [1.0])


@cache
def orders(inversions: int, mine: int, theirs: int) -> int:
    """The number of orders of `mine` and `theirs` times that have exactly this number of inverted pairs."""
    if inversions < 0 or min(mine, theirs) < 0:
        return 0
    if mine == 0 or theirs == 0:
        return int(inversions == 0)
    return orders(inversions - theirs, mine - 1, theirs) + orders(inversions, mine, theirs - 1)


@pytest.mark.parametrize("mine", [4, 5, 7, 10, 15])
@pytest.mark.parametrize("theirs", [4, 5, 8, 15])
def test_bounds_apart_are_as_sure_as_they_say(mine: int, theirs: int) -> None:
    """The rank of the lower bound among all ratios equals that of the rank-sum test, which is counted
    here."""
    distinct = [1.0 + 1e-2 * n for n in range(mine)], [1.0 + 1e-5 * n for n in range(theirs)]
    ratios = sorted(m / t for m in distinct[0] for t in distinct[1])
    found = apart(*distinct)
    if found.lower == 0.0:
        assert found.upper == float("inf")
        assert orders(0, mine, theirs) / comb(mine + theirs, mine) > RISK
        return
    rank = ratios.index(found.lower)
    assert found.upper == ratios[-1 - rank]
    risk = sum(orders(n, mine, theirs) for n in range(rank + 1)) / comb(mine + theirs, mine)
    assert RISK / 4 < risk <= RISK


def test_times_apart_need_no_common_rounds() -> None:
    rng = random.Random(3)
    tries = [(noisy(rng, 15, 1.05), noisy(rng, 12)) for _ in range(100)]
    assert sum(apart(*times).lower > 1.0 for times in tries) >= 95
    same = [apart(noisy(rng, 15), noisy(rng, 12)) for _ in range(400)]
    assert sum(a.lower > 1.0 for a in same) <= 12
    with pytest.raises(ValueError, match="without times"):
        apart([], [1.0])
