"""The final race of a task: its contestants, the winner, and the sentence about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import TARGET, FakeMeasurer, chance, task
from runs import PRODUCT, RATES, run
from zoo import gemm

from autotensor.resolve import gain, resolve
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, Raced
from autotensor.search.final_race import CHALLENGERS
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.measuring.race_rule import FINAL_SAMPLES
from autotensor.search.score.roofline import lower_bound
from autotensor.te.workload import Workload
from schedules.generate import default_trace
from tuning_db import SessionKind, connect
from tuning_db.records import Status


def flat(trace: Trace) -> float:
    """All candidates are equally fast."""
    return 1e-3


def test_among_equals_the_default_stays() -> None:
    store = connect(":memory:")
    report = run([PRODUCT], 48, store, FakeMeasurer(flat, noise=0.1), patience=False)
    default = default_trace(PRODUCT.dag, TARGET)
    luckiest = min(store.trials(), key=lambda t: t.median_s or 1.0)
    assert luckiest.trace_hash != default.hash  # the smallest median is not the default's
    assert resolve(PRODUCT, TARGET, store).trace == default
    (t,) = report.tasks
    assert t.raced
    assert t.best is not None
    assert t.best.trace == default
    assert t.best_s == t.default_s


def test_a_lucky_median_does_not_win_against_a_faster_rival() -> None:
    """Noise of 40 % in the search, a winner that is 20 % faster than the rest."""
    default = default_trace(PRODUCT.dag, TARGET).hash
    star: list[str] = []

    def cost(trace: Trace) -> float:
        if not star and trace.hash != default:
            star.append(trace.hash)
        return 0.5e-3 if trace.hash in star else 1e-3

    store = connect(":memory:")
    run([PRODUCT], 40, store, FakeMeasurer(cost, noise=0.4), patience=False)
    assert resolve(PRODUCT, TARGET, store).trace.hash == star[0]


def test_a_race_has_the_default_its_challengers_and_more_samples() -> None:
    measurer, store = FakeMeasurer(), connect(":memory:")
    heard: list[Event] = []
    run([PRODUCT], 32, store, measurer, heard.append)
    ((contestants),) = measurer.races
    assert len(contestants) == 1 + CHALLENGERS
    assert default_trace(PRODUCT.dag, TARGET).hash in contestants
    rows_ = store.last_race(PRODUCT.key, TARGET.key(), store.machines()[0].fingerprint)
    assert {r.trace_hash for r in rows_} == set(contestants)
    assert all(len(r.samples) == 15 and r.verified for r in rows_)
    (raced,) = [e for e in heard if isinstance(e, Raced)]
    assert not raced.default_won
    assert raced.seconds == min(r.median_s for r in rows_ if r.median_s)


def test_contestants_of_slow_tasks_get_fewer_samples() -> None:
    measurer = FakeMeasurer(lambda t: 0.05 * (1 + chance(t.hash)))
    run([PRODUCT], 16, measurer=measurer)
    assert [repeat for _, _, repeat in measurer.calls if repeat] == [FINAL_SAMPLES[0]]


def test_a_race_slower_than_the_limit_is_not_said_to_be_near_it() -> None:
    """The printed time is that of the race. A trial near the machine's limit does not change it."""
    limit = lower_bound(task(PRODUCT), RATES, cold=True)

    class Disturbed(FakeMeasurer):
        def measure(
            self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None, **how: Any
        ) -> list[MeasureResult]:
            self.cost = lambda trace: limit * (1.0 if repeat is None else 1.5)
            return super().measure(workload, traces, repeat, **how)

    (t,) = run([PRODUCT], 100, measurer=FakeMeasurer(lambda trace: limit)).tasks
    assert t.reason == "within 3 % of the machine's limit"
    (t,) = run([PRODUCT], 100, measurer=Disturbed()).tasks
    assert t.best_s == pytest.approx(1.5 * limit)
    assert t.reason == "a trial came within 3 % of the machine's limit; the race was slower"


def test_a_limit_that_nobody_measured_stops_nothing() -> None:
    """A card may be faster than the bound from its data sheet, so the search continues below such a bound."""
    limit = lower_bound(task(PRODUCT), RATES, cold=True)
    guessed = replace(RATES, guessed=True)
    (t,) = run([PRODUCT], 100, measurer=FakeMeasurer(lambda trace: limit / 2), rates=guessed).tasks
    assert "limit" not in t.reason
    assert t.trials > 16
    (t,) = run([PRODUCT], 100, measurer=FakeMeasurer(lambda trace: limit / 2)).tasks
    assert (t.reason, t.trials) == ("within 3 % of the machine's limit", 8)


def test_a_task_with_one_candidate_is_not_raced() -> None:
    measurer = FakeMeasurer()
    report = run([gemm(1, 1, 1, epilogue=False)], 1, measurer=measurer)
    assert measurer.races == []
    assert not report.tasks[0].raced


def test_a_default_that_does_not_work_does_not_win() -> None:
    default = default_trace(PRODUCT.dag, TARGET).hash
    measurer = FakeMeasurer()
    original = measurer._one

    def one(trace: Trace, repeat: int) -> MeasureResult:
        return (
            MeasureResult(Status.WRONG_RESULT, error="off")
            if trace.hash == default
            else original(trace, repeat)
        )

    measurer._one = one  # type: ignore[method-assign]
    store = connect(":memory:")
    report = run([PRODUCT], 24, store, measurer)
    found = resolve(PRODUCT, TARGET, store)
    assert found.source == "log"
    assert found.trace.hash != default
    assert report.tasks[0].default_s is None
    assert report.tasks[0].best_s == found.seconds


def test_a_race_is_run_again_when_there_are_new_contestants() -> None:
    store = connect(":memory:")
    run([PRODUCT], 16, store, FakeMeasurer(flat, noise=0.01))
    more = FakeMeasurer(lambda t: 0.5e-3)
    run([PRODUCT], 32, store, more)
    assert len(more.races) == 1
    assert len(store.sessions(SessionKind.RACE)) == 2


def test_a_tie_is_called_one() -> None:
    (t,) = run([PRODUCT], 16, measurer=FakeMeasurer(flat)).tasks
    assert ": 1,000.0 us, as fast as the default, within the noise, 16 trials (" in str(t)


@pytest.mark.parametrize(
    ("default_s", "tuned_s", "text"),
    [
        (2.0, 1.0, "2.00 times as fast as A"),
        (1.0, 1.004, "as fast as A, within the noise"),
        (1.0, 0.996, "as fast as A, within the noise"),
        (1.0, 1.1, "10.0 % slower than A"),
    ],
)
def test_what_is_said_of_two_times(default_s: float, tuned_s: float, text: str) -> None:
    assert gain(default_s, tuned_s, "A") == text
    assert gain(default_s, tuned_s) == text.replace(" as A", "").replace(" than A", "")
