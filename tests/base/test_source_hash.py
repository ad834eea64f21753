"""The hash of source that is running: any change of it is another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotensor.base import source_hash


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    (folder / "b.py").write_text("y = 2\n")
    return folder


def digest(*folders: Path) -> str:
    source_hash.source_digest.cache_clear()  # a process reads them once
    return source_hash.source_digest(folders)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: (p / "a.py").write_text("x = 3\n"),
        lambda p: (p / "c.py").write_text(""),
        lambda p: (p / "b.py").rename(p / "d.py"),
        lambda p: ((p / "a.py").write_text("x = 1\ny = 2\n"), (p / "b.py").write_text("")),
    ],
)
def test_a_change_is_seen(package: Path, change) -> None:
    before = digest(package)
    assert before == digest(package) != ""
    change(package)
    assert digest(package) != before


def test_a_single_file_counts_too(package: Path) -> None:
    assert "" != digest(package / "a.py") != digest(package / "b.py")


def test_what_has_no_source_has_no_hash(package: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert digest(package, empty) == ""
    assert digest(package, tmp_path / "absent") == ""
