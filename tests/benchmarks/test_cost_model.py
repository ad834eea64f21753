"""Scores of predictions, on pools small enough to check by hand; what is held out, and how pools are
replayed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cost_model import POLICIES, PartOf, held_out, part_in, trials_to
from replays.model_rows import COLUMNS, TaskRows, load_table, save_table
from replays.model_scores import mean_scores, pairs_in_order, recall, regret, scores

from autotensor.search.score.cost_model import Prediction, PriorModel
from autotensor.search.score.features import NAMES

SECONDS = np.asarray([1.0, 2.0, 4.0, 8.0])


def predicted(mean: list[float], spread: float = 0.1) -> Prediction:
    ones = np.ones(len(mean))
    return Prediction(np.asarray(mean), spread * ones, ones)


def rows(network: str, group: str, prior: list[float], seconds: list[float]) -> TaskRows:
    count = len(prior)
    columns = np.asarray(prior), np.asarray(seconds)
    numbers = np.arange(count)
    return TaskRows(network, group, group, np.zeros((count, 3)), *columns, numbers // 8, numbers)


def test_a_perfect_prediction() -> None:
    found = scores(predicted(np.log(SECONDS).tolist()), SECONDS)
    assert (found.spearman, found.pairs, found.regret_1, found.error, found.inside) == (
        1.0,
        1.0,
        0.0,
        0.0,
        1.0,
    )
    assert math.isnan(found.recall)  # of four candidates it says nothing


def test_the_level_of_a_task_is_nobodys_fault() -> None:
    found = scores(predicted((np.log(SECONDS) + 5.0).tolist()), SECONDS)
    assert found.error == pytest.approx(0.0)


def test_regret_is_of_the_best_of_the_first() -> None:
    upside_down = np.asarray([4.0, 3.0, 2.0, 1.0])
    assert [regret(upside_down, SECONDS, k) for k in (1, 2, 3, 4)] == [7.0, 3.0, 1.0, 0.0]


def test_pairs_that_differ_by_noise_are_not_asked() -> None:
    assert pairs_in_order(np.asarray([2.0, 1.0, 3.0]), np.asarray([1.0, 1.001, 2.0])) == 1.0
    assert math.isnan(pairs_in_order(np.ones(2), np.ones(2)))


def test_recall_looks_at_sixteen() -> None:
    seconds = np.arange(1.0, 41.0)
    assert recall(seconds, seconds) == 1.0
    assert recall(-seconds, seconds) == 0.0
    assert recall(np.roll(seconds, 15), seconds) == 0.0
    assert recall(np.roll(seconds, -15), seconds) == 1.0
    assert recall(np.roll(seconds, -16), seconds) == 0.0


def test_intervals_hold_what_they_say() -> None:
    seconds = np.exp(np.random.default_rng(0).normal(0.0, 0.1, 4000))
    assert scores(predicted([0.0] * 4000), seconds).inside == pytest.approx(0.9, abs=0.02)
    assert scores(predicted([0.0] * 4000, spread=0.02), seconds).inside < 0.5


def test_what_cannot_be_said_of_a_task_is_left_out_of_the_mean() -> None:
    small = scores(predicted(np.log(SECONDS).tolist()), SECONDS)
    large = scores(predicted(np.arange(40.0).tolist()), np.arange(1.0, 41.0))
    assert mean_scores([small, large])["recall"] == 1.0


def test_a_network_is_held_out_with_its_workloads_wherever_they_occur() -> None:
    a, b, c = (rows(*names, [1.0], [1.0]) for names in (("n", "x"), ("m", "x"), ("m", "y")))
    (held, rest), (other, others) = held_out([a, b, c], part_in([a, b, c], 0, False))
    assert held == [a]
    assert rest == [c]
    assert other == [b, c]
    assert others == []


def test_programs_are_held_out_in_parts_and_in_classes() -> None:
    tasks = [
        rows(f"run {n}", f"{kind} {n}", [1.0], [1.0]) for n, kind in enumerate(("a", "b", "a", "b", "c"))
    ]

    def groups(part_of: PartOf) -> list[list[str]]:
        return [[t.group for t in held] for held, _ in held_out(tasks, part_of)]

    assert groups(part_in(tasks, 2, False)) == [["a 0", "a 2", "c 4"], ["b 1", "b 3"]]
    assert groups(part_in(tasks, 0, True)) == [["a 0", "a 2"], ["b 1", "b 3"], ["c 4"]]


def test_a_table_holds_all_rows(tmp_path: Path) -> None:
    tasks = [replace(rows("n", "x", [1.0, 2.0], [3.0, math.nan]), features=np.ones((2, len(NAMES))))]
    tasks.append(replace(tasks[0], group="y", rounds=np.asarray([4, 5])))
    save_table(tasks, tmp_path / "t.npz")
    again = load_table(tmp_path / "t.npz")
    assert [(t.network, t.group, t.name) for t in again] == [("n", "x", "x"), ("n", "y", "x")]
    for a, b in zip(again, tasks, strict=True):
        for column in COLUMNS:
            np.testing.assert_array_equal(getattr(a, column), getattr(b, column))


@pytest.mark.parametrize("policy", POLICIES)
def test_replay_counts_trials_until_the_best_of_the_pool(policy: str) -> None:
    prior = [float(n) for n in range(1, 21)]
    seconds = [20.0 - n for n in range(20)]  # the prior is wrong from top to bottom
    seconds[3] = math.nan
    assert trials_to(rows("n", "x", prior, seconds), PriorModel(), POLICIES[policy]) == [20, 20]
    assert trials_to(rows("n", "x", prior, prior), PriorModel(), POLICIES[policy]) == [1, 1]
