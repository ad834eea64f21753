"""When little is left, and when one may say so."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from autotensor.search.model import Prediction
from autotensor.search.stopping import (
    DOUBT,
    QUIET,
    UNLIKELY,
    WORTHWHILE,
    Outlook,
    chance_left,
    confident,
    outlook,
)


def prediction(seconds: list[float], spread: float = 0.1, valid: float = 1.0) -> Prediction:
    mean = np.log(np.asarray(seconds))
    return Prediction(mean, np.full(len(mean), spread), np.full(len(mean), valid))


def test_what_is_surely_slower_promises_nothing() -> None:
    found = outlook(prediction([2.0, 3.0], 0.01), 1.0, 8)
    assert found.chance < 1e-6
    assert found.gain < 1e-6
    assert outlook(prediction([]), 1.0, 8) == Outlook(0.0, 0.0)


def test_what_is_surely_faster_promises_its_gain() -> None:
    found = outlook(prediction([0.8, 3.0], 0.001), 1.0, 8)
    assert found.chance == pytest.approx(1.0)
    assert found.gain == pytest.approx(0.2, abs=0.01)


def test_the_chance_is_that_of_any_candidate() -> None:
    goal = log(1.0 - WORTHWHILE)
    at_goal = float(np.exp(goal))
    one = outlook(prediction([at_goal], 0.1), 1.0, 8, caution=1.0)
    assert one.chance == pytest.approx(0.5)
    assert outlook(prediction([at_goal] * 3, 0.1), 1.0, 8, caution=1.0).chance == pytest.approx(0.875)
    assert outlook(prediction([at_goal], 0.1, valid=0.5), 1.0, 8, caution=1.0).chance == pytest.approx(0.25)


def test_uncertainty_and_choice_are_worth_something() -> None:
    sure, unsure = (outlook(prediction([1.1] * 4, s), 1.0, 8) for s in (0.02, 0.2))
    assert unsure.gain > sure.gain
    assert unsure.chance > sure.chance
    few, many = (outlook(prediction([1.1] * 20, 0.1), 1.0, n) for n in (1, 8))
    assert few.gain < many.gain
    assert few.chance == many.chance


def test_confidence_needs_both_a_model_that_is_sure_and_batches_that_brought_nothing() -> None:
    sure = UNLIKELY / 2
    assert confident(sure, (1.0, 0.0, 0.0))
    assert confident(sure, (1.0, 0.3, QUIET / 2, 0.0))
    assert not confident(sure, (1.0, 0.0, QUIET))
    assert not confident(sure, (1.0, 0.0))
    assert not confident(None, (1.0, 0.0, 0.0))


def test_batches_that_brought_nothing_are_evidence_against_the_model() -> None:
    """It may be sure that something is left, and be wrong; a batch that brought something speaks for it."""
    after = [chance_left(0.999, (1.0, *[0.0] * n)) for n in range(8)]
    assert after == sorted(after, reverse=True)
    assert after[0] == pytest.approx(1.0 - DOUBT)
    assert [n for n in range(8) if confident(1.0, (1.0, *[0.0] * n))] == [5, 6, 7]
    assert not confident(0.5, (1.0, 0.0, 0.0))
    assert confident(0.5, (1.0, 0.0, 0.0, 0.0))
    assert not confident(0.5, (1.0, 0.0, 0.0, 0.0, 0.0, 0.02))
    assert chance_left(0.0, (1.0,)) == 0.0
