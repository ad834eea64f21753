"""How many times as fast, and how sure."""

from __future__ import annotations

import random
from math import inf, log

import pytest
from contests.ratios import T95, Ratio, geometric_mean, ratio


def test_equal_ratios_leave_no_doubt():
    r = ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (r.value, r.lower, r.upper) == pytest.approx((2.0, 2.0, 2.0))
    assert r.verdict == "won"


def test_one_process_proves_nothing():
    assert ratio([3.0], [1.0]) == Ratio(pytest.approx(3.0), 0.0, inf)
    assert ratio([3.0], [1.0]).verdict == "even"


def test_bounds_are_students():
    r = ratio([1.0, 1.21], [1.0, 1.0])  # logs 0 and 2 a: mean a, deviation a √2, error a
    a = log(1.21) / 2
    assert log(r.lower) == pytest.approx(a - T95[0] * a)
    assert log(r.upper) == pytest.approx(a + T95[0] * a)
    assert r.verdict == "even"


def test_what_ours_loses_is_lost():
    assert ratio([1.0, 1.01, 0.99], [2.0, 2.0, 2.0]).verdict == "lost"


def test_the_bound_holds_nineteen_times_in_twenty():
    rng = random.Random(0)
    below = 0
    for _ in range(2000):
        noise = [rng.gauss(0.0, 0.1) for _ in range(5)]
        below += ratio([1.5 * 2.718281828**e for e in noise], [1.0] * 5).lower <= 1.5
    assert 0.93 <= below / 2000 <= 0.97


def test_geometric_mean():
    assert geometric_mean([0.5, 2.0, 1.0]) == pytest.approx(1.0)
