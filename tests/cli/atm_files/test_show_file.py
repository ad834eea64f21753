"""autotensor show FILE.atm: what a compiled file holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_tools import add_trials, cli, mlp_plan

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.models import MODELS
from tuning_db import connect


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "own.db"))


def shown(path: str) -> dict:
    said = cli("show", path, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_a_model_with_a_tuned_kernel():
    task = mlp_plan().tasks[1]
    with connect("own.db") as store:
        add_trials(store, task.workload, [5e-6, 2e-6, 4e-6])
    assert cli("compile", "mlp").code == 0
    document = shown("mlp.atm")
    assert document["bytes"] == Path("mlp.atm").stat().st_size
    (f,) = document["functions"]
    assert f["inputs"] == [{"name": "x", "dtype": "float32", "shape": [1, 784]}]
    assert f["version"] == at.__version__
    assert (f["weights"], f["prepared"], f["used_here"]) == ("random", False, True)
    assert f["weights_bytes"] == 4 * (784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10)
    assert f["target"] == parse().key()
    assert [(k["schedule"], k["trial"], k["median_s"]) for k in f["kernels"]] == [
        ("default", None, None), ("log", 2, 2e-6), ("default", None, None),
    ]  # fmt: skip
    said = cli("show", "mlp.atm").out
    assert f"written by autotensor {at.__version__} on " in said
    assert "mlp: (x: float32[1, 784]) -> (logits: float32[1, 10])" in said
    assert "Weights: 2.14 MB, random, so its answers mean nothing; the first load prepares them." in said
    assert "trial 2" in said
    assert [k["is_default"] for k in f["kernels"]] == [True, False, True]
    Path("own.db").rename("away.db")
    assert [k["schedule"] for k in shown("mlp.atm")["functions"][0]["kernels"]] == [
        "default",
        "other",
        "default",
    ]
    assert "not in this log" in cli("show", "mlp.atm").out


def test_run_time_extents_and_their_trials():
    task = at.plan_model(
        at.open_graph(
            lambda n: MODELS.get("mlp").build(batch=n), te.var("batch", range=(8, 64), multiple_of=8)
        )
    ).tasks[0]
    with connect("own.db") as store:
        add_trials(store, task.workload.at_greatest, [5e-6])
    assert cli("compile", "mlp", "--batch", "8..64/8", "--store", "prepared").code == 0
    (f,) = shown("mlp.atm")["functions"]
    assert f["inputs"][0]["shape"] == ["batch", 784]
    assert f["extents"] == {"batch": [8, 64, 8]}
    assert f["prepared"]
    assert f["kernels"][0]["trial"] == 1
    said = cli("show", "mlp.atm").out
    assert "mlp: (x: float32[batch, 784]) -> (logits: float32[batch, 10])" in said
    assert "Run-time extents: batch from 8 to 64 in steps of 8." in said


def test_a_file_for_several_processors_says_which_is_used():
    assert cli("compile", "mlp", "--for", "x86-64-v2,x86-64-v3", "--force").code == 0
    assert [f["used_here"] for f in shown("mlp.atm")["functions"]] == [False, True]
    said = " ".join(cli("show", "mlp.atm").out.split())
    assert "2 functions" in said
    assert said.count("It is not used here.") == 1
    assert said.count("Schedules: 3 default.") == 2
    assert said.count("us in the log") == 1  # one table, of the function that is used


def test_compiling_for_several_processors_says_the_schedules_of_each():
    said = cli("compile", "mlp", "--for", "x86-64-v2,x86-64-v3")
    assert said.code == 0, said.err
    assert "Schedules for x86-64-v2: 0 from the log, 3 default." in said.out
    assert "Schedules for x86-64-v3: 0 from the log, 3 default." in said.out
    said = cli("compile", "mlp", "--for", "x86-64-v2,x86-64-v3", "--json")
    assert [(e["target"].split("/")[1], e["tasks"]["default"]) for e in json.loads(said.out)["each"]] == [
        ("x86-64-v2", 3), ("x86-64-v3", 3),
    ]  # fmt: skip


def test_a_single_kernel_with_a_free_constant():
    A, W = te.placeholder((4,), name="A"), te.placeholder((4,), name="W", constant=True)
    at.build([A, W, te.compute((4,), lambda i: A[i] + W[i], name="B")]).save("k.atm")
    (f,) = shown("k.atm")["functions"]
    assert [a["name"] for a in f["constants"]] == ["W"]
    assert f["version"] is None
    assert f["kernels"][0]["count"] == 1
    assert "(A: float32[4], W: float32[4]) -> (B: float32[4])" in cli("show", "k.atm").out


def test_what_is_said_of_mistakes():
    assert cli("compile", "mlp").code == 0
    assert "it prints a task or a trial, not a file" in cli("show", "mlp.atm", "--as", "asm").err
    said = cli("explain", "mlp.atm")
    assert said.code == 1
    assert "mlp.atm is a whole model. `autotensor show mlp.atm` lists its kernels." in said.err
    np.save("x.npy", np.zeros(3))
    assert "x.npy is not an .atm file" in cli("show", "x.npy").err
    assert "cannot read none.atm" in cli("show", "none.atm").err
