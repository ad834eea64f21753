"""The progress of a tuning run without a terminal. `at.tune` shows it unless `progress=False`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.insight.progress import Progress
from autotensor.search.events import Improved, ModelSaved, Resumed, RoundDone, TaskDone
from autotensor.search.task import Candidate, Task
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import generate

TARGET = parse("llvm -threads=1")


def addition() -> list[te.Tensor]:
    x = te.placeholder((1000,), name="x")
    return [x, te.compute((1000,), lambda i: x[i] + 1.0, name="y")]


def task() -> Task:
    return Task(Workload.of(ComputeDAG.of(addition()), "addition"), TARGET)


def done(t: Task, trials: int, best_s: float, statuses: tuple[str, ...]) -> RoundDone:
    failures = sum(s != "OK" for s in statuses)
    return RoundDone(t, (), (), statuses, best_s, None, trials, 8, failures, 10.0)


def test_a_line_for_every_batch(capsys: pytest.CaptureFixture[str]) -> None:
    t = task()
    sketch = generate(t.workload.dag, TARGET)[0]
    with Progress(8, None) as p:
        p.hear(ModelSaved(Path("mlp.atm"), first=True))
        p.hear(Resumed(2))
        p.hear(done(t, 4, 1e-6, ("OK", "CRASHED")))
        p.hear(Improved(t, Candidate(sketch, sketch.defaults()), 1e-6))
        p.hear(done(t, 6, float("inf"), ("OK",)))
        p.hear(ModelSaved(Path("mlp.atm"), first=False))
        p.hear(ModelSaved(Path("mlp.atm"), first=True, written=False))
        p.hear(TaskDone(t, "its next batch promises too little"))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "mlp.atm can be run.",
        "Continuing: 2 trials of this run are in the log.",
        "4/8 trials  addition  fastest trial 1.00 GFLOP/s  1 failed  0:20 left",
        "6/8 trials  addition  no time yet  0 failed  0:05 left",
        "mlp.atm holds this model already.",
        "done: addition: its next batch promises too little",
    ]
    assert p.statuses == {"OK": 2, "CRASHED": 1}


def test_the_deadline_bounds_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(8, 12.0) as p:
        p.hear(done(task(), 1, 1e-6, ("OK",)))
    assert "0:02 left" in capsys.readouterr().err


@pytest.mark.parametrize("progress", [True, False])
def test_tune_says_how_it_goes(
    progress: bool, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    heard: list[object] = []
    db = tmp_path_factory.getbasetemp() / "progress.db"  # one for both: rates are measured once
    chosen = {"trials": 2, "target": "llvm -threads=1", "db": db, "fresh": True, "model": "prior"}
    report = at.tune(addition(), **chosen, progress=progress, listener=heard.append)
    said = capsys.readouterr()
    assert said.out == ""
    assert any(isinstance(e, RoundDone) for e in heard)
    assert report.trials == 2
    line, run = str(report).splitlines()
    pace = r"([\d.]+ times as fast as|as fast as|[\d.]+ % slower than) the default(, within the noise)?"
    assert re.fullmatch(rf"y \[[0-9a-f]{{12}}\]: [\d,.]+ us, {pace}, 2 trials \(.*\)", line)
    assert re.fullmatch(rf"2 trials \(0 from the log\) in \d+ s: .*; log: {re.escape(str(db))}", run)
    if progress:
        line = r"^2/2 trials  y  fastest trial [\d.]+ GFLOP/s  0 failed  0:00 left$"
        assert re.search(line, said.err, re.M)
    else:
        assert said.err == ""
