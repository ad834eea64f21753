"""The errors of a full disk name the file. Here, a limit on the size of files replaces the full disk."""

from __future__ import annotations

import errno
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_tools import cli

from autotensor.base import switches
from autotensor.insight.timeline import Span, Timeline
from autotensor.runtime.files.atomic_write import naming, replacing


@contextmanager
def most_bytes(count: int) -> Iterator[None]:
    """No file may grow beyond this size. The error is EFBIG; like ENOSPC, it names no file."""
    before, silent = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python keeps what it could write of a module's bytecode
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = silent


def test_a_file_that_cannot_be_completed_is_named_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="too large") as raised, most_bytes(100), replacing(path) as file:
        file.write(b"x" * 1000)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_told_by_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "no" / "x.bin"
    with pytest.raises(FileNotFoundError) as raised, replacing(path):
        pass
    assert raised.value.filename == str(path)


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, naming(tmp_path / "mine"):
        (tmp_path / "other").read_bytes()
    assert raised.value.filename == str(tmp_path / "other")


def test_a_c_library_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "own.db"))
    assert cli("compile", "mlp").code == 0
    with most_bytes(3000), switches.override(cache_bytes=0):
        said = cli("compile", "mlp.atm", "--emit", "c", "-o", "library")
    assert said.code == 1
    assert said.err.startswith("autotensor: library/mlp.")
    assert "File too large." in said.err


def test_a_timeline_is_named(tmp_path: Path) -> None:
    timeline = Timeline(tuple(Span("kernel", 0, n, n + 1, {}) for n in range(100)), "t", ("kernels",))
    with pytest.raises(OSError, match="too large") as raised, most_bytes(1000):
        timeline.save(tmp_path / "t.json")
    assert raised.value.filename == str(tmp_path / "t.json")
