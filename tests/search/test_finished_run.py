"""A run is read from the log if the log holds all of it, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes import TARGET, FakeMeasurer, task
from runs import CONVOLUTION, PRODUCT, SMALL_PRODUCT, run

from autotensor.search.finished_run import known_run
from autotensor.search.options import TuneOptions
from autotensor.search.report import EARLIER, TuneReport
from autotensor.search.task_ends import ended_tasks, task_ends
from schedules.generate import default_trace
from tuning_db import SessionKind, TrialStore, connect
from tuning_db.values import now

WORKLOADS = (PRODUCT, CONVOLUTION)
DEFAULTS = {w.key: default_trace(w.dag, TARGET).hash for w in WORKLOADS}


def known(store: TrialStore, trials: int = 32, **options: Any) -> TuneReport | None:
    return known_run([task(w) for w in WORKLOADS], TuneOptions(trials=trials, **options), store, DEFAULTS)


@pytest.fixture
def store() -> TrialStore:
    made = connect(":memory:")
    run(WORKLOADS, 32, made, FakeMeasurer(failing=0.2, spilling=0.2))
    return made


def test_it_says_what_the_search_would_say(store: TrialStore) -> None:
    read = known(store)
    assert read is not None
    measurer = FakeMeasurer()
    repeated = run(WORKLOADS, 32, store, measurer)
    assert measurer.calls == []
    assert (read.trials, read.reused, read.reason) == (repeated.trials, repeated.reused, repeated.reason)
    for mine, theirs in zip(read.tasks, repeated.tasks, strict=True):
        assert (mine.best_s, mine.default_s) == (theirs.best_s, theirs.default_s)
        assert (mine.trials, mine.failures, mine.rejected) == (
            theirs.trials,
            theirs.failures,
            theirs.rejected,
        )
        assert mine.raced == theirs.raced
        assert mine.reason.removesuffix(EARLIER) == theirs.reason.removesuffix(EARLIER)


def test_a_later_race_of_fewer_changes_nothing(store: TrialStore) -> None:
    """For example, a race inside a model."""
    (run_,) = store.sessions(SessionKind.SEARCH)
    later = store.start_session(
        run_key="later", seed=0, machine=run_.machine, environment=run_.environment, kind=SessionKind.RACE
    )
    default = next(r for r in store.trials(PRODUCT.key) if r.trace_hash == DEFAULTS[PRODUCT.key])
    store.add_trials([replace(default, session=later.id, round=None, created=now())])
    assert [r.trace_hash for r in store.last_race(PRODUCT.key, default.target, default.machine)] == [
        default.trace_hash
    ]
    assert known(store) is not None


def test_more_is_not_known(store: TrialStore) -> None:
    assert known(store, 33) is None
    assert known(store, seed=1) is None
    assert known(store, model="prior") is None
    assert known(store, fresh=True) is None
    assert known(store, 24) is not None
    assert known(connect(":memory:")) is None


def test_a_run_that_was_stopped_is_not_known() -> None:
    store, asked = connect(":memory:"), iter([False, False, True, True, True])
    run(WORKLOADS, 32, store, stopped=lambda: next(asked))
    assert known(store) is None


def test_a_run_that_was_killed_before_it_ended_is_not_known(store: TrialStore) -> None:
    (session,) = store.sessions(SessionKind.SEARCH)
    s = session
    store.claim(run_key=s.run_key, seed=0, machine=s.machine, environment=s.environment, owner="killed")
    assert known(store) is None


def test_other_rules_make_another_run(store: TrialStore) -> None:
    tasks = [task(w) for w in WORKLOADS]
    changed = {**DEFAULTS, PRODUCT.key: "another"}
    assert known_run(tasks, TuneOptions(trials=32), store, changed) is None


def test_a_finished_run_is_known_for_any_number_of_trials() -> None:
    store = connect(":memory:")
    report = run([SMALL_PRODUCT], 900, store, until_gain_below=0.05)
    assert report.trials < 900
    default = {SMALL_PRODUCT.key: default_trace(SMALL_PRODUCT.dag, TARGET).hash}
    for trials in (900, 5000):
        options = TuneOptions(trials=trials, until_gain_below=0.05)
        assert known_run([task(SMALL_PRODUCT)], options, store, default) is not None
    assert known_run([task(SMALL_PRODUCT)], replace(options, until_gain_below=0.01), store, default) is None


def test_why_each_task_ended_outlives_its_run() -> None:
    """The session's own reason says only that all tasks are finished."""
    store = connect(":memory:")
    report = run([SMALL_PRODUCT], 900, store, until_gain_below=0.05)
    options = TuneOptions(trials=900, until_gain_below=0.05)
    default = {SMALL_PRODUCT.key: default_trace(SMALL_PRODUCT.dag, TARGET).hash}
    (session,) = store.sessions(SessionKind.SEARCH)
    assert session.stop_reason == report.reason
    assert task_ends(store, session.id) == {SMALL_PRODUCT.key: report.tasks[0].reason}
    read = known_run([task(SMALL_PRODUCT)], options, store, default)
    assert read is not None
    assert read.tasks[0].reason == f"{report.tasks[0].reason}{EARLIER}"
    assert ended_tasks([t.reason for t in report.tasks], 2) == [f"1 of 2 tasks: {report.tasks[0].reason}."]
