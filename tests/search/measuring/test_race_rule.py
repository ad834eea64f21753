"""The candidates that need another sample."""

from __future__ import annotations

import random

from autotensor.search.measuring.race_rule import racing


def test_everybody_gets_three() -> None:
    assert racing({0: [], 1: []}, wanted=5) == {0, 1}
    assert racing({0: [1.0, 1.0], 1: [9.0, 9.0]}, wanted=5) == {0, 1}
    assert racing({0: [1.0] * 5, 1: [9.0, 9.0]}, wanted=5) == {1}


def test_the_slower_stop_and_the_others_go_on() -> None:
    drift = [1.0, 1.5, 2.0]  # it affects all samples of a round equally
    samples = {n: [ratio * d for d in drift] for n, ratio in enumerate((1.0, 1.005, 1.03, 2.9))}
    assert racing(samples, wanted=5) == racing(samples, wanted=5, sure=True) == {0, 1}


def test_at_the_end_of_a_run_who_is_likely_slower_goes_on_until_that_is_sure() -> None:
    samples = {0: [1.0, 1.1, 0.9], 1: [1.1, 1.15, 1.15]}
    assert racing(samples, wanted=5) == {0}
    assert racing(samples, wanted=5, sure=True) == {0, 1}
    assert racing({n: 3 * s for n, s in samples.items()}, wanted=15, sure=True) == {0}


def test_a_little_slower_is_as_good_as_the_leader() -> None:
    samples = {0: [1.0, 1.1, 0.9], 1: [1.015, 1.12, 0.9]}
    assert racing(samples, wanted=5) == {0, 1}


def test_the_leader_gets_all_its_samples() -> None:
    assert racing({0: [1.0] * 3, 1: [1.4] * 3, 2: [5.0] * 3}, wanted=5) == {0}
    assert racing({0: [1.0] * 3}, wanted=5) == {0}
    assert racing({0: [1.0] * 5, 1: [1.4] * 3}, wanted=5) == set()


def test_enough_is_enough() -> None:
    assert racing({0: [1.0] * 5, 1: [1.0] * 5}, wanted=5) == set()
    assert racing({0: [1.0] * 4, 1: [1.0] * 4}, wanted=5) == {0, 1}


def test_far_behind_the_incumbent_it_is_over_for_all() -> None:
    samples = {0: [1.2] * 3, 1: [1.21] * 3}
    assert racing(samples, wanted=5) == {0, 1}
    assert racing(samples, wanted=5, incumbent_s=1.0) == set()
    assert racing(samples, wanted=5, incumbent_s=1.15) == {0, 1}


def test_among_equals_nobody_is_dropped_however_often_one_looks() -> None:
    rng = random.Random(0)
    dropped = 0
    for _ in range(200):
        samples: dict[int, list[float]] = {0: [], 1: []}
        for _ in range(15):
            for n in racing(samples, wanted=15, sure=True):
                samples[n].append(rng.gauss(1.0, 0.01))
        dropped += len(samples[0]) != len(samples[1])
    assert dropped <= 4
