"""Comparisons of tunes: two copies of one tune are equal, and a slower choice for a task is found."""

from __future__ import annotations

from argparse import Namespace

import pytest
import repeated_tunes
from repeated_tunes import alike, interval_of_median, row_of

from autotensor import te
from autotensor.base.target import host
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace


def product():
    A, B = te.placeholder((96, 64), name="A"), te.placeholder((64, 96), name="B")
    k = te.reduce_axis((0, 64), name="k")
    return Workload.of(
        ComputeDAG.of([A, B, te.compute((96, 96), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]),
        "product",
    )


def test_a_slow_choice_is_neither_the_same_nor_tied(monkeypatch):
    monkeypatch.setattr(repeated_tunes, "ROUNDS", 9)
    target, workload = host().with_threads(1), product()
    good, slow = default_trace(workload.dag, target), Trace(())  # the loops of its definition
    tunes = [{workload.key: t} for t in (good, slow, good)]
    assert alike(tunes, {workload.key: workload}, target) == (3, 2, 0)
    assert alike(tunes[::2], {workload.key: workload}, target) == (2, 2, 0)


def test_an_interval_that_holds_half_of_a_fault_is_no_tie():
    assert interval_of_median([1.0] * 40 + [1.2] * 21) == (1.0, 1.0)
    assert interval_of_median([1.0] * 31 + [1.2] * 30)[1] == 1.2


@pytest.mark.slow
def test_a_program_is_tuned_from_nothing_and_its_files_are_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(repeated_tunes, "ROUNDS", 5)
    asked = Namespace(tunes=2, trials=4)
    row = row_of("jacobi-1d, 4 steps", tmp_path / "0", asked, host().with_threads(1))
    assert len(row.times) == len(row.tune_s) == 2
    assert min(row.times) > 0.0
    assert row.choices == 2
    assert 1 <= row.same + row.tied <= 2  # with two tunes, one has what most have
