"""What is on disk while a model is tuned, and how its end is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from told import tell, two_convolutions

import autotensor as at
from autotensor.api import model_tuning
from autotensor.api.model_tuning import _Work, weights_residency
from autotensor.api.models import ModelPlan, default_traces
from autotensor.api.outcome import Outcome, outcome_of, remember
from autotensor.base.deadline import NEVER, Deadline
from autotensor.base.target import host_caches
from autotensor.runtime import artifact as artifacts
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, ModelSaved, Raced
from tuning_db import TrialStore, connect


@pytest.fixture
def plan() -> ModelPlan:
    return two_convolutions()


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return connect(tmp_path / "log.db")


def symbols(path: Path) -> dict[str, str]:
    return {k["workload"]: k["symbol"] for k in artifacts.load(path).meta["kernels"]}


def raced(plan: ModelPlan, task: int = 0) -> Raced:
    return Raced(plan.search_tasks()[task], 1e-3, 1e-3, False)


@pytest.mark.parametrize(("seconds", "taken"), [(0.9e-3, True), (0.99e-3, False), (1.1e-3, False)])
def test_the_file_holds_what_was_surely_faster_than_the_default(
    plan: ModelPlan, store: TrialStore, tmp_path: Path, monkeypatch, seconds: float, taken: bool
) -> None:
    monkeypatch.setattr(model_tuning, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(model_tuning, "SAVING_SHARE", float("inf"))
    path, heard = tmp_path / "model.atm", []
    work = _Work(plan, store, path, heard.append, NEVER)
    work.save()
    default = symbols(path)
    tell(plan, store, slow_s=seconds, default_s=1e-3, race=False)
    work.hear(raced(plan))
    changed = {key for key, symbol in symbols(path).items() if symbol != default[key]}
    assert changed == ({plan.tasks[0].workload.key} if taken else set())
    saved = [e for e in heard if isinstance(e, ModelSaved)]
    assert [e.first for e in saved] == [True, False][: 1 + taken]


def test_what_could_not_be_compiled_in_time_stays_as_it_is_linked(plan: ModelPlan, store: TrialStore) -> None:
    work = _Work(plan, store, None, None, NEVER)
    tell(plan, store, slow_s=1e-6, default_s=1e-3)
    best = model_tuning.resolved(plan, store)
    assert any(r.trace == Trace() for r in best.values())
    work.until = Deadline.after(-1.0)
    assert {k: r.trace for k, r in work._compilable(best).items()} == default_traces(plan)
    work.until = NEVER
    assert work._compilable(best) == best


def test_the_end_of_a_run_is_remembered(plan: ModelPlan, store: TrialStore) -> None:
    default, plain = default_traces(plan), {t.workload.key: Trace() for t in plan.tasks}
    assert outcome_of(store, plan.target, plain, default) is None
    outcome = Outcome(2e-3, 1e-3, {plan.tasks[0].workload.key: 0.5e-3})
    remember(store, plan.target, plain, default, outcome)
    assert outcome_of(store, plan.target, plain, default) == outcome
    assert outcome_of(store, plan.target, default, default) is None
    assert outcome_of(store, plan.target.with_threads(7), plain, default) is None


def test_schedules_that_lost_in_the_whole_model_are_not_written_again(
    plan: ModelPlan, store: TrialStore
) -> None:
    tell(plan, store, slow_s=1e-6, default_s=1e-3)
    found: Mapping[str, Any] = model_tuning.resolved(plan, store)
    tuned = {key: r.trace for key, r in found.items()}
    assert tuned != default_traces(plan)
    assert _Work(plan, store, None, None, NEVER).traces == tuned
    remember(store, plan.target, tuned, default_traces(plan), Outcome(1e-3, 2e-3))
    assert _Work(plan, store, None, None, NEVER).traces == default_traces(plan)


def test_where_weights_are(plan: ModelPlan, store: TrialStore, monkeypatch) -> None:
    linked = _Work(plan, store, None, None, NEVER).linked
    size = sum(v.nbytes for v in linked.values.values())
    assert 0 < size < host_caches()[-1]
    assert weights_residency(linked) == "hot"
    monkeypatch.setattr(model_tuning, "host_caches", lambda: (1024, size - 1))
    assert weights_residency(linked) == "graph"


@pytest.mark.slow
def test_the_same_call_again_times_nothing(tmp_path: Path, monkeypatch) -> None:
    plan, options = two_convolutions(), at.TuneOptions(trials=8, model="prior")
    kwargs: dict[str, Any] = {"db": tmp_path / "log.db", "path": tmp_path / "m.atm", "progress": False}
    first = at.tune_model(plan, options, **kwargs)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("something is measured again")

    for name in ("run_tuning", "race_in_model", "timing_by"):
        monkeypatch.setattr(model_tuning, name, fail)
    heard: list[Event] = []
    again = at.tune_model(plan, options, listener=heard.append, **kwargs)
    assert (again.default_s, again.tuned_s, again.notes) == (first.default_s, first.tuned_s, first.notes)
    assert again.times == first.times
    assert [t.trials for t in again.tuning.tasks] == [t.trials for t in first.tuning.tasks]
    assert heard == [ModelSaved(tmp_path / "m.atm", first=True)]
    with pytest.raises(AssertionError, match="measured again"):
        at.tune_model(plan, at.TuneOptions(trials=12, model="prior"), **kwargs)
