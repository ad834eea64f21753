"""Sealed files that lie are answered in one sentence: no signal, no hang, no gigabytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import lies
import pytest
from lies_zip import LIES

from autotensor.runtime.files import artifact_file as artifacts

HERE = Path(__file__).parents[1]
GROUPS = 4  # children; each opens a share of the files, one after another
LIMIT_S = 60.0  # of one file
MOST_MEGABYTES = 2048


@pytest.fixture(scope="module", autouse=True)
def right_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    before = os.environ.get("AUTOTENSOR_DB")
    os.environ["AUTOTENSOR_DB"] = str(tmp_path_factory.mktemp("log") / "tuning.db")
    lies.make_right()
    if before is None:
        del os.environ["AUTOTENSOR_DB"]
    else:
        os.environ["AUTOTENSOR_DB"] = before


def opened(files: list[Path]) -> list[dict[str, object]]:
    """The answer of a child for each file. A signal counts for the file at which it came."""
    done = subprocess.run(
        [sys.executable, "-P", str(HERE / "liar_worker.py"), *map(str, files)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S + len(files),
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = [line for line in lines if "begins" not in line]
    if len(found) < len(files):
        began = [line["begins"] for line in lines if "begins" in line]
        found.append({"file": began[-1], "error": f"exit code {done.returncode}", "told": done.stderr[-500:]})
    return found


def test_right_files_are_right(tmp_path: Path) -> None:
    """Otherwise, the following files would be refused for another reason."""
    files = []
    for name in lies.RIGHT.keys() - {"card"}:
        files.append(tmp_path / f"{name}.atm")
        files[-1].write_bytes(lies.right(name))
    found = opened(files)
    assert [f["called"] for f in found] == [True] * len(files), found
    assert artifacts.load_all("it", lies.right("card"))[0].name == "card"  # which only a card can call


def test_there_are_enough() -> None:
    assert len(LIES) >= 200


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_lie_is_one_sentence(group: int, tmp_path: Path) -> None:
    names = [name for n, name in enumerate(LIES) if n % GROUPS == group]
    files = []
    for n, name in enumerate(names):
        files.append(tmp_path / f"{n}.atm")
        files[-1].write_bytes(LIES[name]())
    left, found = list(files), []
    while left:
        found += opened(left)
        left = files[len(found) :]
    wrong = []
    for name, f in zip(names, found, strict=True):
        sentence = str(f["told"])
        fine = f["error"] in ("ArtifactError", "TargetError") and "\n" not in sentence and len(sentence) < 600
        if not fine or float(str(f["seconds"])) > LIMIT_S or float(str(f["megabytes"])) > MOST_MEGABYTES:
            wrong.append(f"{name}: {f}")
    assert not wrong, "\n".join(wrong)
