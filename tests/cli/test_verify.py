"""verify: its output for right models and for wrong ones."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import planting
import pytest
from cli_tools import add_trials, cli

import autotensor as at
from autotensor.base.machine import host_machine
from autotensor.base.target import parse
from autotensor.models import MODELS
from autotensor.runtime.files import artifact_file as artifacts
from tuning_db import connect


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "own.db"))


def test_a_right_model():
    said = cli("verify", "mlp", "--against", "float64")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].split() == ["kernel", "error/allowed", "from", "float64", "verdict"]
    assert lines[2].split()[-1] == "right"
    assert re.match(
        r"Result '\w+' differs from that of float64 by at most .* at \[0, \d\]: .* there\.", lines[-2]
    )
    assert lines[-1].startswith("All 3 kernels are right, and the model as a whole (")
    assert not Path("wrong_kernel.py").exists()


def test_a_wrong_kernel_is_named_with_its_trace_and_a_script():
    plan = at.plan_model(MODELS.get("mlp").build(batch=1))
    wrong, _ = planting.model_with(plan, 1, planting.wrong_constant)
    artifacts.save("mlp.atm", wrong)
    said = cli("verify", "mlp.atm")
    assert said.code == 1
    name = plan.tasks[1].name
    assert f"Kernel 1, {name}, is the first that is wrong: output 't2': " in said.out
    assert "It was made by no trial that the log has." in said.out
    assert '  s["t1"].' in said.out
    assert said.out.endswith("`--script FILE.py` writes a script that shows it, with its data.\n")
    assert sorted(p.name for p in Path().iterdir()) == ["mlp.atm"]
    document = json.loads(cli("verify", "mlp.atm", "--json", "--script", "other.py").out)
    assert document["first_wrong"] == 1
    assert [k["complaint"] == "" for k in document["kernels"]] == [True, False, True]
    assert Path("other.npz").exists()
    for _ in range(2):
        assert cli("verify", "mlp.atm", "--script", "other.py").out.endswith("python other.py shows it.\n")
    before = Path("mlp.atm").read_bytes()
    said = cli("verify", "mlp.atm", "--script", "mlp.py")
    assert "mlp.atm exists, and the script's data would replace it." in said.err
    Path("own.py").write_text("print(1)")
    assert "own.py exists and is not a script" in cli("verify", "mlp.atm", "--script", "own.py").err
    assert Path("mlp.atm").read_bytes() == before


def test_the_verdict_is_told_if_the_script_cannot_be_written(monkeypatch):
    plan = at.plan_model(MODELS.get("mlp").build(batch=1))
    wrong, _ = planting.model_with(plan, 1, planting.wrong_constant)
    artifacts.save("mlp.atm", wrong)

    def full(script, *rest):
        raise OSError(errno.ENOSPC, "No space left on device", str(script.with_suffix(".npz")))

    monkeypatch.setattr("autotensor.api.verifying.verify.write_case", full)
    said = cli("verify", "mlp.atm", "--script", "s.py")
    assert said.code == 1
    assert "is the first that is wrong: output 't2': " in said.out
    end = "The script s.py could not be written: s.npz: No space left on device.\n"
    assert said.out.endswith(end)


def test_a_trial_of_the_log_is_named(tmp_path):
    task = at.plan_model(MODELS.get("mlp").build(batch=1)).tasks[1]
    with connect(tmp_path / "own.db") as store:
        add_trials(store, task.workload, [5e-6, 2e-6, 4e-6])
        best = store.best(task.workload.key, parse().key(), host_machine().fingerprint)[0]
    assert cli("compile", "mlp").code == 0
    numbers = [k["trial"] for k in json.loads(cli("verify", "mlp.atm", "--json").out)["kernels"]]
    assert numbers == [None, best.id, None]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["mlp.png"], "mlp.png"),
        (["mlp.atm"], "cannot read mlp.atm"),
        (["mlp", "--input", "none.npy"], "there is no input file 'none.npy'."),
        (["mlp", "--against", "none.onnx"], "this is neither float64 nor an existing .onnx file."),
    ],
)
def test_what_is_said_of_mistakes(words, told):
    said = cli("verify", *words)
    assert said.code == 1
    assert told in said.err


def test_of_a_file_for_several_processors_one_is_verified():
    assert cli("compile", "mlp", "--for", "x86-64-v2,x86-64-v3").code == 0
    said = cli("verify", "mlp.atm")
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1].startswith("All 3 kernels are right")
    refused = cli("compile", "mlp.atm", "--emit", "c")
    assert refused.code == 1
    assert "mlp.atm" in refused.err
