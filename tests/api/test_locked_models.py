"""Lock files: compiling again gives the same choices and the same file, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from told import two_convolutions

from autotensor.api.model_tuning import LOCKED, ModelReport, tune_model
from autotensor.api.models import ModelPlan, default_traces
from autotensor.base.errors import InputError
from autotensor.graph.lock_file import read_lock, write_lock
from autotensor.search.options import TuneOptions


@pytest.fixture
def plan() -> ModelPlan:
    return two_convolutions()


def tuned(plan: ModelPlan, folder: Path, name: str, lock: Path) -> ModelReport:
    options = TuneOptions(trials=6)
    return tune_model(
        plan, options, db=str(folder / f"{name}.db"), path=folder / f"{name}.atm", progress=False, lock=lock
    )


def test_the_second_tune_takes_what_the_first_one_chose(plan: ModelPlan, tmp_path: Path) -> None:
    lock = tmp_path / "model.lock"
    first = tuned(plan, tmp_path, "a", lock)
    assert first.tuning.trials > 0
    written = lock.read_bytes()
    second = tuned(plan, tmp_path, "b", lock)
    assert second.tuning.trials == 0
    assert second.tuning.reason == LOCKED
    assert lock.read_bytes() == written
    assert (tmp_path / "a.atm").read_bytes() == (tmp_path / "b.atm").read_bytes()


def test_what_is_written_is_read(plan: ModelPlan, tmp_path: Path) -> None:
    traces = default_traces(plan)
    write_lock(tmp_path / "l", plan.tasks, plan.target, traces)
    assert read_lock(tmp_path / "l", plan.tasks, plan.target) == traces


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: "x", "is not a lock, or is damaged"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "has format 2; this version reads 1"),
        (lambda text: text.replace('"target": "', '"target": "other'), "is for target other"),
        (lambda text: text.replace('"workload": "', '"workload": "0'), "lacks 4 of 4 tasks of this model"),
        (lambda text: text.replace('"t1"', '"t9"'), "no longer applies to"),
        (lambda text: text.replace("Split", "Splat"), "is not a lock, or is damaged"),
    ],
)
def test_what_is_refused(plan: ModelPlan, tmp_path: Path, change, says: str) -> None:  # type: ignore[no-untyped-def]
    lock = tmp_path / "l"
    write_lock(lock, plan.tasks, plan.target, default_traces(plan))
    lock.write_text(change(lock.read_text()))
    with pytest.raises(InputError, match=says):
        read_lock(lock, plan.tasks, plan.target)
