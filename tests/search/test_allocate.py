"""Which task is next, and why one stops."""

from __future__ import annotations

from dataclasses import replace

from fakes import task
from zoo import conv, gemm

from autotensor.search.allocate import DEAD, Standing, choose, stop_reason

INF = float("inf")
HEAVY, LIGHT = task(gemm(64, 64, 64), weight=4.0), task(conv(9, 5, 40, 3))
NEW = Standing(HEAVY, INF, 1e-6, 0, (), False)
LEAST = 0.01


def standing(best_s: float = 1e-3, *gains: float, light: bool = False) -> Standing:
    return Standing(LIGHT if light else HEAVY, best_s, 1e-6, len(gains), gains, False)


def test_new_tasks_come_first_in_their_order() -> None:
    started = standing(1.0, 1.0, 0.5)
    second = replace(NEW, task=LIGHT)
    assert choose([started, NEW, second], LEAST) is NEW
    assert choose([started, second], LEAST) is second


def test_where_most_time_may_be_saved_comes_next() -> None:
    heavy, light = standing(1e-3, 1.0, 0.1), standing(1e-3, 1.0, 0.1, light=True)
    assert choose([light, heavy], LEAST) is heavy
    slow = standing(1e-1, 1.0, 0.1, light=True)
    assert choose([slow, heavy], LEAST) is slow


def test_hope_fades_while_nothing_is_gained() -> None:
    shares = [standing(1e-3, 1.0, *[0.0] * n).share for n in range(6)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > LEAST > shares[5]
    assert standing(1e-3, 1.0, 0.0, 0.0, 0.2).share == 0.2


def test_no_more_is_hoped_for_than_the_roofline_leaves() -> None:
    near = Standing(HEAVY, 1.05e-6, 1e-6, 1, (1.0,), False)
    assert near.share < 0.05


def test_reasons_to_stop() -> None:
    assert stop_reason(standing(1e-3, 1.0, 0.1), LEAST) is None
    assert stop_reason(replace(NEW, exhausted=True), LEAST) == "all candidates were measured"
    assert (
        stop_reason(Standing(HEAVY, 1.02e-6, 1e-6, 1, (1.0,), False), LEAST)
        == "within 3 % of the machine's limit"
    )
    assert stop_reason(standing(1e-3, 1.0, *[0.0] * 6), LEAST) == "recent trials brought nothing"
    assert stop_reason(standing(1e-3, 1.0, 0.0), LEAST) is None  # too early to give up


def test_without_patience_only_the_end_of_the_space_stops_it() -> None:
    assert stop_reason(standing(1e-3, 1.0, *[0.0] * 60), -1.0) is None
    assert stop_reason(Standing(HEAVY, 1.02e-6, 1e-6, 1, (1.0,), False), -1.0) is None
    assert stop_reason(replace(NEW, exhausted=True), -1.0) == "all candidates were measured"


def test_a_task_of_which_nothing_works_dies_and_takes_no_budget() -> None:
    dead = Standing(HEAVY, INF, 1e-6, DEAD, (0.0,) * DEAD, False)
    assert stop_reason(dead, LEAST) == stop_reason(dead, -1.0) == "nothing that was measured works"
    assert choose([dead], LEAST) is None
    tried = Standing(HEAVY, INF, 1e-6, 1, (0.0,), False)
    assert choose([tried, standing(1e-3, 1.0, 0.1)], LEAST) is tried


def test_all_finished() -> None:
    assert choose([], LEAST) is None
    assert choose([replace(NEW, exhausted=True)], LEAST) is None
