"""Schedules of one task race inside the whole model, and the schedule that is faster there is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from told import tell, two_convolutions

from autotensor.api.model_race import IN_MODEL, entrants, race_in_model
from autotensor.api.models import link_model, traces_from_log
from autotensor.base.machine import host_machine
from autotensor.resolve import last_race, resolve, safe_default
from autotensor.schedule.trace import Trace
from tuning_db import TrialStore, connect
from tuning_db.records import TrialRecord


@pytest.fixture
def plan():
    return two_convolutions()


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return connect(tmp_path / "log.db")


def race(plan, store: TrialStore, budget_s: float = 10.0) -> int:
    workloads = [t.workload for t in plan.tasks]
    return race_in_model(workloads, plan.target, store, lambda traces: link_model(plan, traces), budget_s)


def test_what_was_faster_alone_loses_when_it_is_slower_in_the_model(plan, store: TrialStore) -> None:
    tell(plan, store, slow_s=1e-6, default_s=1e-3)  # in the log, the plain nest is the fastest
    convolutions = [t.workload for t in plan.tasks if "conv2d" in t.name]
    assert len(convolutions) == 2
    assert all(traces_from_log(plan, store)[w.key] == Trace() for w in convolutions)
    assert race(plan, store) == len(plan.tasks)
    for w in convolutions:
        assert resolve(w, plan.target, store).trace == safe_default(w, plan.target)
        rows = store.last_race(w.key, plan.target.key(), host_machine().fingerprint)
        assert {s.residency for r in rows for s in r.samples} == {IN_MODEL}
        assert all(r.verified for r in rows)


def test_a_settled_race_is_not_held_again(plan, store: TrialStore) -> None:
    tell(plan, store, slow_s=1e-6, default_s=1e-3)
    race(plan, store)
    count = store.count()
    assert race(plan, store) == 0
    assert store.count() == count


def test_without_measurements_there_is_nothing_to_race(plan, store: TrialStore) -> None:
    assert race(plan, store) == 0
    assert store.count() == 0


def test_the_default_takes_part_even_when_there_is_no_time(plan, store: TrialStore) -> None:
    tell(plan, store, slow_s=1e-6, default_s=1e-3)
    workload = next(t.workload for t in plan.tasks if "conv2d" in t.name)
    default = safe_default(workload, plan.target).hash
    assert [r.trace_hash for r in entrants(workload, plan.target, store)] == [Trace().hash, default]
    race(plan, store, budget_s=0.0)
    rows = store.last_race(workload.key, plan.target.key(), host_machine().fingerprint)
    assert default in {r.trace_hash for r in rows}


def test_another_metric_goes_by_races_of_kernels_alone(plan, store: TrialStore) -> None:
    """Samples in the model are ratios to the first choice. So the first choice's own samples are all
    equal."""

    def worst(trial: TrialRecord) -> float:
        return max(s.seconds for s in trial.samples)

    tell(plan, store, slow_s=1e-6, default_s=1e-3)
    race(plan, store)
    for w in (t.workload for t in plan.tasks if "conv2d" in t.name):
        assert resolve(w, plan.target, store).trace == safe_default(w, plan.target)
        assert resolve(w, plan.target, store, worst).trace == Trace()
        rows = last_race(worst, store, (w.key, plan.target.key(), host_machine().fingerprint))
        assert sorted(worst(r) for r in rows) == [1e-6, 1e-3]
