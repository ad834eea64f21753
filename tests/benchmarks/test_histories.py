"""Histories as a log tells them to a tuner of today, and schedulers that are replayed on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from histories import History, retold
from scheduler import POLICIES, arm_of, compare
from search.fakes import TARGET, task
from search.zoo import gemm

from autotensor.search.model import PriorModel
from autotensor.search.rates import Rates
from schedules.generate import generate
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
