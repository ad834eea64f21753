"""Runs that continue: after they were killed, with several tasks in flight, or with a larger budget."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from fakes import FakeMeasurer, task
from runs import CONVOLUTION, PRODUCT, RATES, SMALL_PRODUCT, run

from autotensor.base.deadline import NEVER
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, Resumed
from autotensor.search.journal import ALL_FINISHED
from autotensor.search.loop import tune
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.options import TuneOptions
from autotensor.search.run import TuningRun
from autotensor.te.workload import Workload
from schedules.prior.rates import Rates
from tuning_db import connect


class Killed(BaseException):
    """The end of a process, as KeyboardInterrupt is: not an error of the measurer, which would be named."""


class Mortal(FakeMeasurer):
    """Dies in its n-th call."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    def measure(
        self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None, **how: Any
    ) -> list[MeasureResult]:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return super().measure(workload, traces, repeat, **how)


class Later(FakeMeasurer):
    """Answers the first request when its result is awaited. begins=False: no other request has begun by
    then."""

    def __init__(self, depth: int, begins: bool = True) -> None:
        super().__init__()
        self.in_flight = depth
        self.begins = begins
        self.open: list[tuple[str, Waited]] = []
        self.seen: list[list[str]] = []  # workloads in flight, at each question

    def submit(self, workload: Workload, *asked: Any, **how: Any) -> Future[list[MeasureResult]]:
        known = super().submit(workload, *asked, **how)
        answer = Waited(known)
        self.open = [*(f for f in self.open if not f[1].done()), (workload.key, answer)]
        self.seen.append([key for key, _ in self.open])
        if self.begins:
            answer.set_running_or_notify_cancel()
        return answer


class Waited(Future[list[MeasureResult]]):
    def __init__(self, known: Future[list[MeasureResult]]) -> None:
        super().__init__()
        self.known = known

    def result(self, timeout: float | None = None) -> list[MeasureResult]:
        if not self.done():
            self.set_result(self.known.result())
        return super().result(timeout)


@pytest.mark.parametrize(
    ("calls", "model"), [(1, "xgb"), (4, "xgb"), (7, "xgb"), (4, "prior"), (4, "random")]
)
def test_a_killed_run_continues_as_if_it_had_not_been_killed(calls: int, model: str) -> None:
    workloads = [PRODUCT, SMALL_PRODUCT]
    whole = FakeMeasurer()
    run(workloads, 72, measurer=whole, model=model)
    store, first, second = connect(":memory:"), Mortal(calls), FakeMeasurer()
    with pytest.raises(Killed):
        run(workloads, 72, store, first, model=model)
    assert len(store.open_intents()) > 0
    heard: list[Event] = []
    report = run(workloads, 72, store, second, heard.append, model=model)
    assert first.measured + second.measured == whole.measured
    assert [e for e in heard if isinstance(e, Resumed)] == [Resumed(len(first.measured))]
    assert report.reused == len(first.measured)
    assert report.trials == 72
    assert store.open_intents() == ()


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("calls", [1, 2, 4, 7, 8])
def test_a_killed_run_of_several_tasks_in_flight_continues_as_if_it_had_not_been(
    calls: int, depth: int
) -> None:
    workloads = [PRODUCT, SMALL_PRODUCT, CONVOLUTION]
    store, first = connect(":memory:"), Mortal(calls)
    whole, second = FakeMeasurer(), FakeMeasurer()
    for measurer in (whole, first, second):
        measurer.in_flight = depth
    run(workloads, 96, measurer=whole)
    with pytest.raises(Killed):
        run(workloads, 96, store, first)
    known = len(store.trials())
    report = run(workloads, 96, store, second)
    assert first.measured[:known] + second.measured == whole.measured
    assert (report.reused, report.trials, store.open_intents()) == (known, 96, ())


def test_several_tasks_are_in_flight_and_told_in_the_order_of_asking() -> None:
    """The next task's batch is requested before this task's batch is answered; a task has one batch at a
    time."""
    measurer = Later(depth=2)
    report = run([PRODUCT, SMALL_PRODUCT, CONVOLUTION], 96, measurer=measurer)
    assert report.trials == 96
    assert max(len(open_) for open_ in measurer.seen) == 2
    assert all(len({*open_}) == len(open_) for open_ in measurer.seen)
    same = FakeMeasurer()
    same.in_flight = 2
    run([PRODUCT, SMALL_PRODUCT, CONVOLUTION], 96, measurer=same)
    assert measurer.measured == same.measured  # clocks have no effect on it


def test_what_has_not_begun_when_a_run_is_stopped_is_forgotten() -> None:
    store, measurer = connect(":memory:"), Later(depth=2, begins=False)
    asked = itertools.count()
    report = run(
        [PRODUCT, SMALL_PRODUCT], 500, store, measurer, stopped=lambda: next(asked) >= 3, patience=False
    )
    assert report.reason == "it was stopped"
    assert store.open_intents() == ()
    assert report.trials == len(store.trials()) < len(measurer.measured)


def test_the_batch_that_was_in_flight_is_measured_again() -> None:
    """Killed between `begin` and `finish`: the trials that the log announced run next."""
    store, first, second = connect(":memory:"), Mortal(5), FakeMeasurer()
    with pytest.raises(Killed):
        run([PRODUCT, SMALL_PRODUCT], 72, store, first)
    in_flight = [i.trace_hash for i in store.open_intents()]
    run([PRODUCT, SMALL_PRODUCT], 72, store, second)
    assert second.measured[: len(in_flight)] == in_flight
    assert len(in_flight) == 8


def test_the_same_command_again_measures_nothing_and_a_larger_number_continues() -> None:
    store = connect(":memory:")
    first = run([PRODUCT], 32, store, patience=False)
    again = FakeMeasurer()
    second = run([PRODUCT], 32, store, again, patience=False)
    assert again.calls == []
    assert second.reused == second.trials == 32
    assert second.tasks[0].best_s == first.tasks[0].best_s
    assert second.tasks[0].raced
    more = FakeMeasurer()
    third = run([PRODUCT], 56, store, more, patience=False)
    assert len(more.measured) == 24
    assert third.trials == 56
    known = {t.trace_hash for t in store.trials()}
    assert len(known) == 56


def test_fresh_starts_anew() -> None:
    store = connect(":memory:")
    run([PRODUCT], 24, store)
    measurer = FakeMeasurer()
    report = run([PRODUCT], 24, store, measurer, fresh=True, warm_start=False)
    assert report.reused == 0
    assert len(measurer.measured) == 24


def test_other_seeds_and_models_are_other_runs() -> None:
    store = connect(":memory:")
    run([PRODUCT], 16, store)
    for options in ({"seed": 1}, {"model": "prior"}):
        assert run([PRODUCT], 16, store, **options).reused == 0


def test_a_killed_run_with_rejections_continues_as_if_it_had_not_been_killed() -> None:
    whole, first, second = (
        FakeMeasurer(spilling=0.5),
        Mortal(4),
        FakeMeasurer(spilling=0.5),
    )
    first.spilling = 0.5
    run([PRODUCT], 48, measurer=whole)
    store = connect(":memory:")
    with pytest.raises(Killed):
        run([PRODUCT], 48, store, first)
    run([PRODUCT], 48, store, second)
    assert [*first.measured, *second.measured] == whole.measured


def test_a_finished_run_stays_finished_when_the_machine_is_measured_anew() -> None:
    """Other rates change the bound near which a task stops. The same command must measure nothing
    nevertheless."""
    store, measurer = connect(":memory:"), FakeMeasurer(lambda trace: 1e-4)
    options = TuneOptions(trials=400)
    reports = [
        tune(TuningRun([task(PRODUCT)], options, store, NEVER), measurer, rates)
        for rates in (RATES, Rates(1e13, (1e12,) * 3, 1e12))
    ]
    assert [r.reason for r in reports] == [ALL_FINISHED] * 2
    assert reports[0].trials < 400
    assert (reports[1].trials, reports[1].reused) == (reports[0].trials, reports[0].trials)
