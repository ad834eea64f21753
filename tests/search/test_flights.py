"""Writing and submitting batches together changes neither the proposals nor the log."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from fakes import FakeMeasurer
from runs import CONVOLUTION, PRODUCT, SMALL_PRODUCT, run
from zoo import gemm

from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.underway import flights
from autotensor.te.workload import Workload
from tuning_db import TrialStore, connect

TASKS = [PRODUCT, SMALL_PRODUCT, CONVOLUTION, *(gemm(32 * n, 64, 48) for n in range(1, 6))]


class Fleet(FakeMeasurer):
    """Many machines. late: each call whose number is a multiple of this is answered after the others."""

    def __init__(self, in_flight: int, late: int = 0, workers: int = 1) -> None:
        super().__init__()
        self.in_flight, self.late, self.workers = in_flight, late, workers
        self.count = 0
        self.held: list[tuple[Future[list[MeasureResult]], Future[list[MeasureResult]]]] = []

    def submit(
        self, workload: Workload, traces: Sequence[Trace], *asked: Any, **how: Any
    ) -> Future[list[MeasureResult]]:
        known = super().submit(workload, traces, *asked, **how)
        self.count += 1
        if not self.late or self.count % self.late:
            for waiting, answer in self.held:
                waiting.set_result(answer.result())
            self.held = []
            return known
        waiting = Held(self)
        self.held.append((waiting, known))
        return waiting


class Held(Future[list[MeasureResult]]):
    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self.fleet = fleet

    def result(self, timeout: float | None = None) -> list[MeasureResult]:
        for waiting, answer in self.fleet.held:
            waiting.set_result(answer.result())
        self.fleet.held = []
        return super().result(timeout)


class Counting:
    """Counts the writes to a log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: TrialStore) -> None:
        self.rounds: list[int] = []
        self.trials: list[int] = []
        begin, add = store.begin_rounds, store.add_trials
        monkeypatch.setattr(
            store, "begin_rounds", lambda r, *a: (self.rounds.append(len(r)), begin(r, *a))[1]
        )
        monkeypatch.setattr(store, "add_trials", lambda t: (self.trials.append(len(t)), add(t))[1])


def rows(store: TrialStore) -> list[tuple[Any, ...]]:
    """The results of the search, in the order of the log."""
    return [
        (t.workload, t.trace_hash, t.round, t.made_by, t.predicted, t.median_s)
        for s in store.sessions()
        for t in store.trials(session=s.id)
    ]


@pytest.mark.parametrize(("late", "model"), [(0, "xgb"), (3, "xgb"), (2, "prior"), (5, "prior")])
def test_what_is_written_together_is_as_if_it_had_not_been(
    late: int, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for together in (1, flights.TOGETHER):
        monkeypatch.setattr(flights, "TOGETHER", together)
        store = connect(":memory:")
        counted = Counting(monkeypatch, store)
        report = run(TASKS, 160, store, Fleet(24, late), patience=False, model=model)
        assert report.trials == 160
        assert store.open_intents() == ()
        found.append(rows(store))
        if together == 1:
            assert set(counted.rounds[1:]) == {1}  # the first ones are submitted together
        elif not late:
            assert max(counted.rounds[1:]) > 1
            assert max(counted.trials) > 8
    assert found[0] == found[1]


def test_a_batch_that_cannot_be_measured_leaves_those_beside_it_alone() -> None:
    store, measurer = connect(":memory:"), Fleet(24)
    measurer.impossible = {TASKS[4].key}
    report = run(TASKS, 160, store, measurer, patience=False)
    failed = next(t for t in report.tasks if t.task.workload.key == TASKS[4].key)
    assert failed.reason.endswith("cannot be built: too odd")
    assert failed.trials == 0
    assert report.trials == len(store.trials(session=store.sessions()[0].id)) == 160
    assert store.open_intents() == ()


def test_a_stopped_run_has_all_that_was_measured_and_nothing_else() -> None:
    store, measurer = connect(":memory:"), Fleet(24, late=3)
    left = iter(range(20))
    report = run(TASKS, 2000, store, measurer, stopped=lambda: next(left, None) is None, patience=False)
    assert report.reason == "it was stopped"
    assert store.open_intents() == ()
    assert report.trials == len(store.trials())


def test_tasks_fewer_than_workers_get_several_batches_at_once() -> None:
    """A round then has several batches, but a budget is still spent in LEAST_ROUNDS rounds or more."""
    alone, many, few = Fleet(1), Fleet(16, workers=8), Fleet(16, workers=8)
    for measurer, trials in ((alone, 160), (many, 256), (few, 96)):
        assert run([PRODUCT], trials, measurer=measurer, patience=False).trials == trials
    assert {len(c[1]) for c in alone.calls if c[2] is None} == {8}
    assert max(len(c[1]) for c in many.calls if c[2] is None) == 32
    assert max(len(c[1]) for c in few.calls if c[2] is None) == 8
