"""Histories of a log, as today's tuner reads them, and replays on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from replays.histories import History, retold
from scheduler import POLICIES, arm_of, bound_of, compare
from search.fakes import TARGET, task
from stopping import RULES, Replayed, Score, holders_of, left_after, score
from zoo import conv, gemm

from autotensor.search.score.cost_model import PriorModel
from autotensor.search.score.roofline import lower_bound
from schedules.generate import generate
from schedules.prior.rates import Rates
from tuning_db.records import Status, TrialRecord, Verification

PRODUCT = task(gemm(96, 192, 64))
RATES = Rates.guess(TARGET)
GONE = "a sketch of rules that are no more"


def row(sketch: str, seconds: float) -> TrialRecord:
    """The default decisions of one of today's sketches, or of one that is not made any more."""
    known = next((s for s in generate(PRODUCT.workload.dag, TARGET) if s.hash == sketch), None)
    return TrialRecord(
        session="s",
        workload=PRODUCT.workload.key,
        target=TARGET.key(),
        machine="m",
        environment="e",
        trace="{}",
        trace_hash=f"{sketch} {seconds}",
        status=Status.OK,
        median_s=seconds,
        verification=Verification(0.0, 1e-5, (0, 1), verdict=True),
        sketch_hash=sketch,
        decisions={} if known is None else {k: list(v) for k, v in known.defaults().items()},
    )


def history(*batches: Sequence[TrialRecord]) -> History:
    return History("s", PRODUCT, tuple(tuple(b) for b in batches))


def known_sketch() -> str:
    return generate(PRODUCT.workload.dag, TARGET)[0].hash


def test_times_of_candidates_that_todays_rules_do_not_make_count() -> None:
    made = history([row(GONE, 2e-4)], [row(known_sketch(), 3e-4), row(GONE, 1e-4)])
    first, second = retold(made, PriorModel(), RATES)
    assert (first.trials, first.best_s, first.gain, first.left) == (1, 2e-4, 1.0, None)
    assert (second.trials, second.best_s, second.gain) == (3, 1e-4, 0.5)
    assert second.told_s == (2e-4, 3e-4, 1e-4)
    assert second.left is not None  # the tuner has a time of its own now


def test_schedulers_replay_histories_that_begin_with_such_candidates() -> None:
    histories = [history([row(GONE, 2e-4)], [row(GONE, s)]) for s in (1e-4, 2e-4)]
    arms = [arm_of(h, list(retold(h, PriorModel(), RATES)), 1e-5) for h in histories]
    found = compare(arms, draws=2)
    assert set(found) == set(POLICIES)
    assert all(math.isfinite(value) for row in found.values() for value in row.values())
    assert set(found["round-robin"].values()) == {1.0}


def test_the_bound_of_a_history_knows_that_winograd_needs_fewer_operations() -> None:
    made = task(conv(56, 64, 64, 3))
    plain = lower_bound(made, RATES)
    assert bound_of(History("s", made, ()), RATES) < 0.5 * plain
    assert bound_of(history(), RATES) == lower_bound(PRODUCT, RATES)  # a product has no other way


def test_the_best_after_each_batch_is_what_is_timed_again() -> None:
    made = history([row(GONE, 2e-4)], [row(GONE, 3e-4)], [row(GONE, 1e-4), row(GONE, 4e-4)])
    assert [r.median_s for r in holders_of(made)] == [2e-4, 2e-4, 1e-4]


def test_a_rule_is_judged_by_what_is_left_and_not_by_what_was_told() -> None:
    made = history([row(GONE, 2e-4)], *([row(GONE, 3e-4)] for _ in range(2)), [row(GONE, 1e-4)])
    told = list(retold(made, PriorModel(), RATES))
    trials = [t.trials for t in told]

    def judged(rule: str, best_s: Sequence[float]) -> Score:
        return score("", RULES[rule], [Replayed(told, left_after(best_s, trials, 6))], budget=6)

    unlucky = judged("2 quiet batches alone", [t.best_s for t in told])
    luck = judged("2 quiet batches alone", [1.0] * 4)
    assert (unlucky.right, unlucky.worst, unlucky.saved) == (0.0, 1.0, 0.5)
    assert (luck.right, luck.worst, luck.saved) == (1.0, 0.0, 0.5)
    assert judged("knows the future", [1.0] * 4).saved == 1.0 - 1 / 6
