"""doctor reports the parts that are present and those that are missing, and never fails."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cli_tools import RATES, calibrated_log, cli
from planted_cpu import PLANTED, planted, target_of

from autotensor.base import target
from autotensor.base.machine import host_machine
from autotensor.cli import characterise
from autotensor.search.machine import calibration
from tuning_db import connect
from tuning_db.records import Calibration


@pytest.fixture
def log(tmp_path, monkeypatch):
    """An empty log with this machine's rates."""
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
    assert found["platform"]["standing"] in ("tested", "partly tested", "untested")
    assert found["places"]["log"]["trials"] == 0


def test_doctor_lists_all_extras_and_targets(log):
    found = json.loads(cli("doctor", "--json").out)
    known = {"onnx", "torch", "cupy", "pyopencl", "psycopg", "distributed", "PIL", "matplotlib", "altair"}
    assert known <= set(found["optional"])
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

    def measure(*args):
        args[-1]("this machine is busy.")
        return answers.pop(0)

    monkeypatch.setattr(calibration, "measure", measure)
    with connect(log) as store:
        store.put_calibration(
            host_machine().fingerprint, [Calibration(n, v, u) for n, (v, u) in spoilt.items()]
        )
    said = cli("doctor")
    assert said.code == 0
    assert "machine is busy" not in said.out + said.err  # the note is about the same programs
    assert "Note       the rates are provisional: other programs used 0.8 cores meanwhile and " in said.out
    assert "disturbed 87% of the samples; a later run measures them again, or --calibrate does" in said.out
    assert "peak 100.0 GFLOP/s a core" in said.out  # not the worse ones of the second measurement
    said = cli("doctor")
    assert "provisional" not in said.out
    assert "Note       this machine is busy.\n" in said.out
    assert not answers


def test_doctor_finds_problems(tmp_path, log):
    (tmp_path / "bad.db").write_bytes(b"x" * 5000)
    said = cli("doctor", "--db", "bad.db")
    assert said.code == 1
    assert "Problem " in said.out
    assert "is not a tuning log" in said.out


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ("cache", "cache/objects cannot be used: a file is in the place of a folder above it"),
        ("cache/objects", "cache/objects cannot be used: a file is in the place of this folder"),
        ("cache/prepared", "cache/prepared cannot be used: a file is in the place of this folder"),
    ],
)
def test_doctor_says_why_the_cache_cannot_be_used(planted, told, tmp_path, log, monkeypatch):
    (tmp_path / planted).parent.mkdir(exist_ok=True)
    (tmp_path / planted).touch()
    monkeypatch.setenv("AUTOTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    said = cli("doctor")
    assert said.code == 0
    (note,) = (line for line in said.out.splitlines() if line.startswith("Note       cache: "))
    assert told in note
    assert note.endswith("It is for compiling faster a second time; compiled files run without it.")


def test_doctor_says_that_the_cache_belongs_to_somebody_else(tmp_path, log, monkeypatch):
    monkeypatch.setenv("AUTOTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "autotensor.runtime.files.object_cache.make_own", lambda f: f"{f} belongs to another user"
    )
    assert f"cache: {tmp_path}/cache/objects belongs to another user." in cli("doctor").out


def test_doctor_shows_a_quota(log, monkeypatch):
    monkeypatch.setattr(target, "cpu_quota", lambda: 1.25)
    monkeypatch.setattr("autotensor.base.granted.control_group.cpu_quota", lambda: 1.25)
    target.host.cache_clear()
    try:
        assert ", a quota of 1.25 cores' time, 1 used\n" in cli("doctor").out
    finally:
        target.host.cache_clear()


# -- --characterise -----------------------------------------------------------------------------------------


def characterised(monkeypatch, *words):
    """The command on a planted machine."""

    def passes(target, said):
        said(0)
        return [planted(PLANTED)] * 3

    monkeypatch.setattr(characterise, "measured_passes", passes)
    monkeypatch.setattr("autotensor.cli.verbs.doctor.target_of", lambda name, threads: target_of(PLANTED))
    return cli("doctor", "--characterise", *words)


def test_characterise_prints_a_record_and_nothing_else(monkeypatch):
    said = characterised(monkeypatch)
    assert said.code == 0
    assert said.err == "pass 1 of 3 …\n"
    names = {}
    exec(compile(said.out, "printed", "exec"), names)
    assert names["NEW"].archs == PLANTED.archs
    assert names["NEW"].region == PLANTED.region
    where = f"{host_machine().cpu_model}, {datetime.now(UTC):%Y-%m}"
    assert f"    region=6000,  # (6000 cycles of a region that hands 1 KiB on; {where})\n" in said.out


def test_characterise_as_json(monkeypatch):
    found = json.loads(characterised(monkeypatch, "--json").out)
    (region,) = (f for f in found["measured"] if f["field"] == "region")
    assert region["value"] == 6000
    assert region["nearest"] == 2500
    (halves,) = (f for f in found["measured"] if f["field"] == "halves")
    assert halves["value"] is None, "JSON has no infinity"
    assert "winograd" in found["not_measured"]
    assert found["python"].count("\nNEW = replace(") == 1


def test_characterise_where_it_cannot_be_done(monkeypatch):
    monkeypatch.setattr(
        "autotensor.cli.verbs.doctor.target_of", lambda *args: replace(target.host(), arch="generic")
    )
    said = cli("doctor", "--characterise")
    assert said.code != 0
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "LLVM has no name for this processor, by which a record could be found." in said.err


@pytest.mark.parametrize("other", ["--calibrate", "--aa"])
def test_characterise_stands_alone(other):
    said = cli("doctor", "--characterise", other)
    assert said.code == 2
    assert said.out == ""
    assert "--characterise prints a record alone: leave out --calibrate and --aa." in said.err
