"""The candidates to measure next: expected improvement, and differences between them."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.search.propose.acquisition import diverse, expected_improvement, order
from autotensor.search.score.cost_model import Floats, Prediction

RNG = np.random.default_rng(0)


def predicted(mean: list[float], spread: list[float], valid: list[float] | None = None) -> Prediction:
    works = np.ones(len(mean)) if valid is None else np.asarray(valid)
    return Prediction(np.asarray(mean), np.asarray(spread), works)


def sampled(mean: float, spread: float, best: float) -> Floats:
    return np.maximum(0.0, best - RNG.normal(mean, spread, 400_000))


@pytest.mark.parametrize(("mean", "spread"), [(0.0, 0.1), (0.2, 0.1), (-0.3, 0.05), (0.5, 1.0)])
def test_expected_improvement_is_the_mean_of_what_is_gained(mean: float, spread: float) -> None:
    found = expected_improvement(predicted([mean], [spread]), best_seconds=1.0)
    assert found[0] == pytest.approx(float(sampled(mean, spread, 0.0).mean()), rel=0.05, abs=1e-4)


def test_the_uncertain_one_comes_before_one_as_slow() -> None:
    assert order(predicted([0.1, 0.1], [0.01, 0.3]), 1.0).tolist() == [1, 0]


def test_the_surely_faster_one_comes_before_the_uncertain_one() -> None:
    assert order(predicted([0.0, -0.5], [0.3, 0.01]), 1.0).tolist() == [1, 0]


def test_what_will_not_work_is_pushed_down() -> None:
    p = predicted([-0.5, -0.4, -0.3], [0.1] * 3, [0.05, 1.0, 1.0])
    assert order(p, 1.0).tolist() == [1, 2, 0]


def test_of_those_that_promise_nothing_the_fastest_comes_first() -> None:
    p = predicted([9.0, 7.0, 8.0], [0.01] * 3)
    assert expected_improvement(p, 1.0).tolist() == [0.0, 0.0, 0.0]
    assert order(p, 1.0).tolist() == [1, 2, 0]


def test_before_anything_is_told_equally_sure_candidates_come_in_order_of_their_mean() -> None:
    assert order(predicted([0.3, 0.1, 0.2], [0.1] * 3), float("inf")).tolist() == [1, 2, 0]
    assert order(predicted([], []), float("inf")).tolist() == []


def batch(families: str, count: int, kinds: str = "", owed: str = "", old: str = "") -> list[int]:
    found = diverse(
        range(len(families)),
        new=lambda n: n not in [int(o) for o in old],
        family=lambda n: families[n],
        kind=lambda n: (kinds or families)[n],
        owed=set(owed),
        count=count,
    )
    return list(found)


def test_one_family_gets_a_third_of_a_batch() -> None:
    assert batch("aaaaabbbcd", 6) == [0, 1, 5, 6, 8, 9]
    assert batch("aaab", 2) == [0, 3]


def test_what_is_not_new_takes_no_place_of_its_family() -> None:
    assert batch("aaabc", 6, old="0") == [1, 2, 3, 4]


def test_every_kind_that_is_owed_a_place_gets_one_first() -> None:
    assert batch("abcdefgh", 6, kinds="xxxxxxyz", owed="yz") == [6, 7, 0, 1, 2, 3, 4, 5]
    assert batch("abcdefgh", 6, kinds="xxxxxxyz", owed="q")[0] == 0


def test_kinds_that_are_owed_a_place_take_half_of_a_batch_at_most() -> None:
    assert batch("abcdefgh", 4, kinds="xxxxuvyz", owed="uvyz")[:4] == [4, 5, 0, 1]
