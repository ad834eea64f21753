"""Contestants run in separate processes and are timed alternately. A failure becomes a note, and the others
continue."""

from __future__ import annotations

import json

import numpy as np
import pytest
from contests.contest import Contestant, Field, Timing, ask, child_of, distance, summary, why_not
from peers import Spec

from autotensor.runtime.workers.children import Child

QUICK = Timing(rounds=2, block_s=0.01, tries=1)


def test_a_unit_times_who_can_and_notes_who_cannot(tmp_path):
    contestants = [
        Contestant("torch", Spec("numpy", 1)),  # the reference here: tests do not need torch
        Contestant("default", Spec("ours", 1), mine=True),
        Contestant("default-fast", Spec("ours", 1, numerics="fast"), mine=True),
        Contestant("odd", Spec("no such library", 1)),
    ]
    with Field(contestants, tmp_path, QUICK) as field:
        first = field.unit("operators", "overhead_relu16")
        second = field.unit("operators", "GMM.s0.b1")
    for cells in (first, second):
        assert cells["torch"]["error"] == 0.0
        assert 0.0 < cells["default"]["min"] <= cells["default"]["median"] < 1.0
        assert len(cells["default"]["rounds"]) == 2
        assert cells["default"]["error"] <= 1e-6
        assert cells["default-fast"]["skip"] == "as strict: no fast algorithm applies"
        assert "no such library" in cells["odd"]["failed"]
        assert "median" not in cells["odd"]


def test_a_process_that_dies_is_a_failure_of_its_contestant_only(tmp_path):
    contestants = [Contestant("torch", Spec("numpy", 1)), Contestant("other", Spec("numpy", 1))]
    with Field(contestants, tmp_path, QUICK) as field:
        field.unit("operators", "overhead_relu16")
        time = field._time

        def killing(name):
            if name == "other":
                field._children[name].kill()
            return time(name)

        field._time = killing
        cells = field.unit("operators", "overhead_relu16")
        field._time = time
        again = field.unit("operators", "overhead_relu16")
    assert "nothing is set up" in cells["other"]["failed"]
    assert "median" in cells["torch"]
    assert "median" in again["other"]


def test_without_a_reference_nobody_is_timed(tmp_path):
    contestants = [
        Contestant("torch", Spec("numpy", 1)),
        Contestant("default", Spec("ours", 1), mine=True),
    ]
    with Field(contestants, tmp_path, QUICK) as field:
        cells = field.unit("operators", "gelu_128x3072")  # NumPy has no erf
    assert cells["torch"]["skip"] == "not one NumPy expression"
    assert why_not(cells["default"]) == "torch has no answer to compare with"


def test_where_torch_does_not_take_part_onnxruntime_is_the_judge(tmp_path):
    field = Field([], tmp_path)
    np.save(tmp_path / "onnxruntime.npy", np.array([1.0, -2.0]))
    np.save(tmp_path / "tuned.npy", np.array([1.0, -3.0]))
    cells = {"torch": {"skip": "there is no torch module of it"}, "onnxruntime": {}, "tuned": {}}
    field._compare(cells)
    assert cells["onnxruntime"]["error"] == 0.0
    assert cells["tuned"]["refused"] == "differs from onnxruntime by 5.0e-01 of the largest element"
    cells = {"torch": {"failed": "it crashed"}, "onnxruntime": {}}
    field._compare(cells)
    assert cells["onnxruntime"]["failed"] == "torch has no answer to compare with"


def test_a_wrong_answer_is_refused(tmp_path):
    field = Field([], tmp_path)
    np.save(tmp_path / "torch.npy", np.array([1.0, -2.0]))
    np.save(tmp_path / "near.npy", np.array([1.0001, -2.0]))
    np.save(tmp_path / "far.npy", np.array([1.001, -2.0]))
    cells = {"torch": {}, "near": {}, "far": {}, "late": {"failed": "x"}}
    field._compare(cells)
    assert "refused" not in cells["torch"]
    assert "refused" not in cells["near"]
    assert cells["far"]["refused"] == "differs from torch by 5.0e-04 of the largest element"
    assert cells["late"] == {"failed": "x"}


def test_distance():
    a = np.array([[1.0, 4.0]])
    assert distance(a, a) == 0.0
    assert distance(a + 1, a) == pytest.approx(0.25)
    assert distance(a.T, a) == float("inf")
    assert distance(np.array([[1.0, np.nan]]), a) == float("inf")
    assert distance(np.zeros(3), np.zeros(3)) == 0.0


def test_summary_is_over_all_samples_and_keeps_the_rounds():
    blocks = [
        {"seconds": [1.0, 2.0, 9.0], "foreign": 0.0, "cpu_s": 24.0, "wall_s": 12.0},
        {"seconds": [3.0, 4.0, 5.0], "foreign": 0.2, "cpu_s": 12.0, "wall_s": 12.0},
    ]
    expected = {"median": 3.5, "min": 1.0, "rounds": [2.0, 4.0], "samples": 6, "foreign": 0.2, "cores": 1.5}
    assert summary(blocks) == expected


def test_asking_what_cannot_start_gives_the_reason():
    with Child("no_module_of_this_name") as child:
        assert "did not start" in ask(child, {"do": "clear"}, 5.0)["failed"]


def test_tuning_fills_the_log_once(tmp_path):
    spec = Spec("ours", 1, log=str(tmp_path / "log.db"))
    asked = {"do": "tune", "suite": "operators", "job": "overhead_relu16", "trials": 2, "seed": 0}
    with child_of(spec) as child:
        first, second = ask(child, asked, 120.0), ask(child, asked, 120.0)
    assert first["trials"] > 0
    assert first["reused"] == 0
    assert second["reused"] == second["trials"] == first["trials"]
    json.dumps(first)
