"""Whole runs with a measurer of made-up times and a log in memory."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from fakes import TARGET, FakeMeasurer, task
from runs import CONVOLUTION, PRODUCT, SMALL_PRODUCT, run
from zoo import gemm, rows

from autotensor.base.errors import InputError, MeasureError
from autotensor.resolve import resolve
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, Improved, Raced, RoundDone, TaskDone
from autotensor.search.journal import decisions_of
from autotensor.search.measuring.measure_request import MeasureResult, OutOfTime
from autotensor.search.options import TuneOptions
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.task import merge
from autotensor.te.workload import Workload
from schedules.generate import default_trace
from tuning_db import SessionKind, connect
from tuning_db.records import Status


def test_the_budget_is_met_exactly() -> None:
    store, measurer = connect(":memory:"), FakeMeasurer()
    report = run([PRODUCT, CONVOLUTION], 53, store, measurer, patience=False)
    assert report.trials == 53 == len(measurer.measured)
    assert report.reason == "all trials are spent"
    assert sum(t.trials for t in report.tasks) == 53
    (session,) = store.sessions(SessionKind.SEARCH)
    assert session.stop_reason == "all trials are spent"
    assert store.count(session=session.id) == 53
    assert store.open_intents() == ()


def test_every_task_gets_its_default_even_from_a_small_budget() -> None:
    workloads = [PRODUCT, CONVOLUTION, SMALL_PRODUCT, rows("softmax", 7, 100)]
    report = run(workloads, 8)
    assert all(t.default_s is not None for t in report.tasks)
    assert report.trials <= 8


def test_the_best_is_found_and_reported() -> None:
    report = run([PRODUCT], 60)
    (t,) = report.tasks
    assert t.best_s is not None
    assert t.default_s is not None
    assert t.best_s <= t.default_s
    assert t.best is not None
    assert t.raced


def test_events_tell_the_story() -> None:
    heard: list[Event] = []
    report = run([PRODUCT, SMALL_PRODUCT], 64, listener=heard.append)
    done = [e for e in heard if isinstance(e, RoundDone)]
    assert [e.trials for e in done] == sorted(e.trials for e in done)
    assert done[-1].trials == report.trials
    assert all(len(e.candidates) == len(e.seconds) == len(e.statuses) for e in done)
    assert sum(isinstance(e, Raced) for e in heard) == 2
    best = [e.seconds for e in heard if isinstance(e, Improved) and e.task.workload is PRODUCT]
    assert best == sorted(best, reverse=True)
    assert {e.task.label for e in heard if isinstance(e, TaskDone)} <= {t.task.label for t in report.tasks}


@pytest.mark.parametrize(("trials", "few"), [(3, True), (7, True), (8, False)])
def test_a_budget_of_hardly_more_than_the_defaults_gives_advice(
    trials: int, few: bool, caplog: pytest.LogCaptureFixture
) -> None:
    run([PRODUCT, SMALL_PRODUCT], trials)
    run([PRODUCT], 1)  # a single task has all trials
    lines = caplog.messages
    assert [line.partition(" are few")[0] for line in lines] == [f"{trials} trials for 2 tasks"] * few
    assert all("16 trials are a batch for each" in line for line in lines)


def test_the_trials_are_not_blamed_for_a_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run([PRODUCT, SMALL_PRODUCT], 7, deadline_s=1000.0)
    assert len(caplog.messages) == 1  # the trials were spent in time
    caplog.clear()

    class Late(FakeMeasurer):
        def measure(
            self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None, **how: Any
        ) -> list[MeasureResult]:
            raise OutOfTime("the deadline came before the reference had answered")

    report = run([PRODUCT, SMALL_PRODUCT], 7, measurer=Late(), deadline_s=1000.0)
    assert (report.reason, caplog.messages) == ("the deadline is reached", [])


def test_stopping() -> None:
    asked = itertools.count()
    measurer = FakeMeasurer()
    report = run([PRODUCT], 500, measurer=measurer, stopped=lambda: next(asked) >= 3, patience=False)
    assert report.reason == "it was stopped"
    assert report.trials == 24
    assert {t.reason for t in report.tasks} == {"it was stopped"}  # not the deadline, because there is none
    assert measurer.races == []  # after a stop, no race delays the end


def test_nothing_is_raced_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("autotensor.search.loop.time.monotonic", lambda: now[0])

    class Slow(FakeMeasurer):
        def measure(
            self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None, **how: Any
        ) -> list[MeasureResult]:
            now[0] += 7.4
            return super().measure(workload, traces, repeat, **how)

    measurer = Slow()
    report = run([PRODUCT, CONVOLUTION], 500, measurer=measurer, deadline_s=15.0, patience=False)
    assert report.reason == "the deadline is reached"
    assert measurer.races == []
    assert now[0] <= 15.0
    assert all(t.best_s is not None for t in report.tasks)


def test_a_deadline_that_comes_before_the_reference_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends as at any deadline. Candidates that were not measured are not in the log, and the run can
    be continued."""
    now = [0.0]
    monkeypatch.setattr("autotensor.search.loop.time.monotonic", lambda: now[0])

    class Slow(FakeMeasurer):
        def measure(
            self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None, **how: Any
        ) -> list[MeasureResult]:
            if workload.key == CONVOLUTION.key:
                now[0] = 11.0
                raise OutOfTime("the deadline came before the reference had answered")
            return super().measure(workload, traces, repeat, **how)

    store = connect(":memory:")
    report = run([PRODUCT, CONVOLUTION], 500, store, Slow(), deadline_s=10.0, patience=False)
    assert report.reason == "the deadline is reached"
    assert {t.task.workload.key: t.trials > 0 for t in report.tasks} == {
        PRODUCT.key: True,
        CONVOLUTION.key: False,
    }
    assert store.open_intents() == ()


def test_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 0.1)
    monkeypatch.setattr("autotensor.search.loop.time.monotonic", lambda: float(next(clock)))
    measurer = FakeMeasurer()
    report = run([PRODUCT], 500, measurer=measurer, deadline_s=10.0, patience=False)
    assert report.reason == "the deadline is reached"
    assert 8 <= report.trials < 500
    assert len(measurer.races) == 1


@pytest.mark.parametrize(("given_s", "trials"), [(5.0, 8), (50.0, 16)])
def test_what_is_in_flight_takes_of_the_time_that_is_left(
    given_s: float, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotensor.search.loop.time.monotonic", lambda: 0.0)
    measurer = FakeMeasurer()
    measurer.in_flight = 2
    asked = iter([False])
    run(
        [PRODUCT, CONVOLUTION],
        500,
        measurer=measurer,
        stopped=lambda: next(asked, True),
        deadline_s=given_s,
        patience=False,
    )
    assert len(measurer.measured) == trials


def test_failures_are_counted_and_kept() -> None:
    store = connect(":memory:")
    heard: list[Event] = []
    report = run([PRODUCT], 48, store, FakeMeasurer(failing=0.3), heard.append, patience=False)
    (t,) = report.tasks
    failed = store.trials(status=Status.RUN_TIMEOUT)
    assert 5 < t.failures < 25
    assert t.failures == len(failed)
    assert all(f.error == "ran 10 s" and f.median_s is None for f in failed)
    assert [e for e in heard if isinstance(e, RoundDone)][-1].failures == t.failures


def test_a_task_of_which_nothing_works_stops_and_the_others_go_on() -> None:
    broken = FakeMeasurer(lambda trace: 1e-4)
    original = broken._one

    def one(trace: Trace, repeat: int) -> MeasureResult:
        if broken.calls[-1][0] == PRODUCT.key:
            return MeasureResult(Status.CRASHED, error="signal 11")
        return original(trace, repeat)

    broken._one = one  # type: ignore[method-assign]
    report = run([PRODUCT, SMALL_PRODUCT], 80, measurer=broken, patience=False)
    dead = next(t for t in report.tasks if t.task.workload is PRODUCT)
    assert dead.reason == "nothing that was measured works"
    assert dead.best_s is None
    assert dead.trials == 24
    assert report.trials == 80


def test_a_task_without_reference_is_left_out_with_its_reason() -> None:
    measurer, store = FakeMeasurer(), connect(":memory:")
    measurer.impossible = {PRODUCT.key}
    report = run([PRODUCT, SMALL_PRODUCT], 40, store, measurer)
    left_out = next(t for t in report.tasks if t.task.workload is PRODUCT)
    assert "cannot be built: too odd" in left_out.reason
    assert left_out.trials == 0
    assert report.trials == 40
    assert store.open_intents() == ()
    measurer.impossible = {PRODUCT.key, SMALL_PRODUCT.key}
    with pytest.raises(MeasureError, match="cannot be built"):
        run([PRODUCT, SMALL_PRODUCT], 40, measurer=measurer)


def test_the_model_learns_from_other_workloads_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    store = connect(":memory:")
    run([SMALL_PRODUCT], 40, store)
    taught: Counter[str] = Counter()
    original = XGBModel.learn

    def learn(self: XGBModel, features: Any, prior: Any, seconds: Any, group: str) -> None:
        taught[group] += len(seconds)
        original(self, features, prior, seconds, group)

    monkeypatch.setattr(XGBModel, "learn", learn)
    run([PRODUCT], 16, store)
    assert taught[SMALL_PRODUCT.key] >= 40
    assert taught[PRODUCT.key] == 16
    taught.clear()
    run([PRODUCT], 16, store, warm_start=False, seed=5)
    assert set(taught) == {PRODUCT.key}


def test_equal_workloads_are_one_task_with_their_weights_added() -> None:
    merged = merge([task(SMALL_PRODUCT, 2.0), task(PRODUCT, 1.0), task(gemm(24, 64, 40), 3.0)])
    assert [(t.workload.key, t.weight) for t in merged] == [(PRODUCT.key, 1.0), (SMALL_PRODUCT.key, 5.0)]
    with pytest.raises(InputError, match="nothing to tune"):
        merge([])


def test_trials_are_in_the_log_before_the_search_learns_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotensor.search.propose.tuner import Tuner

    store = connect(":memory:")
    original = Tuner.tell

    def tell(self: Tuner, candidates: Any, seconds: Any) -> None:
        stored = {t.trace_hash for t in store.trials()}
        assert all(c.trace.hash in stored for c in candidates)
        original(self, candidates, seconds)

    monkeypatch.setattr(Tuner, "tell", tell)
    assert run([PRODUCT], 24, store).trials == 24


def test_a_record_is_the_candidate_and_its_result() -> None:
    store = connect(":memory:")
    run([PRODUCT], 16, store)
    first, *others = store.trials(session=store.sessions()[0].id)
    assert first.made_by == "default"
    assert first.trace == default_trace(PRODUCT.dag, TARGET).to_json()
    assert {t.round for t in (first, *others)} == {0, 1}
    for t in others:
        assert Trace.from_json(t.trace).hash == t.trace_hash
        assert t.verified
        assert len(t.samples) == 3
        assert t.samples[0].reference_s == 1e-3
        assert t.predicted is not None or t.made_by in ("random", "log", "transfer")
        assert decisions_of(t).keys() == first.decisions.keys()


def test_bad_options() -> None:
    for options, text in (
        ({"trials": 0}, "trials is 0; it must be a whole number, at least 1"),
        ({"trials": "64"}, "trials is '64'; it must be a whole number"),
        ({"model": "magic"}, "cost model 'magic' is unknown"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 2.5}, "batch is 2.5"),
        ({"seed": "a"}, "seed is 'a'"),
        ({"seed": -1}, "seed is -1"),
        ({"deadline_s": -1.0}, "deadline_s is -1.0"),
        ({"deadline_s": "3m"}, "deadline_s is '3m'; it must be a positive number of seconds"),
        ({"until_gain_below": "1%"}, "until_gain_below is '1%'"),
    ):
        with pytest.raises(InputError, match=text):
            TuneOptions(**options)  # type: ignore[arg-type]


def test_a_report_prints_as_a_few_lines() -> None:
    broken = FakeMeasurer(failing=1.0)
    first, second, about = str(run([PRODUCT, CONVOLUTION], 40, patience=False)).splitlines()
    names = {PRODUCT.name, CONVOLUTION.name}
    assert {line.partition(" [")[0] for line in (first, second)} == names
    for line in (first, second):
        assert re.fullmatch(
            r".+: [\d,.]+ us, [\d.]+ times as fast as the default, \d+ trials \(.+\)", line
        ), line
    assert re.fullmatch(r"40 trials \(0 from the log\) in \d+ s: all trials are spent", about)
    (t,) = run([PRODUCT], 8, measurer=broken).tasks
    failed = "of which 8 failed: `autotensor db failures`"
    assert repr(t).startswith(f"{PRODUCT.name} [{PRODUCT.key[:12]}]: ")
    assert repr(t).endswith(f"]: no time after 8 trials ({t.reason}), {failed}")


def test_what_is_rejected_takes_no_trial_and_stays_in_the_log() -> None:
    store, measurer = connect(":memory:"), FakeMeasurer(spilling=0.5)
    heard: list[Event] = []
    report = run([PRODUCT], 40, store, measurer, listener=heard.append, patience=False)
    (t,) = report.tasks
    rows = store.trials(session=store.sessions()[0].id)
    rejected = [r for r in rows if r.status is Status.REJECTED]
    assert (report.trials, t.trials, t.failures) == (40, 40, 0)
    assert t.rejected == len(rejected) == len(rows) - 40 > 10
    assert all(r.median_s is None and r.assembly["carried"] == 9 for r in rejected)
    assert Counter(s for e in heard if isinstance(e, RoundDone) for s in e.statuses)["REJECTED"] == t.rejected
    hashes = {r.trace_hash for r in rejected}
    assert hashes.isdisjoint(h for race in measurer.races for h in race)

    again = FakeMeasurer(spilling=0.5)
    continued = run([PRODUCT], 56, store, again, patience=False)
    assert (continued.reused, continued.trials) == (40, 56)
    assert hashes.isdisjoint(again.measured)  # the tuner gets them as results of the log
    assert continued.tasks[0].rejected > t.rejected


def test_the_default_is_never_rejected() -> None:
    store = connect(":memory:")
    (t,) = run([PRODUCT], 40, store, FakeMeasurer(spilling=1.0)).tasks
    assert (t.trials, t.best_s) == (1, t.default_s)
    assert t.rejected > 0
    assert resolve(PRODUCT, TARGET, store).trace == default_trace(PRODUCT.dag, TARGET)
