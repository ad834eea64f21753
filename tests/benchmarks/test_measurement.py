"""Agreement with the model, replays of races, and the page: on made-up samples."""

from __future__ import annotations

from functools import partial

import measurement
import pytest
from jobs.in_graph import Agreement, agreement, by_middle
from replays.race_replay import SEEN, fixed, raced, replay, sample_seconds

from autotensor.base.paired_times import Paired


def sure(ratio: float) -> Paired:
    return Paired(ratio, ratio, ratio)


def test_both_sides_order_alike():
    here = {0: [1.0] * 9, 1: [1.2] * 9, 2: [1.5] * 9}
    there = {0: sure(1.0), 1: sure(1.1), 2: sure(1.6)}
    assert agreement(here, there) == Agreement(concordant=3)
    assert agreement(here, there).tau == 1.0
    assert agreement(here, {0: sure(1.6), 1: sure(1.1), 2: sure(1.0)}).tau == -1.0


def test_what_one_side_cannot_tell_is_its_tie():
    here = {0: [1.0] * 9, 1: [1.2] * 9, 2: [1.2, 1.25, 1.15] * 3}
    there = {0: sure(1.0), 1: Paired(1.1, 0.95, 1.3), 2: sure(1.6)}
    found = agreement(here, there)
    assert found == Agreement(concordant=1, tied_here=1, tied_there=1)
    assert found.tau == pytest.approx(0.5)


def test_medians_order_what_bounds_cannot_tell():
    here = {0: [1.2] * 9, 1: [1.21, 1.25, 1.18] * 3}
    assert agreement(here, {0: sure(1.0), 1: sure(1.6)}) == Agreement(tied_here=1)
    assert agreement(here, {0: sure(1.0), 1: sure(1.6)}, by_middle) == Agreement(concordant=1)
    assert agreement(here, {0: sure(1.6), 1: sure(1.0)}, by_middle) == Agreement(discordant=1)


def test_what_neither_tells_and_what_nobody_timed_does_not_count():
    assert agreement({0: [1.0] * 9, 1: [1.001] * 9}, {0: sure(1.0), 1: sure(1.002)}) == Agreement()
    assert agreement({0: [1.0] * 9, 1: [2.0] * 9}, {0: sure(1.0)}).tau is None


def test_a_race_spends_less_and_chooses_the_same():
    table = [[r * 1e-3] * (SEEN + 10) for r in (1.0, 1.001, 1.3, 2.0)]
    ten = replay(table, fixed, 2e-3)
    five = replay(table, partial(raced, wanted=5), 2e-3)
    assert (ten.chosen, ten.regret, ten.samples) == (0, 0.0, 40)
    assert (five.chosen, five.regret, five.samples) == (0, 0.0, 5 + 5 + 3 + 3)
    assert ten.spent_s == pytest.approx(10 * (2e-3 + 2.002e-3 + 2.6e-3 + 2e-3))
    assert five.spent_s < ten.spent_s / 2
    noisy = [[1e-3] * (SEEN + 10), [r * 1e-3 for r in (1.1, 1.0, 1.2)] + [1.1e-3] * (SEEN + 7)]
    likely, certain = (replay(noisy, partial(raced, wanted=15, sure=sure), 2e-3) for sure in (False, True))
    assert likely.samples == 15 + 3 < certain.samples


def test_regret_is_by_rounds_that_were_not_seen():
    lucky = [1e-3] * SEEN + [1.5e-3] * 10
    assert replay([lucky, [1.2e-3] * (SEEN + 10)], fixed, 2e-3).regret == pytest.approx(0.25)


def test_a_sample_is_as_many_calls_as_last_long_enough():
    assert sample_seconds(1e-3, 2e-3) == pytest.approx(2e-3)
    assert sample_seconds(5e-3, 2e-3) == pytest.approx(5e-3)


def test_the_page_says_what_was_asked_and_what_was_found():
    made = {"when": "2026-11-22 12:00:00", "wall_s": 60.0, "source": "abc", "others": 0.25}
    row = {"model": "m", "task": "t", "candidates": 3, "us": 5.0}
    row["graph"] = {"medians": (19, 1, 0, 0), "bounds": (9, 1, 0, 0)}
    row["hot"] = {"medians": (14, 6, 0, 0), "bounds": (6, 4, 0, 0)}
    row |= {
        w: {"spent_s": s, "regret": 0.0, "samples": 9}
        for w, s in (("fixed", 3.0), ("search", 1.0), ("final", 2.0))
    }
    aa = {"pairs": 60, "samples": 15, "claimed": 0.02, "within_1_percent": 0.97, "median_apart": 0.002}
    data = {
        "machine": {"cpu": "a processor", "cores": 2},
        "threads": 2,
        "sections": {
            "aa": {**aa, "largest_apart": 0.013, "told_from": 0.021, **made},
            "graph": {**measurement._summary([row]), **made},
        },
    }
    text = "\n".join(measurement.page(data))
    assert "| pairs of which a difference is claimed | 2.0% | ≤ 5% |" in text
    assert "| all | 0.90 | 0.80 | 0.40 | 0.20 |" in text
    assert "| race, as in a batch of the search | 1.00 | 3.0 × | 0.00% | 0.0% |" in text
    assert "2026-11-22, in 60 s, source abc; other programs used 0.25 cores meanwhile." in text
    assert "thirty times" not in text  # this section was not requested
