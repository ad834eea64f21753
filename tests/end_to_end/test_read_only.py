"""A container with read-only file systems, without a folder for temporary files and without a home folder
still computes. The tests use a real read-only mount that only one child sees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import cli

ROOT = Path(__file__).parents[2]
READ_ONLY = """
mount --make-rprivate / && mount -o remount,bind,ro / || exit 99
for place in /tmp /var/tmp /usr/tmp; do mountpoint -q $place && mount -o remount,bind,ro $place; done
cd / && exec "$@"
"""
SERVE = """
import sys
import numpy as np
import autotensor as at
from autotensor import te
x = te.placeholder((8,), name="x")
f = at.build([x, te.compute((8,), lambda i: x[i] * 2.0, name="y")])
g = at.compile_model(at.ops.relu(at.input((2, 2))))
h = at.load(sys.argv[1])
print(f(np.ones(8, np.float32)).sum(), g(np.ones((2, 2), np.float32)).sum())
print(h(np.zeros((1, 784), np.float32)).shape)
"""


def can_mount() -> bool:
    try:
        probe = ["unshare", "--mount", "sh", "-c", READ_ONLY, "-", "true"]
        return subprocess.run(probe, capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not can_mount(), reason="nothing can be mounted here")


def there(*command: str, home: str) -> subprocess.CompletedProcess[str]:
    """The output of a command where nothing can be written."""
    hidden = ("AUTOTENSOR_DB", "AUTOTENSOR_CACHE_DIR", "TMPDIR", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": home, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", READ_ONLY, "-", *command],
        capture_output=True, text=True, env=environment, timeout=200,
    )  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "mlp.atm"
    assert cli("compile", "mlp", "-o", path).code == 0
    return path


@pytest.mark.parametrize("home", ["/root", "/nonexistent"])
def test_models_are_built_loaded_and_called(file: Path, home: str) -> None:
    said = there(sys.executable, "-c", SERVE, str(file), home=home)
    assert (said.returncode, said.stdout) == (0, "16.0 4.0\n(1, 10)\n"), said.stderr


@pytest.mark.parametrize("words", [["run", "mlp"], ["run", "FILE"], ["bench", "FILE"], ["tasks", "mlp"]])
def test_verbs_answer(file: Path, words: list[str]) -> None:
    named = [str(file) if w == "FILE" else w for w in words]
    said = there(sys.executable, "-m", "autotensor", *named, home="/nonexistent")
    assert said.returncode == 0, said.stderr
    assert said.stdout


def test_doctor_says_what_cannot_be_written() -> None:
    said = there(sys.executable, "-m", "autotensor", "doctor", home="/nonexistent")
    assert said.returncode == 0, said.stderr
    assert "Note       there is no folder for temporary files that can be written. Set TMPDIR" in said.stdout
    assert "Note       the rates cannot be kept: " in said.stdout
    assert "Threads " in said.stdout
    assert said.stdout.endswith("No problems.\n")


@pytest.mark.parametrize("verb", ["tune", "compile"])
def test_what_must_write_says_so(verb: str) -> None:
    said = there(sys.executable, "-m", "autotensor", verb, "mlp", home="/nonexistent")
    assert said.returncode == 1
    assert said.stderr == (
        "autotensor: mlp.atm cannot be written: Read-only file system. Choose a place that you may write.\n"
    )
