"""Hostile files: each is refused in a sentence, in little memory, and none ends the process (hostile.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hostile import HARMLESS, KINDS, Write
from hostile_child import GIGABYTES, SECONDS

CHILD = Path(__file__).with_name("hostile_child.py")
SLOW = [n for n in KINDS if "stays true" in n]  # many rounds are run
QUICK = [n for n in KINDS if n not in SLOW]


def answers(files: Mapping[str, Write], directory: Path) -> dict[str, dict[str, Any]]:
    """What `autotensor run` says of each file, by name."""
    listed = []
    for n, (name, write) in enumerate(files.items()):
        own = directory / str(n)
        own.mkdir()
        listed.append({"name": name, "path": str(write(own))})
    (directory / "files.json").write_text(json.dumps(listed))
    words = [sys.executable, str(CHILD), str(directory / "files.json"), str(directory / "answers.json")]
    subprocess.run(words, check=True)
    found = json.loads((directory / "answers.json").read_text())
    assert [f["name"] for f in found] == list(files)
    return {f["name"]: f for f in found}


def check_refused(names: list[str], directory: Path) -> None:
    wrong = {}
    for name, a in answers({n: KINDS[n] for n in names}, directory).items():
        said = a["said"].strip()
        last = said.splitlines()[-1] if said else ""
        is_sentence = last.startswith("autotensor: ")
        is_raw = "internal error" in said or "Traceback" in said
        if a["code"] not in (1, 2) or not is_sentence or is_raw or a["gigabytes"] > GIGABYTES:
            wrong[name] = a
        assert a["seconds"] < SECONDS
    assert not wrong


def check_runs(names: list[str], directory: Path) -> None:
    found = answers({n: HARMLESS[n] for n in names}, directory)
    assert not {n: a for n, a in found.items() if a["code"] or a["gigabytes"] > GIGABYTES}


def test_there_are_enough_of_them():
    assert len(KINDS) >= 200
    assert len(HARMLESS) >= 40


def test_a_sample_is_refused(tmp_path):
    check_refused(QUICK[::7], tmp_path)


def test_a_sample_of_what_only_looks_bad_runs(tmp_path):
    check_runs(list(HARMLESS)[::6], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_are_refused(tmp_path):
    check_refused(QUICK, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SLOW)
def test_endless_ones_are_refused(name, tmp_path):
    check_refused([name], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_that_only_look_bad_run(tmp_path):
    check_runs(list(HARMLESS), tmp_path)
