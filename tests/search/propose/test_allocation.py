"""The next task, and the reasons for which a task stops."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import task
from zoo import conv, gemm

from autotensor.search.propose.allocation import (
    DEAD,
    RUNS,
    SURE,
    TOO_LITTLE,
    TRIAL_S,
    Standing,
    choose,
    seconds_of,
    stop_reason,
)
from autotensor.search.propose.stopping import Outlook

INF = float("inf")
HEAVY, LIGHT = task(gemm(64, 64, 64), weight=4.0), task(conv(9, 5, 40, 3))
NEW = Standing(HEAVY, INF, 1e-6, 0, (), False)
LEAST = 0.01  # share of HEAVY's time, if one run of it takes a millisecond
LEAST_S = LEAST * 4e-3


def standing(best_s: float = 1e-3, *gains: float, light: bool = False) -> Standing:
    return Standing(LIGHT if light else HEAVY, best_s, 1e-6, len(gains), gains, False)


def test_new_tasks_come_first_in_their_order() -> None:
    started = standing(1.0, 1.0, 0.5)
    second = replace(NEW, task=LIGHT)
    assert choose([started, NEW, second], LEAST_S) is NEW
    assert choose([started, second], LEAST_S) is second


def test_where_most_time_may_be_saved_comes_next() -> None:
    heavy, light = standing(1e-3, 1.0, 0.1), standing(1e-3, 1.0, 0.1, light=True)
    assert choose([light, heavy], LEAST_S) is heavy
    slow = standing(1e-1, 1.0, 0.1, light=True)
    assert choose([slow, heavy], LEAST_S) is slow


def test_hope_fades_while_nothing_is_gained() -> None:
    shares = [standing(1e-3, 1.0, *[0.0] * n).share for n in range(6)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > LEAST > shares[5]
    assert standing(1e-3, 1.0, 0.0, 0.0, 0.2).share == 0.2


def test_no_more_is_hoped_for_than_the_roofline_leaves() -> None:
    near = Standing(HEAVY, 1.05e-6, 1e-6, 1, (1.0,), False)
    assert near.share < 0.05


def test_reasons_to_stop() -> None:
    assert stop_reason(standing(1e-3, 1.0, 0.1), LEAST_S) is None
    assert stop_reason(replace(NEW, exhausted=True), LEAST_S) == "all candidates were measured"
    assert (
        stop_reason(Standing(HEAVY, 1.02e-6, 1e-6, 1, (1.0,), False), LEAST_S)
        == "within 3 % of the machine's limit"
    )
    assert stop_reason(standing(1e-3, 1.0, *[0.0] * 6), LEAST_S) == TOO_LITTLE
    assert stop_reason(standing(1e-3, 1.0, 0.0), LEAST_S) is None  # too early to give up


def test_without_patience_only_the_end_of_the_space_stops_it() -> None:
    assert stop_reason(standing(1e-3, 1.0, *[0.0] * 60), -1.0) is None
    assert stop_reason(Standing(HEAVY, 1.02e-6, 1e-6, 1, (1.0,), False), -1.0) is None
    assert stop_reason(replace(NEW, exhausted=True), -1.0) == "all candidates were measured"


def test_a_task_of_which_nothing_works_dies_and_takes_no_budget() -> None:
    dead = Standing(HEAVY, INF, 1e-6, DEAD, (0.0,) * DEAD, False)
    assert stop_reason(dead, LEAST_S) == stop_reason(dead, -1.0) == "nothing that was measured works"
    assert choose([dead], LEAST_S) is None
    tried = Standing(HEAVY, INF, 1e-6, 1, (0.0,), False)
    assert choose([tried, standing(1e-3, 1.0, 0.1)], LEAST_S) is tried


def test_all_finished() -> None:
    assert choose([], LEAST_S) is None
    assert choose([replace(NEW, exhausted=True)], LEAST_S) is None


def test_little_of_the_whole_is_little_however_much_of_the_task() -> None:
    light = standing(1e-5, 1.0, 0.0, 0.0, light=True)
    assert light.share > 5 * LEAST
    assert stop_reason(light, LEAST_S) == TOO_LITTLE
    assert stop_reason(standing(1e-3, 1.0, 0.0, 0.0), LEAST_S) is None


def test_the_gain_is_per_second_of_tuning() -> None:
    cheap, dear = standing(1e-3, 1.0, 0.1), replace(standing(1e-3, 1.0, 0.2), batch_s=4.0)
    assert dear.gain_s > cheap.gain_s
    assert choose([dear, cheap], LEAST_S) is cheap


def test_the_model_has_half_a_say_in_what_is_expected() -> None:
    known = standing(1e-3, 1.0, 0.0, 0.0)
    hopeful, hopeless = (replace(known, outlook=Outlook(1.0, gain)) for gain in (0.3, 0.0))
    assert hopeless.share < known.share < hopeful.share
    assert hopeless.share == known.share / 2
    assert choose([known, hopeful], LEAST_S) is hopeful


def test_a_task_in_which_little_can_be_left_is_finished() -> None:
    quiet = replace(standing(1e-3, 1.0, 0.0, 0.0, 0.0, 0.0), outlook=Outlook(0.01, 0.2))
    assert stop_reason(quiet, LEAST_S) == SURE
    assert stop_reason(quiet, -1.0) is None  # negative limits stop it only at the end of its space
    assert stop_reason(replace(quiet, outlook=Outlook(0.5, 0.2)), LEAST_S) is None
    assert stop_reason(replace(quiet, last_gains=(1.0, 0.0, 0.0, 0.0, 0.1)), LEAST_S) is None


def test_a_batch_takes_what_its_candidates_take() -> None:
    assert seconds_of([0.5, None], [1e-3, None]) == pytest.approx(2 * TRIAL_S + 0.5 + RUNS * 1e-3)
    assert seconds_of([], []) == 0.0
