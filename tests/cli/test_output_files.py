"""Existing files at a verb's output: its own earlier output is replaced, another file with --force, its input
never."""

from __future__ import annotations

import os
import threading

import pytest
from cli_tools import add_two_machines, cli, mlp_plan

from tuning_db import connect

FOREIGN = "a letter\n"


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "log.db"
    with connect(path) as store:
        add_two_machines(store, mlp_plan())
    monkeypatch.setenv("AUTOTENSOR_DB", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def refused(said, why):
    assert said.code == 1, said.out
    assert said.err.startswith("autotensor: ")
    assert why in " ".join(said.err.split())
    assert said.out == ""


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_an_export_replaces_an_export_and_other_files_only_with_force(log, tmp_path, format):
    out = tmp_path / f"x.{format}"
    for _ in range(2):
        assert cli("db", "export", out).code == 0
    out.write_text(FOREIGN)
    refused(cli("db", "export", out), f"{out} exists and is not a")
    assert out.read_text() == FOREIGN
    assert cli("db", "export", out, "--force").code == 0
    assert out.read_bytes() != FOREIGN.encode()
    out.write_bytes(b"")
    assert cli("db", "export", out).code == 0


def test_an_export_never_replaces_its_own_log(log, tmp_path):
    (tmp_path / "link.jsonl").symlink_to(log)
    before = log.read_bytes()
    for out in (log, "link.jsonl"):
        for force in ([], ["--force"]):
            refused(cli("db", "export", out, *force), f"{out} is the tuning log itself. Name another file.")
    assert log.read_bytes() == before
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize(
    ("verb", "name", "kind"),
    [
        (["run", "mlp.atm", "--output"], "y.npy", "a .npy file"),
        (["run", "mlp.atm", "--output"], "y.npz", "an .npz file"),
        (["bench", "mlp.atm", "--trace"], "other.atm", "a timeline"),
        (["report", "-o"], "r.html", "an HTML page"),
    ],
)
def test_another_file_is_refused(log, tmp_path, verb, name, kind):
    (tmp_path / "mlp.atm").write_bytes(b"")  # refusals come before it is read
    (tmp_path / name).write_text(FOREIGN)
    refused(
        cli(*verb, name), f"{name} exists and is not {kind}. Name another file, or replace it by --force."
    )
    assert (tmp_path / name).read_text() == FOREIGN
    for force in ([], ["--force"]):
        refused(cli(*verb, log, *force), "log.db" if verb[0] != "run" else "unknown ending")


def test_a_timeline_replaces_a_timeline_and_never_its_model(log, tmp_path):
    assert cli("compile", "mlp").code == 0
    model = (tmp_path / "mlp.atm").read_bytes()
    for words in (["mlp.atm"], ["mlp.atm", "--force"]):
        refused(cli("bench", "mlp.atm", "--trace", *words), "mlp.atm is the model itself. Name another file.")
    assert (tmp_path / "mlp.atm").read_bytes() == model
    for _ in range(2):
        assert cli("bench", "mlp.atm", "--repeat", "3", "--trace", "t.json").code == 0


def test_an_export_goes_into_a_fifo(log, tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert cli("db", "export", pipe).code == 0
    reader.join(10)
    assert pipe.is_fifo()
    assert cli("db", "export", "x.jsonl").code == 0
    assert found == [(tmp_path / "x.jsonl").read_bytes()]


def test_a_model_is_not_written_into_a_fifo(log, tmp_path):
    os.mkfifo(tmp_path / "m.atm")
    said = cli("compile", "mlp", "-o", "m.atm")
    assert said.code == 1
    assert "m.atm is not a file on disk, which a compiled model must be. Name a file." in said.err


def test_a_c_library_replaces_only_one_of_its_model(log, tmp_path):
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "mlp.h").write_text("/* my own */")
    fix = "Name another folder with --out, or replace it by --force."
    said = cli("compile", "mlp", "--emit", "c", "-o", folder)
    assert said.code == 1
    assert f"mlp.h exists and does not belong to a C library of mlp. {fix}" in said.err
    assert (folder / "mlp.h").read_text() == "/* my own */"
    assert cli("compile", "mlp", "--emit", "c", "-o", folder, "--force").code == 0
    assert cli("compile", "mlp", "--emit", "c", "-o", folder).code == 0
    before = (folder / "mlp.weights").read_bytes()
    said = cli("compile", "small_cnn", "--emit", "c", "-o", folder, "--name", "mlp")
    assert said.code == 1
    assert f"mlp.h exists and does not belong to a C library of small_cnn. {fix}" in said.err
    assert (folder / "mlp.weights").read_bytes() == before


@pytest.mark.parametrize("verb", ["compile", "tune"])
def test_a_file_that_is_not_a_model_is_not_replaced(log, tmp_path, verb):
    (tmp_path / "m.atm").write_bytes(b"a letter")
    said = cli(verb, "mlp", "-o", "m.atm")
    assert said.code == 1
    assert said.err.strip().splitlines()[-1] == (
        "autotensor: m.atm exists and cannot be read as a compiled model. Name another file with --out, or "
        "replace it by --force."
    )
    assert (tmp_path / "m.atm").read_bytes() == b"a letter"
    if verb == "compile":
        assert cli(verb, "mlp", "-o", "m.atm", "--force").code == 0


@pytest.mark.parametrize(
    ("words", "name", "better"),
    [
        (
            ["report", "-o"],
            "page.txt",
            "an HTML page, but its name ends in .txt. Name it page.html.",
        ),
        (
            ["bench", "mlp", "--trace"],
            "t.csv",
            "a timeline, but its name ends in .csv. Name it t.json.",
        ),
    ],
)
def test_a_name_of_another_kind_of_file_is_refused(log, tmp_path, words, name, better):
    refused(cli(*words, name), f"{name} would be {better}")
    refused(cli(*words, name, "--force"), f"{name} would be {better}")
    assert not (tmp_path / name).exists()
