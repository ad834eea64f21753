"""Bad input: one clear sentence on standard error, the right exit code, nothing touched."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from contextlib import closing

import numpy as np
import pytest
from cli_tools import add_trials, calibrated_log, cli, finish, start

import autotensor as at
from autotensor.api.log import open_log
from autotensor.base.errors import InputError, TargetError
from autotensor.models import mlp
from autotensor.models.weights import shapes_of
from tuning_db import connect

CASES = [
    (["tun"], 2, r"verb 'tun' is unknown. Did you mean 'tune'\? Known: tune, compile, .*doctor."),
    (["db", "sq"], 2, r"No such command 'sq'. Did you mean 'sql'\? See `autotensor db --help`."),
    (["doctor", "extra"], 2, r"unexpected argument: extra. See `autotensor doctor --help`."),
    (["tune", "mlp", "--trails", "4"], 2, r"No such option: --trails. Did you mean '--trials'\? See .*"),
    (["tasks", "mlp", "--target", "llvm -mcpu=zen9"], 1, r"LLVM has no processor 'zen9' for .*"),
    (["tune"], 2, r"Missing argument 'MODEL'. See `autotensor tune --help`."),
    (["tune", "resnt"], 1, r"model 'resnt' is unknown. Did you mean 'resnet'\?"),
    (["compile", "resnet51"], 1, r"model 'resnet51' is unknown. Did you mean 'resnet5?0?1?8?'\?"),
    (
        ["tune", "net.pt"],
        1,
        r"there is no file net.pt. Export .*net.pt2.*",
    ),
    (
        ["tasks", "mine.atm"],
        1,
        r"mine.atm is compiled already; this verb needs a model. Give the .onnx or .pt2 file .*",
    ),
    (
        ["tune", "mlp", "--trials", "-3"],
        2,
        r"Invalid value for '--trials': it must be at least 1. See `autotensor tune --help`.",
    ),
    (
        ["tune", "mlp", "--trials", "many"],
        2,
        r"Invalid value for '--trials': it must be a whole number. See .*",
    ),
    (
        ["compile", "mlp", "--emit", "rust"],
        2,
        r"Invalid value for '--emit': 'rust' is not one of 'atm', 'c'. .*",
    ),
    (["tvmc", "tune", "m.onnx"], 2, r"verb 'tvmc' is unknown. Write autotensor in place of tvmc: .*"),
    (["tune", "mlp", "--output", "m.atm"], 2, r"No such option: --output. Write -o FILE.atm."),
    (["tune", "mlp", "--repeat", "3"], 2, r"No such option: --repeat. Leave it out: the search decides .*"),
    (["run", "mlp", "--output"], 2, r"Option '--output' requires an argument. See `autotensor run --help`."),
    (["tune", "nosuch.pt2"], 1, r"there is no file nosuch.pt2."),
    (
        ["tune", "mlp", "--deadline", "soon"],
        2,
        r"Invalid value for '--deadline': 'soon' is not a duration. Write 90s, 3m or 1h30m. .*",
    ),
    (
        ["tune", "mlp", "--deadline", "3"],
        2,
        r"Invalid value for '--deadline': '3' has no unit. Write 3s, 3m or 3h. .*",
    ),
    (["tune", "nosuch.onnx"], 1, r"there is no model file 'nosuch.onnx'."),
    (["run", "nosuch.onnx"], 1, r"there is no model file 'nosuch.onnx'."),
    (["tune", "mlp", "-o", "out"], 1, r"out: a compiled model's file ends in .atm. Name it out.atm."),
    (["compile", "mlp", "-o", "m.bin"], 1, r"m.bin: a compiled model's file ends in .atm. Name it .*"),
    (
        ["tune", "mlp", "--effort", "heroic"],
        2,
        r"Invalid value: effort 'heroic' is unknown. Known: quick, normal, full. .*",
    ),
    (
        ["tune", "mlp", "--until-gain-below", "5"],
        2,
        r"Invalid value for '--until-gain-below': '5' is not below 100 %. Write 5% for 5 percent. .*",
    ),
    (
        ["tune", "mlp", "--deadline", "0s"],
        2,
        r"Invalid value for '--deadline': '0s' is not a duration above zero. .*",
    ),
    (["tune", "mlp", "--batch", "0"], 2, r"Invalid value for '--batch': .*"),
    (["tune", "mlp", "--seed", "-1"], 2, r"Invalid value for '--seed': .*"),
    (["tune", "mlp", "--threads", "0"], 2, r"Invalid value for '--threads': .*"),
    (
        ["tune", "mlp", "--cost-model", "magic"],
        2,
        r"Invalid value: cost model 'magic' is unknown. Known: prior, random, xgb. .*",
    ),
    (["tune", "mlp", "--colour"], 2, r"No such option: --colour.*"),
    (["tune", "mlp", "--target", "vdlc"], 1, r"target 'vdlc' cannot run whole models. Take one of llvm, .*"),
    (
        ["compile", "mlp", "--target", "vdlc"],
        1,
        r"target 'vdlc' cannot run whole models. Take one of llvm, .*",
    ),
    (["tune", "mlp", "--target", "quantum"], 1, r"target kind 'quantum' is unknown. Known: llvm, .*"),
    (["tune", "mlp", "--target", " "], 1, r"the target is an empty text. Leave it out, .*"),
    (["tune", "mlp", "--target", "llvm -mcpu='x"], 1, r"target .* cannot be read: no closing quotation."),
    (["tune", "mlp", "--weights", "nix.npz"], 1, r"there is no weights file 'nix.npz'."),
    (["tune", "mlp", "--out", "."], 1, r"\. is a directory. Name a file in it."),
    (
        ["tune", "mlp", "--out", "no/such/x.atm"],
        1,
        r"no/such/x.atm cannot be written: there is no directory .*",
    ),
    (["compile", "mlp", "-o", "/proc/x.atm"], 1, r"/proc/x.atm cannot be written: .*Choose a place .*"),
    (
        ["tasks", "mlp", "--db", "nix.db"],
        1,
        r"there is no tuning log at nix.db. Check the path, or tune first.",
    ),
    (
        ["tune", "mlp", "--db", "no/such/x.db"],
        1,
        r"there is no directory no/such for the tuning log x.db. Create it, or choose another place.",
    ),
    (
        ["tune", "mlp", "--db", "sqlite:///no/such/x.db"],
        1,
        r"there is no directory no/such for the tuning log x.db. Create it, or choose another place.",
    ),
    (
        ["tune", "mlp", "--db", "."],
        1,
        r"tuning log '.' is a directory. Name a file in it, such as tuning.db.",
    ),
    (["tune", "mlp", "--db", "x://y"], 1, r"'x://y' names an unsupported kind of database. .*"),
    (["tune", "mlp", "-o", "m.onnx"], 1, r"m.onnx would be taken for an ONNX model. Name it m.atm."),
    (["compile", "mlp", "--emit", "d"], 2, r"Invalid value for '--emit': .*'d' is not one of 'atm', 'c'.*"),
    (
        ["compile", "mlp", "--name", "m"],
        2,
        r"Invalid value for '--name': it names C functions; add --emit c.*",
    ),
    (
        ["compile", "mlp", "--emit", "c", "--name", "a-b"],
        1,
        r"'a-b' cannot begin the names of C functions. .*",
    ),
    (
        ["compile", "mlp", "--emit", "c", "--target", "cuda"],
        1,
        r"target 'cuda' cannot become a C library; .*",
    ),
    (
        ["compile", "mlp", "--emit", "c", "-o", "/proc/x"],
        1,
        r"/proc/x cannot be written: .*Choose a place .*",
    ),
    (["compile", "none.atm", "--emit", "c"], 1, r"cannot read none.atm: No such file or directory."),
    (["compile", "mlp", "-o", "m.onnx"], 1, r"m.onnx would be taken for an ONNX model. Name it m.atm."),
    (["run", "mlp", "--output", "y.txt"], 1, r"output 'y.txt' has an unknown ending. Known: .npy, .npz."),
    (["run", "nix.atm"], 1, r"cannot read nix.atm: No such file or directory."),
    (["run", "mlp", "--input", "nix.npy"], 1, r"there is no input file 'nix.npy'\..*"),
    (["--hlep"], 2, r"No such option: --hlep. Did you mean '--help'\? See `autotensor --help`."),
    (["-v"], 2, r"No such option: -v. .*See `autotensor --help`."),
    (["tune", "mlp", "--batch", "8..1"], 1, r"'8..1' is not a range: .* Write LEAST..MOST, .*"),
    (["tune", "mlp", "--batch", "8..30/8"], 1, r"'8..30/8' is not a range: .*, both multiples of 8\. .*"),
    (["tune", "mlp", "--numerics", "bf61"], 1, r"numerics 'bf61' is unknown. Did you mean 'bf16'\? .*"),
    (["tune", "."], 1, r"\. is a folder, not a model\. Name a file in it, or a built-in model .*"),
    (["run", "mlp", "--input", "."], 1, r"input '\.' is a folder. Name a file in it\."),
    (["show", "mlp/9"], 1, r"mlp has no task '9'; its tasks are mlp/0 to mlp/2."),
    (["show", "mlp/0", "--as", "music"], 2, r".*'music' is not a form. Known: te, nest, .*"),
    (["db"], 2, r"Missing command. See `autotensor db --help`."),
    (
        ["db", "prune", "--keep", "-1"],
        2,
        r"Invalid value for '--keep': it must be at least 1. See `autotensor db prune --help`.",
    ),
    (["db", "dance"], 2, r"No such command 'dance'. .*"),
    (["db", "check", "--db", "ftp://x/y"], 1, r".*"),
    (["db", "import", "nix.jsonl"], 1, r"there is no file 'nix.jsonl'."),
    (["db", "upgrade", "--db", "nix.db"], 1, r"there is no tuning log at nix.db."),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "own.db"))


def test_no_folder_is_made_for_a_log(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "no" / "own.db"))
    said = one_sentence(cli("tune", "mlp"), 1)
    assert said.startswith(f"there is no directory {tmp_path / 'no'} for the tuning log own.db. Create it")
    with pytest.raises(InputError, match=r"there is no directory .*no/such for the tuning log x.db"):
        open_log(tmp_path / "no" / "such" / "x.db")
    assert not list(tmp_path.iterdir())


def one_sentence(said, code):
    assert said.code == code, said
    assert said.out == ""
    lines = said.err.strip().splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("autotensor: ")
    assert "Traceback" not in said.err
    assert "internal error" not in said.err
    return lines[0].removeprefix("autotensor: ")


@pytest.mark.parametrize(
    ("words", "code", "message"), CASES, ids=lambda v: " ".join(v) if isinstance(v, list) else None
)
def test_bad_input(words, code, message, tmp_path):
    assert re.fullmatch(message, one_sentence(cli(*words), code))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_a_model(tmp_path):
    folder = tmp_path / "net.onnx"
    folder.mkdir()
    assert one_sentence(cli("tasks", str(folder)), 1) == f"{folder} is a folder, not a model file."


def test_help_is_found_in_every_spelling():
    said = [cli(*words) for words in (("tasks", "--help"), ("tasks", "-h"), ("help", "tasks"))]
    assert [s.code for s in said] == [0, 0, 0]
    assert said[0].out == said[1].out == said[2].out
    assert cli("db", "sql", "-h").out == cli("help", "db", "sql").out


def test_no_such_trial():
    calibrated_log("own.db")
    said = one_sentence(cli("show", 17), 1)
    assert said == "the log has no trial 17. `autotensor explain TASK` lists a task's fastest ones."


def test_a_wrong_level_of_debugging_shows_no_traceback(monkeypatch):
    monkeypatch.setenv("AUTOTENSOR_DEBUG", "much")
    said = one_sentence(cli("compile", "mlp"), 1)
    assert said.startswith("AUTOTENSOR_DEBUG='much' cannot be used: it must be a whole number, not negative.")


def test_foreign_database(tmp_path):
    with closing(sqlite3.connect("other.db")) as db:
        db.execute("CREATE TABLE t (x)")
        db.commit()
    before = (tmp_path / "other.db").read_bytes()
    for words in (["db", "check"], ["tune", "mlp", "--trials", "1"], ["tasks", "mlp"], ["compile", "mlp"]):
        said = cli(*words, "--db", "other.db")
        assert "another program" in said.err
        assert said.code == 1
    assert (tmp_path / "other.db").read_bytes() == before
    assert not list(tmp_path.glob("*.atm"))


def test_text_file_as_database():
    with open("notes.txt", "w") as file:
        file.write("no database\n" * 100)
    assert "is not a tuning log" in one_sentence(cli("db", "list", "--db", "notes.txt"), 1)


def test_newer_database(tmp_path):
    log = calibrated_log(tmp_path / "new.db")
    with closing(sqlite3.connect(log)) as db:
        db.execute("UPDATE tuning_db_version SET version_num = '0099'")
        db.execute("PRAGMA user_version = 99")
        db.commit()
    before = log.read_bytes()
    for words in (["db", "check"], ["tasks", "mlp"], ["db", "upgrade"]):
        assert "schema version 99; this program reads only" in one_sentence(cli(*words, "--db", log), 1)
    assert log.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_unreadable_and_read_only_database(tmp_path):
    log = calibrated_log(tmp_path / "mine.db")
    log.chmod(0)
    assert "cannot read tuning log" in one_sentence(cli("db", "check", "--db", log), 1)
    log.chmod(0o400)
    assert "is read-only" in one_sentence(cli("db", "merge", log, "--db", log), 1)


REPLACED = r" Name another file with --out, or replace it by --force\."


@pytest.mark.parametrize("verb", ["compile", "tune"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mlp", "--threads", "64"], r"m.atm holds mlp with the target llvm/.*/t1, not .* llvm/.*/t64\."),
        (["mlp", "--batch", "3"], r"m.atm holds mlp with the inputs x: .*\[1, 784\], not .*\[3, 784\]\."),
        (["mlp", "--numerics", "strict"], r"m.atm holds mlp with the target llvm/.*, not .*/t1/strict\."),
        (["small_cnn"], r"m.atm holds mlp, not small_cnn\."),
        (["mlp", "--weights", "w.npz"], r"m.atm holds mlp with weights random, not weights from w.npz\."),
    ],
)
@pytest.mark.sample(3)
def test_a_file_of_another_configuration_is_not_replaced(tmp_path, verb, words, message):
    own = [] if "--threads" in words else ["--threads", "1"]
    assert cli("compile", "mlp", "-o", "m.atm", "--threads", "1").code == 0
    np.savez("w.npz", **{n: np.zeros(s, np.float32) for n, s in shapes_of(mlp.build).items()})
    before = (tmp_path / "m.atm").read_bytes()
    said = cli(verb, *words, *own, "-o", "m.atm")
    assert said.code == 1
    assert re.fullmatch("autotensor: " + message + REPLACED, said.err.strip().splitlines()[-1])
    assert (tmp_path / "m.atm").read_bytes() == before
    if verb == "compile":
        assert cli(verb, *words, *own, "-o", "m.atm", "--force").code == 0
        assert (tmp_path / "m.atm").read_bytes() != before


def test_a_tuned_file_is_not_replaced_by_a_log_that_does_not_know_it(tmp_path):
    """A file of another log's results stays, even if the deadline is short."""
    plan = at.plan_model(mlp.build())
    calibrated_log("other.db")
    with connect("other.db") as store:
        for task in plan.tasks:
            add_trials(store, task.workload, [2e-5, 1e-5])  # the first is the default
    assert cli("compile", "mlp", "--db", "other.db").code == 0
    before = (tmp_path / "mlp.atm").read_bytes()
    calibrated_log("own.db")
    said = cli("tune", "mlp", "--deadline", "0.01s")
    assert said.code == 1
    assert said.err.strip().splitlines()[-1] == (
        "autotensor: mlp.atm exists and may be tuned, but this log has none of its tasks: "
        "default schedules would replace it at once. Give the log that it was tuned with (--db), "
        "another file (--out), or --force."
    )
    assert (tmp_path / "mlp.atm").read_bytes() == before
    assert cli("tune", "mlp", "--deadline", "0.01s", "--force").code == 3


def test_a_file_of_the_same_configuration_is_replaced(tmp_path):
    for _ in range(2):
        assert cli("compile", "mlp", "-o", "m.atm").code == 0
    (tmp_path / "m.atm").write_bytes(b"")
    assert cli("compile", "mlp", "-o", "m.atm").code == 0


def test_no_time_for_a_trial_is_said(tmp_path):
    calibrated_log("own.db")
    said = cli("tune", "mlp", "--deadline", "0.01s")
    assert said.code == 3
    assert said.err.strip().splitlines()[-1] == (
        "Nothing was measured: the deadline of 0.01s came before the first trial. mlp.atm has the "
        "schedules that were known before; give more time, e.g. --deadline 1m."
    )
    assert cli("run", "mlp.atm").code == 0


def test_compiled_file_takes_no_weights():
    cli("compile", "mlp", "-o", "m.atm")
    assert "is compiled: --weights" in one_sentence(cli("run", "m.atm", "--weights", "w.npz"), 1)


def mounted(folder, setup, words):
    """Run the command where `setup` has mounted something over `folder`, as seen by that process alone."""
    mount = ["unshare", "--mount", "sh", "-ec", f'{setup}; shift; cd "$0"; exec "$@"', folder, "-"]
    return finish(start(*words, cwd=folder, before=mount))


def can_mount():
    try:
        return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


needs_mount = pytest.mark.skipif(not can_mount(), reason="nothing can be mounted here")
FULL = 'mount -t tmpfs -o size=400k tmpfs "$0"; cp "$0/../log.db" "$0"'
READ_ONLY = 'mount --bind "$0" "$0"; mount -o remount,ro,bind "$0"'


@needs_mount
@pytest.mark.parametrize(
    "words",
    [
        ["compile", "mlp", "-o", "m.atm", "--db", "../log.db"],
        ["tune", "mlp", "--trials", "2", "--db", "../log.db"],
        ["run", "mlp", "--output", "y.npy", "--db", "../log.db", "--batch", "16384"],
    ],
)
@pytest.mark.sample(1)
def test_full_disk(tmp_path, words):
    log, folder = calibrated_log(tmp_path / "log.db"), tmp_path / "small"
    folder.mkdir()
    before = log.read_bytes()
    said = mounted(folder, FULL, words)
    assert said.code == 1, said
    assert "No space left on device" in said.err.splitlines()[-1]
    assert "Traceback" not in said.err
    with connect(log, readonly=True) as store:
        assert store.count() == 0
    if words[0] != "tune":
        assert log.read_bytes() == before


@needs_mount
def test_full_disk_under_the_log(tmp_path):
    calibrated_log(tmp_path / "log.db")
    (tmp_path / "small").mkdir()
    fill = FULL + '; dd if=/dev/zero of="$0/rest" bs=1k 2>/dev/null || true'
    said = mounted(
        tmp_path / "small", fill, ["tune", "mlp", "--trials", "2", "--db", "log.db", "-o", "../m.atm"]
    )
    assert said.code == 1
    assert re.search("log.db.*(disk is full|could not be read or written)", said.err.splitlines()[-1])
    assert "Traceback" not in said.err


@needs_mount
def test_read_only_directory(tmp_path):
    folder = tmp_path / "fixed"
    folder.mkdir()
    log = calibrated_log(folder / "log.db")
    before = log.read_bytes()
    for words in (["compile", "mlp"], ["tune", "mlp", "--trials", "1"]):
        said = mounted(folder, READ_ONLY, [*words, "--db", "../other.db"] if words[0] == "tune" else words)
        assert "mlp.atm cannot be written: Read-only file system. Choose a place" in one_sentence(said, 1)
    for words in (["db", "import", "../x.jsonl"], ["tune", "mlp", "-o", "../m.atm"]):
        (tmp_path / "x.jsonl").write_text("")
        said = mounted(folder, READ_ONLY, [*words, "--db", "log.db"])
        assert said.code == 1
        assert "read-only" in said.err.splitlines()[-1]
    assert mounted(folder, READ_ONLY, ["db", "check", "--db", "log.db"]).code == 0
    assert [p.name for p in folder.iterdir()] == ["log.db"]
    assert log.read_bytes() == before
    assert not (tmp_path / "other.db").exists()


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("AUTOTENSOR_DEBUG", "1")
    said = cli("compile", "resnt")
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1].startswith("autotensor: model 'resnt' is unknown")


def test_a_bug_is_one_sentence_too(monkeypatch):
    from autotensor.cli.verbs import models

    def broken(*_, **__):
        raise KeyError("x")

    monkeypatch.setattr(models, "table", broken)
    said = cli("models")
    assert said.code == 1
    assert "internal error, please report it: KeyError" in said.err
    assert "Traceback" not in said.err


def test_a_device_that_is_not_there_leaves_no_file(monkeypatch, tmp_path):
    from autotensor.runtime.device import devices

    def absent(target):
        raise TargetError("target 'cuda' finds no NVIDIA card here.", fix="Use --target opencl.")

    monkeypatch.setattr(devices, "device_of", absent)
    said = one_sentence(cli("tune", "mlp", "--target", "cuda"), 1)
    assert said == "target 'cuda' finds no NVIDIA card here. Use --target opencl."
    assert not (tmp_path / "mlp.atm").exists()


def test_a_sentence_of_another_library_ends_with_one_period(monkeypatch):
    from autotensor.cli.verbs import models

    def broken(*_, **__):
        raise OSError("Could not load the shared object file.")

    monkeypatch.setattr(models, "table", broken)
    assert cli("models").err == "autotensor: Could not load the shared object file.\n"


@pytest.mark.parametrize(
    ("name", "remedy"), [("xgboost", "The command line needs all packages"), ("PIL.Image", "pip install pil")]
)
@pytest.mark.sample(1)
def test_missing_package(monkeypatch, name, remedy):
    from autotensor.cli.verbs import models

    def broken(*_, **__):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(models, "table", broken)
    assert f"the package {name!r} is not installed. {remedy}" in one_sentence(cli("models"), 1)


def test_a_fleet_without_dask_is_refused_before_anything_is_raced(monkeypatch):
    from autotensor.search.fleet import dask_engine, on_worker

    monkeypatch.setattr(dask_engine, "find_spec", lambda name: None)
    monkeypatch.setattr(on_worker, "check_equal_kernels", lambda *_: pytest.fail("it races kernels"))
    for words in (("worker", "tcp://127.0.0.1:1"), ("status", "tcp://127.0.0.1:1")):
        said = one_sentence(cli("fleet", *words), 1)
        assert said == "a fleet needs dask.distributed. pip install 'autotensor[cluster]'."
