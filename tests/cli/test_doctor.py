"""doctor: what is here and what is missing; it never fails."""

from __future__ import annotations

import json
import tempfile

import pytest
from cli_tools import RATES, calibrated_log, cli

from autotensor.base import target
from autotensor.base.machine import host_machine
from autotensor.search.machine import calibration
from tuning_db import connect
from tuning_db.records import Calibration


@pytest.fixture
def log(tmp_path, monkeypatch):
    """An empty log that knows this machine's rates."""
    path = calibrated_log(tmp_path / "log.db")
    monkeypatch.setenv("AUTOTENSOR_DB", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def test_doctor(log):
    said = cli("doctor")
    assert said.code == 0, said.out
    for word in (
        "Platform ",
        "Machine ",
        "Threads ",
        "Rate ",
        "log:",
        "cache:",
        "Installed ",
        "No problems.",
    ):
        assert word in said.out
    found = json.loads(cli("doctor", "--json").out)
    assert found["rates"]["flops.core"]["value"] == 1e11
    assert found["platform"]["standing"] in ("tested", "untested")
    assert found["places"]["log"]["trials"] == 0


def test_doctor_lists_all_extras_and_targets(log):
    found = json.loads(cli("doctor", "--json").out)
    assert {"onnx", "torch", "cupy", "pyopencl", "psycopg", "distributed", "PIL", "matplotlib"} <= set(
        found["optional"]
    )
    assert {"llvm", "cuda", "opencl", "interp", "vdlc"} <= set(found["targets"])
    assert found["targets"]["llvm"] == {"usable": "yes", "what": "this processor"}
    said = cli("doctor").out
    for name, o in found["optional"].items():
        standing = "installed" if o["installed"] else f"missing: pip install {o['package']}"
        assert f"Optional   {name} (for {o['for']}): {standing}\n" in said
    assert "Target     llvm: this processor\n" in said
    if found["targets"]["cuda"]["usable"] == "no":
        assert f"Target     cuda: not here: {found['targets']['cuda']['what']}\n" in said


def test_what_fails_in_doctor_is_one_sentence_and_the_rest_is_said(log, monkeypatch):
    def fails(*args):
        raise ZeroDivisionError("of\na kind")

    sections = ("machine", "threads", "targets", "optional", "rates", "places", "versions", "platform")
    for name in sections:
        monkeypatch.setattr(f"autotensor.cli.verbs.doctor._{name}", fails)
        said = cli("doctor")
        assert said.code == 1
        assert f"Problem    {name}: ZeroDivisionError: of a kind.\n" in said.out
    assert said.out.endswith("8 problems.\n")


def test_doctor_without_folders_to_write(log, monkeypatch, tmp_path):
    def none():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    def refused(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    said = cli("doctor")
    assert said.code == 0, said.out
    assert "Note       there is no folder for temporary files that can be written. Set TMPDIR to" in said.out
    assert "cannot be written: Read-only file system. It is for tuning; compiled files run" in said.out


def test_doctor_measures_again_what_was_disturbed(log, monkeypatch):
    spoilt = {n: (v, "") for n, v in RATES.items()} | {"disturbed": (0.87, ""), "others": (0.8, "cores")}
    answers = [spoilt | {"disturbed": (0.9, ""), "flops.core": (1e9, "")}, spoilt | {"disturbed": (0.1, "")}]
    monkeypatch.setattr(calibration, "measure", lambda *args: answers.pop(0))
    with connect(log) as store:
        store.put_calibration(
            host_machine().fingerprint, [Calibration(n, v, u) for n, (v, u) in spoilt.items()]
        )
    said = cli("doctor")
    assert said.code == 0
    assert "Note       the rates are provisional: other programs used 0.8 cores meanwhile and " in said.out
    assert "disturbed 87% of the runs; they are measured again at a later run, or by --calibrate" in said.out
    assert "peak 100.0 GFLOP/s a core" in said.out  # not the worse ones of the second measurement
    said = cli("doctor")
    assert "provisional" not in said.out
    assert not answers


def test_doctor_finds_problems(tmp_path, log):
    (tmp_path / "bad.db").write_bytes(b"x" * 5000)
    said = cli("doctor", "--db", "bad.db")
    assert said.code == 1
    assert "Problem " in said.out
    assert "is not a tuning log" in said.out


def test_doctor_shows_a_quota(log, monkeypatch):
    monkeypatch.setattr(target, "cpu_quota", lambda: 1.25)
    monkeypatch.setattr("autotensor.base.control_group.cpu_quota", lambda: 1.25)
    target.host.cache_clear()
    try:
        assert ", a quota of 1.25 cores' time, 1 used\n" in cli("doctor").out
    finally:
        target.host.cache_clear()
