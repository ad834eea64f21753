"""Trust is learned from predictions for workloads that were left out, and never from only one of them."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.search.score.boosted.tree_trust import PARTS, Rows, Trust, learned
from autotensor.search.score.cost_model import PRIOR_SPREAD

GROUPS = np.repeat([f"w{n}" for n in range(10)], 20)
Y = np.random.default_rng(0).standard_normal(200)
ONES = np.ones(200)


def of(said: np.ndarray, y: np.ndarray = Y, groups: np.ndarray = GROUPS) -> Trust:
    return learned(y, np.ones(len(y)), groups, lambda known, asked: said[asked])


def test_who_is_right_is_believed_and_who_exaggerates_so_much_less() -> None:
    assert of(Y).weight == pytest.approx(1.0)
    assert of(Y).spread == pytest.approx(0.0, abs=1e-6)
    assert of(4.0 * Y).weight == pytest.approx(0.25)
    assert of(0.5 * Y).weight == 1.0  # never more than 1


def test_who_is_wrong_is_not_believed() -> None:
    assert of(-Y).weight == 0.0
    assert of(0.0 * Y).weight == 0.0
    assert of(-Y).spread == pytest.approx(1.0, abs=0.1)  # the prior's own error


def test_levels_of_groups_are_nothing_to_be_right_about() -> None:
    levels = np.repeat(np.arange(10.0), 20)
    assert of(Y + levels, Y - levels).weight == pytest.approx(1.0)
    assert of(levels - Y, levels + Y).weight == 0.0


def test_no_single_group_decides() -> None:
    only = np.where(GROUPS == "w3", Y, 0.0)
    assert of(only).weight == 0.0
    assert of(np.where(GROUPS == "w4", Y, only)).weight == pytest.approx(1.0)


def test_every_group_is_spoken_of_by_a_fit_without_it() -> None:
    fits: list[tuple[Rows, Rows]] = []

    def say(known: Rows, asked: Rows) -> np.ndarray:
        fits.append((known, asked))
        return Y[asked]

    learned(Y, ONES, GROUPS, say)
    assert len(fits) == PARTS
    assert np.sum([asked for _, asked in fits], axis=0).tolist() == [1] * len(Y)
    for known, asked in fits:
        assert not set(GROUPS[known]) & set(GROUPS[asked])


@pytest.mark.parametrize("groups", [np.full(200, "w"), np.arange(200).astype(str)], ids=["one", "rows alone"])
def test_where_there_is_nothing_to_learn_it_from_there_is_none(groups: np.ndarray) -> None:
    assert of(Y, groups=groups) == Trust(0.0, PRIOR_SPREAD)
