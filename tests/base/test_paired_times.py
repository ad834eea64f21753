"""Times of two things taken in turns: when they are said to differ."""

from __future__ import annotations

import random

import pytest

from autotensor.base.paired_times import Paired, paired


def noisy(rng: random.Random, count: int, scale: float = 1.0) -> list[float]:
    return [scale * rng.gauss(1.0, 0.02) for _ in range(count)]


def test_a_constant_ratio_leaves_no_doubt() -> None:
    theirs = [1.0, 1.3, 0.9, 5.0, 1.1]
    found = paired([0.9 * s for s in theirs], theirs)
    assert found == Paired(0.9, 0.9, 0.9)
    assert found.faster_than(0.95)
    assert not found.faster_than(0.85)


def test_bounds_of_small_numbers_can_be_worked_out() -> None:
    """Seven pairs: only if all lie on one side is it so sure, so the bounds are the outermost ratios."""
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
        mine[rng.randrange(15)] *= 4.0  # somebody took the core away
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
    with pytest.raises(ValueError, match="without a round in common"):
        paired([], [1.0])
