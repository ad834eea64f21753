"""The rule that little is left to gain, and the conditions under which it may be applied."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.search.propose.stopping import (
    QUIET_BATCHES,
    UNLIKELY,
    WORTHWHILE,
    Outlook,
    chance_of_more,
    confident,
    outlook,
    quiet_batches,
)
from autotensor.search.score.cost_model import Prediction


def prediction(seconds: list[float], spread: float = 0.1, valid: float = 1.0) -> Prediction:
    mean = np.log(np.asarray(seconds))
    return Prediction(mean, np.full(len(mean), spread), np.full(len(mean), valid))


ONE = (1.0, *[1.1 + 0.1 * n for n in range(10)])  # measured seconds; the first is the best


def test_what_is_surely_slower_promises_nothing() -> None:
    found = outlook(prediction([2.0, 3.0], 0.01), ONE, 8)
    assert found.gain < 1e-6
    assert outlook(prediction([]), ONE, 8) == Outlook(0.0, 0.0)


def test_what_is_surely_faster_promises_its_gain() -> None:
    assert outlook(prediction([0.8, 3.0], 0.001), ONE, 8).gain == pytest.approx(0.2, abs=0.01)


def test_uncertainty_and_choice_are_worth_something() -> None:
    sure, unsure = (outlook(prediction([1.1] * 4, s), ONE, 8) for s in (0.02, 0.2))
    assert unsure.gain > sure.gain
    assert unsure.chance == sure.chance  # the chance follows from the measured times alone
    few, many = (outlook(prediction([1.1] * 20, 0.1), ONE, n) for n in (1, 8))
    assert few.gain < many.gain


def test_the_chance_is_that_of_an_exponential_tail() -> None:
    """Draws whose logarithms are exponential from a common end. Returns how often the same number of further
    draws beats their best by WORTHWHILE, and how often the rule predicts this."""
    rng = np.random.default_rng(3)
    said, came = [], []
    for _ in range(400):
        first, again = np.exp(-rng.exponential(0.01, (2, 64)))
        said.append(chance_of_more(list(first)))
        came.append(again.min() < (1.0 - WORTHWHILE) * first.min())
    assert np.mean(said) == pytest.approx(np.mean(came), abs=0.04)
    assert 0.03 < np.mean(came) < 0.3


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_the_chance_does_not_depend_on_the_unit_or_the_order(scale: float) -> None:
    told = [1.0 + 0.004 * n for n in range(12)]
    assert chance_of_more([scale * t for t in reversed(told)]) == pytest.approx(chance_of_more(told))


def test_the_chance_of_few_or_equal_times() -> None:
    assert chance_of_more([1e-3]) == 1.0
    assert chance_of_more([1e-3] * 2) == chance_of_more([1e-3] * 20) == 0.0
    assert 0.0 < chance_of_more([1e-3, 2e-3, 3e-3]) < 1.0


def test_confidence_needs_a_crowd_and_batches_that_brought_nothing() -> None:
    sure, quiet = UNLIKELY / 2, [0.0] * QUIET_BATCHES
    assert confident(sure, (1.0, *quiet))
    assert confident(sure, (1.0, 0.3, WORTHWHILE / 2, *quiet[1:]))
    assert not confident(sure, (1.0, *quiet[:-1], WORTHWHILE))
    assert not confident(sure, (1.0, *quiet[:-1]))
    assert not confident(UNLIKELY, (1.0, *quiet))


def test_small_gains_that_add_up_are_something() -> None:
    each = WORTHWHILE / 2
    assert quiet_batches((1.0, 0.3, each)) == 1
    assert quiet_batches((1.0, 0.3, each, 0.0, 1.1 * each)) == 2
    assert not confident(UNLIKELY / 2, (1.0, *[each] * (QUIET_BATCHES + 1)))
