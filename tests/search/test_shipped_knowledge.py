"""Runs that begin with shipped schedules: these are measured first, and raced like all others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import FakeMeasurer
from runs import run
from shelves import product, put, record, traces, use

from autotensor.base import switches
from autotensor.base.machine import host_machine
from autotensor.base.target import parse
from autotensor.resolve import resolve
from autotensor.schedule.primitives.mark import Unroll
from autotensor.schedule.trace import Trace
from autotensor.search.score.boosted.ensemble_file import load
from autotensor.search.score.boosted.xgb_model import MIN_ROWS, start_model
from autotensor.search.shipped_knowledge import with_shipped
from autotensor.search.task import Task
from schedules import shipped
from schedules.generate import generate
from tuning_db import connect

WORKLOAD, TARGET = product(), parse()
DEFAULT, FAST, OTHER = traces(WORKLOAD, TARGET)
TASK = Task(WORKLOAD, TARGET)
SKETCHES = generate(WORKLOAD.dag, TARGET)
# today's rules make no such trace: it is in no space
FOREIGN = next(t for axis in ("i0", "i1", "r0") if (t := Trace((Unroll("t0", axis),))).replay(WORKLOAD.dag))


@pytest.fixture
def place(tmp_path, monkeypatch):
    use(monkeypatch, tmp_path)
    return tmp_path


def asked(trials: int, measurer: FakeMeasurer | None = None, **options: object) -> list[tuple[str, str]]:
    """(`made_by`, trace hash) of a run's trials, in order."""
    store = connect(":memory:")
    run([TASK], trials, store, measurer, **options)
    return [(t.made_by, t.trace_hash) for t in store.trials() if t.round is not None]


def test_nothing_shipped_changes_nothing(place):
    assert with_shipped(TASK, SKETCHES) == (SKETCHES, ())


def test_it_is_asked_right_after_the_default(place):
    put(place, record(WORKLOAD, TARGET, FAST, DEFAULT))
    assert asked(8)[:2] == [("default", DEFAULT.hash), ("shipped", FAST.hash)]


def test_with_one_trial_a_batch_it_is_the_second(place):
    put(place, record(WORKLOAD, TARGET, FAST, DEFAULT))
    assert asked(2, batch=1) == [("default", DEFAULT.hash), ("shipped", FAST.hash)]


def test_a_machine_like_the_one_that_it_is_from_asks_it_too(place):
    other = replace(host_machine(), cpu_model="Another CPU (1/2/3)")
    put(place, record(WORKLOAD, TARGET, FAST, DEFAULT), machine=other)
    assert asked(8)[1] == ("shipped", FAST.hash)


def test_a_trace_that_no_rule_makes_is_asked_as_it_is(place):
    put(place, record(WORKLOAD, TARGET, FOREIGN, DEFAULT))
    sketches, (candidate,) = with_shipped(TASK, SKETCHES)
    assert sketches[:-1] == SKETCHES
    assert candidate.trace == FOREIGN
    assert asked(16)[1] == ("shipped", FOREIGN.hash)


def test_a_run_that_ended_continues_with_it(place):
    put(place, record(WORKLOAD, TARGET, FOREIGN, DEFAULT))
    store, measurer = connect(":memory:"), FakeMeasurer()
    run([TASK], 8, store, measurer)
    again = run([TASK], 16, store, measurer)
    assert again.reused == 8
    assert len(set(measurer.measured)) == len(measurer.measured) == 16


def test_it_must_win_here_to_be_used_after_a_run(place):
    put(place, record(WORKLOAD, TARGET, FAST, DEFAULT, ratio=0.1))
    assert resolve(WORKLOAD, TARGET).trace == FAST
    for seconds, winner in ((2e-3, DEFAULT), (5e-4, FAST)):
        store = connect(":memory:")
        run([TASK], 2, store, FakeMeasurer(lambda t, s=seconds: s if t.hash == FAST.hash else 1e-3))
        assert resolve(WORKLOAD, TARGET, store).trace == winner
        assert resolve(WORKLOAD, TARGET, store).source == "log"


def test_without_it_is_another_run(place):
    put(place, record(WORKLOAD, TARGET, FAST, DEFAULT))
    store = connect(":memory:")
    with switches.override(no_shipped=True):
        plain = run([TASK], 8, store)
    assert "shipped" not in {t.made_by for t in store.trials()}
    assert run([TASK], 8, store).reused == 0
    with switches.override(no_shipped=True):
        assert run([TASK], 8, store).reused == plain.trials


def test_the_baseline_begins_with_nothing(place):
    put(place, record(WORKLOAD, TARGET, FAST, DEFAULT))
    assert "shipped" not in {made_by for made_by, _ in asked(8, model="random")}
    assert "shipped" not in {made_by for made_by, _ in asked(8, warm_start=False)}


def test_a_cost_model_of_other_features_is_told_of_and_left(place, caplog):
    folder = put(place, record(WORKLOAD, TARGET, FAST, DEFAULT))
    (folder / shipped.COST_MODEL).write_bytes(b"not even zipped")
    assert start_model(TARGET) is None
    (said,) = (r.getMessage() for r in caplog.records)
    assert said.startswith("the cost model that comes with autotensor is not used: ")
    assert len(said.splitlines()) == 1


# -- what really comes with the package ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted(shipped.PLACE.glob(f"*/{shipped.COST_MODEL}")), ids=lambda p: p.parent.name
)
def test_the_cost_models_that_come_with_the_package_are_of_todays_features(path):
    assert load(path).rows >= MIN_ROWS
    assert path.parent in shipped.classes(), "nobody finds it: the folder does not say which machine it is of"
