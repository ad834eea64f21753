"""The history of a search: curves, and the quality of predictions."""

from __future__ import annotations

import pytest

from autotensor.insight.search_history import History, Point, fall, rank_correlation, spearman


def task(name: str, weight: float, points: list[Point], default_s: float | None = None) -> History:
    return History(name, weight, tuple(points), default_s, 1e-6)


def test_a_models_time_falls_with_its_tasks() -> None:
    a = task("a", 2.0, [Point(1, 10.0, None, "default"), Point(3, 8.0, 7.0, "drafted")], 10.0)
    b = task(
        "b", 1.0, [Point(2, 5.0, None, "default"), Point(4, None, 1.0, "bred"), Point(5, 4.0, 1.0, "bred")]
    )
    found = fall([a, b])
    assert found is not None
    assert found.start_s == 25.0  # b has no default among its trials: its first time
    assert found.trials == (3, 5)
    assert found.seconds == (21.0, 20.0)
    assert found.made_by == ("drafted", "bred")
    assert found.count == 5
    assert found.bound_s == pytest.approx(3e-6)


def test_a_model_of_which_a_task_has_no_time_has_no_curve() -> None:
    assert fall([task("a", 1.0, [Point(1, None, None, "default")])]) is None
    assert fall([]) is None


def test_rank_correlation_needs_predictions() -> None:
    good = [Point(n, 1.0 + n, 2.0 * n, "drafted") for n in range(5)]
    assert rank_correlation(task("a", 1.0, good)) == 1.0
    assert rank_correlation(task("a", 1.0, good[:4])) is None
    assert rank_correlation(task("a", 1.0, [*good[:4], Point(9, None, 3.0, "bred")])) is None
    assert rank_correlation(task("a", 1.0, [*good[:4], Point(9, 3.0, None, "random")])) is None


def test_ties_share_their_ranks() -> None:
    assert spearman([1.0, 1.0, 2.0], [1.0, 1.0, 5.0]) == 1.0
    assert spearman([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert spearman([1.0, 2.0, 2.0, 3.0], [1.0, 3.0, 2.0, 4.0]) == pytest.approx(0.948683, abs=1e-6)
