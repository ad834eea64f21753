"""The model file during tuning, and the record of the run's end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from told import tell, two_convolutions

import autotensor as at
from autotensor import compiler
from autotensor.api import model_tuning, models
from autotensor.api.model_race_outcome import Outcome, outcome_of, remember
from autotensor.api.model_tuning import _TunedModel, weights_residency
from autotensor.api.models import ModelPlan, default_traces, held_in, plan_model
from autotensor.base import switches
from autotensor.base.deadline import NEVER, Deadline
from autotensor.base.target import host_caches
from autotensor.graph.build import input, ops
from autotensor.resolve import IN_MODEL
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, ModelSaved, Raced
from autotensor.search.report import TaskReport, TuneReport
from autotensor.search.run import silent
from tuning_db import TrialStore, connect
from tuning_db.records import TrialRecord


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
    work = _TunedModel(plan, store, path, heard.append, NEVER)
    work.start()
    default = symbols(path)
    tell(plan, store, slow_s=seconds, default_s=1e-3, race=False)
    work.hear(raced(plan))
    changed = {key for key, symbol in symbols(path).items() if symbol != default[key]}
    assert changed == ({plan.tasks[0].workload.key} if taken else set())
    saved = [e for e in heard if isinstance(e, ModelSaved)]
    assert [e.first for e in saved] == [True, False][: 1 + taken]


def test_a_file_of_this_very_model_is_found(
    plan: ModelPlan, store: TrialStore, tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "model.atm"
    work = _TunedModel(plan, store, path, silent, NEVER)
    assert work.held() is None
    linked = work.start()
    found = _TunedModel(plan, store, path, silent, NEVER).held()
    assert found is not None
    assert (found.entry, found.args, found.objects) == (linked.entry, linked.args, linked.objects)
    assert all(np.array_equal(found.values[name], v) for name, v in linked.values.items())
    traces = work.traces
    one = {plan.tasks[0].workload.key: Trace()}
    assert held_in(path, plan, traces | one) is None
    assert held_in(path, replace(plan, facts={"weights": "trained"}), traces) is None
    assert held_in(path, replace(plan, target=plan.target.with_threads(7)), traces) is None
    assert held_in(path, replace(plan, graph=replace(plan.graph, name="another")), traces) is None
    with switches.override(verify=True):
        assert held_in(path, plan, traces) is None
    for module in (models, compiler):
        with monkeypatch.context() as patched:
            patched.setattr(module, "source_digest", lambda _: "other code")
            assert held_in(path, plan, traces) is None
    assert held_in(path, plan, traces) is not None


def dense(weights: np.ndarray[Any, Any]) -> ModelPlan:
    return plan_model(ops.relu(ops.dense(input((4, 16)), weights)))


def test_a_file_with_other_weights_is_another(store: TrialStore, tmp_path: Path) -> None:
    path, weights = tmp_path / "model.atm", np.ones((8, 16), np.float32)
    _TunedModel(dense(weights), store, path, silent, NEVER).start()
    assert _TunedModel(dense(weights.copy()), store, path, silent, NEVER).held() is not None
    weights[3, 5] = 2.0
    assert _TunedModel(dense(weights), store, path, silent, NEVER).held() is None


@pytest.mark.parametrize("damage", ["cut", "changed", "foreign"])
def test_a_file_that_is_damaged_is_written_anew(
    plan: ModelPlan, store: TrialStore, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "model.atm"
    _TunedModel(plan, store, path, silent, NEVER).start()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"cut": data[:1000], "changed": data, "foreign": b"something else"}[damage])
    work = _TunedModel(plan, store, path, silent, NEVER)
    assert work.held() is None
    work.start()
    assert work.held() is not None


def test_what_could_not_be_compiled_in_time_stays_as_it_is_linked(plan: ModelPlan, store: TrialStore) -> None:
    work = _TunedModel(plan, store, None, None, NEVER)
    work.start()
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
    assert _TunedModel(plan, store, None, None, NEVER).traces == tuned
    remember(store, plan.target, tuned, default_traces(plan), Outcome(1e-3, 2e-3))
    assert _TunedModel(plan, store, None, None, NEVER).traces == default_traces(plan)


def test_kernels_are_reported_without_the_time_of_reading_the_clock(
    plan: ModelPlan, store: TrialStore
) -> None:
    """Otherwise most of a tiny kernel's share of the model would be this time."""
    work = _TunedModel(plan, store, None, silent, NEVER)
    linked = work.start()
    inside = {t.workload.key: 1e-6 for t in plan.tasks}
    module = open_artifact(linked, plan.target.num_cores)
    report = work.report(TuneReport((), 0, 0, 0.0, ""), module, Outcome(4e-7, 3e-7, inside))
    assert sum(t.inside_s for t in report.times) == pytest.approx(3e-7)


def test_where_weights_are(plan: ModelPlan, store: TrialStore, monkeypatch) -> None:
    linked = _TunedModel(plan, store, None, None, NEVER).start()
    size = sum(v.nbytes for v in linked.values.values())
    assert 0 < size < host_caches()[-1]
    assert weights_residency(linked) == "hot"
    monkeypatch.setattr(model_tuning, "host_caches", lambda: (1024, size - 1))
    assert weights_residency(linked) == "graph"


def test_a_graph_is_planned_for_this_machine(monkeypatch) -> None:
    class Seen(Exception):
        pass

    def work(plan: ModelPlan, *_: object) -> None:
        assert plan.target == plan_model(graph).target
        assert len(plan.tasks) == 1
        raise Seen

    monkeypatch.setattr(model_tuning, "_TunedModel", work)
    graph = ops.relu(input((2, 3)))
    with pytest.raises(Seen):
        at.tune_model(graph, at.TuneOptions(trials=1), db=":memory:", progress=False)


@pytest.mark.slow
def test_the_same_call_again_times_nothing(tmp_path: Path, monkeypatch) -> None:
    plan, options = two_convolutions(), at.TuneOptions(trials=8, model="prior")
    kwargs: dict[str, Any] = {"db": tmp_path / "log.db", "path": tmp_path / "m.atm", "progress": False}
    first = at.tune_model(plan, options, **kwargs)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("something is measured again")

    for name in ("run_tuning", "race_in_model", "timing_by"):
        monkeypatch.setattr(model_tuning, name, fail)
    for there in (True, False):
        if not there:
            kwargs["path"].unlink()
        heard: list[Event] = []
        again = at.tune_model(plan, options, listener=heard.append, **kwargs)
        assert (again.default_s, again.tuned_s, again.notes) == (first.default_s, first.tuned_s, first.notes)
        assert again.times == first.times
        assert [t.trials for t in again.tuning.tasks] == [t.trials for t in first.tuning.tasks]
        assert heard == [ModelSaved(tmp_path / "m.atm", first=True, written=not there)]
        x = np.ones(again.module.args[0].shape, np.float32)
        np.testing.assert_array_equal(again.module(x), at.load(kwargs["path"])(x))
    with pytest.raises(AssertionError, match="measured again"):
        at.tune_model(plan, at.TuneOptions(trials=12, model="prior"), **kwargs)


DYING = """
import os, signal, sys
import autotensor as at
from autotensor.api import model_tuning
from told import two_convolutions

def die(*_):
    os.kill(os.getpid(), int(sys.argv[3]))

if sys.argv[1] == "in the model":
    model_tuning.race_in_model = die
else:
    model_tuning._TunedModel._race = die
log, path = sys.argv[2] + "/log.db", sys.argv[2] + "/m.atm"
options = at.TuneOptions(trials=8, model="prior")
at.tune_model(two_convolutions(), options, db=log, path=path, progress=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in the model", "last"])
@pytest.mark.parametrize("deadly", [signal.SIGABRT, signal.SIGKILL])
def test_a_race_that_ends_the_process_loses_nothing(
    tmp_path: Path, where: str, deadly: signal.Signals
) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[1] / "kit"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", DYING, where, str(tmp_path), str(int(deadly))]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, timeout=300)
    assert done.returncode == -deadly
    plan, store = two_convolutions(), connect(tmp_path / "log.db")
    found = model_tuning.resolved(plan, store)
    assert {r.source for r in found.values()} == {"log"}
    # the file has the log's best schedules, so it is useful even if there is no more time
    assert held_in(tmp_path / "m.atm", plan, {key: r.trace for key, r in found.items()}) is not None
    options = at.TuneOptions(trials=8, model="prior")
    report = at.tune_model(plan, options, db=store, path=tmp_path / "m.atm", progress=False)
    assert report.tuning.reused == report.tuning.trials == 8


def test_by_another_metric_the_same_call_again_races_nothing(tmp_path: Path) -> None:
    def worst(trial: TrialRecord) -> float:
        return max(s.seconds for s in trial.samples)

    model = ops.relu(ops.dense(input((64, 96)), np.ones((80, 96), np.float32)))
    with connect(tmp_path / "log.db") as log:
        heard: list[Event] = []
        for _ in range(2):
            heard.clear()
            options = at.TuneOptions(trials=8, model="prior", metric=worst)
            again = at.tune_model(
                model, options, db=log, path=tmp_path / "m.atm", listener=heard.append, progress=False
            )
        assert again.tuning.reused == 8
        assert [type(e) for e in heard] == [ModelSaved]
        assert {s.residency for t in log.trials() for s in t.samples}.isdisjoint({IN_MODEL})


@pytest.mark.parametrize("slow_s", [0.998e-3, 1.2e-3])
def test_a_race_that_was_not_won_in_the_model_gains_nothing(
    plan: ModelPlan, store: TrialStore, slow_s: float
) -> None:
    """The search's race had a winner; the later race in the model did not confirm it."""
    tell(plan, store, slow_s=slow_s, default_s=1e-3)
    work = _TunedModel(plan, store, None, silent, NEVER)
    work.start()
    won = tuple(
        TaskReport(t, 13.9e-6, 12.7e-6, None, 9, 0, "its space is exhausted", raced=True)
        for t in plan.search_tasks()
    )
    module = open_artifact(work.linked, plan.target.num_cores)
    report = work.report(TuneReport(won, 18, 0, 1.0, ""), module, Outcome(3e-3, 3e-3))
    assert [(t.default_s, t.best_s) for t in report.tuning.tasks] == [(1e-3, 1e-3)] * len(won)
    assert report.predicted_s == pytest.approx(sum(1e-3 * t.weight for t in plan.tasks))
    assert report.notes == (
        "no schedule was faster than its default beyond the noise; the model holds the defaults",
    )
    told = "no schedule was faster"
    assert told not in str(work.report(TuneReport(won, 0, 0, 1.0, ""), module, Outcome(3e-3, 3e-3)))


def test_a_race_that_was_won_is_reported_with_its_own_times(plan: ModelPlan, store: TrialStore) -> None:
    tell(plan, store, slow_s=0.5e-3, default_s=1e-3)
    work = _TunedModel(plan, store, None, silent, NEVER)
    work.start()
    rows = tuple(TaskReport(t, 2e-3, 1.9e-3, None, 9, 0, "", raced=True) for t in plan.search_tasks())
    module = open_artifact(work.linked, plan.target.num_cores)
    report = work.report(TuneReport(rows, 18, 0, 1.0, ""), module, Outcome(3e-3, 2e-3))
    assert {(t.default_s, t.best_s) for t in report.tuning.tasks} == {(1e-3, 0.5e-3)}
    assert report.notes == ()
