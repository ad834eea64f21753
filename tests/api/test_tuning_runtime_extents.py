"""Computations with run-time extents are measured at the greatest extents, and their functions use the best
schedule there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autotensor as at
from autotensor import resolve, te
from autotensor.api.log import open_log
from autotensor.base.target import parse
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload


def scaled(rows: object) -> list[te.Tensor]:
    a = te.placeholder((rows, 32), name="A")
    return [a, te.compute((rows, 32), lambda i, j: a[i, j] * 2.0 + 1.0, name="C")]


def test_trials_serve_the_whole_range(tmp_path: Path) -> None:
    n = te.var("n", range=(1, 96))
    db = str(tmp_path / "log.db")
    report = at.tune(scaled(n), trials=4, db=db, progress=False)
    assert report.trials > 1
    for args in (scaled(n), scaled(96)):
        dag = Workload.of(ComputeDAG.of(args))
        with open_log(db) as log:
            assert resolve.resolve(dag, parse(None), log).source == "log"
    f = at.build(scaled(n), db=db)
    for rows in (1, 17, 96):
        assert np.array_equal(f(np.ones((rows, 32), np.float32)), np.full((rows, 32), 3.0))


def test_a_schedule_that_takes_numbers_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = Trace((SplitStep("t0", "i0", (), nparts=2),))
    monkeypatch.setattr(resolve, "default_trace", lambda dag, target: halves)
    fixed, open_ = (Workload.of(ComputeDAG.of(scaled(n))) for n in (96, te.var("n", range=(1, 96))))
    assert resolve.safe_default(fixed, parse("llvm")) == halves
    found = resolve.safe_default(open_, parse("llvm"))
    assert found not in (halves, Trace())  # the next sketch, which fits any extent
