"""Code that is executed comes from folders and files of the user's own, and never from the current folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotensor.base import switches
from autotensor.base.python_path import python_path
from autotensor.codegen.llvm.build import _check_target
from autotensor.runtime.device.pocl_cache import use_own_folder
from autotensor.runtime.files.file_ownership import (
    complaint,
    complaint_above,
    complaint_below,
    make_own,
    open_own,
)
from autotensor.runtime.files.object_cache import ObjectCache, object_key
from autotensor.runtime.workers.children import Child, Status

ROOT = Path(__file__).parents[3]
KEY = object_key("k")


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    made = ObjectCache(tmp_path / "autotensor" / "objects", 1 << 20)
    made.put(KEY, b"code")
    assert made.folder is not None
    return made


@pytest.fixture(autouse=True)
def told() -> Iterator[None]:
    with switches.override(debug=1):
        yield


def entry(cache: ObjectCache) -> Path:
    assert cache.folder is not None
    return cache.folder / KEY[:2] / KEY


def test_what_is_made_is_closed_to_others(cache: ObjectCache, tmp_path: Path) -> None:
    for path in (tmp_path / "autotensor").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert complaint_below(tmp_path / "autotensor") == ""


def test_an_umask_that_opens_files_does_not_open_ours(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = ObjectCache(tmp_path / "a" / "objects", 1 << 20)
        made.put(KEY, b"code")
    finally:
        os.umask(before)
    assert [p.stat().st_mode & 0o077 for p in (tmp_path / "a").rglob("*")] == [0] * 4
    assert made.get(KEY) == b"code"


@pytest.mark.parametrize("where", ["entry", "folder"])
@pytest.mark.parametrize("how", ["mode", "owner", "link"])
def test_an_entry_of_others_is_not_used(cache: ObjectCache, where: str, how: str, tmp_path, caplog) -> None:
    path = entry(cache) if where == "entry" else entry(cache).parent
    if how == "mode":
        path.chmod(path.stat().st_mode | 0o020)
        told = f"others may write to {path}"
    elif how == "owner":
        if os.getuid() != 0:
            pytest.skip("only root gives files away")
        os.chown(path, 12345, -1)
        told = f"{path} belongs to another user"
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        told = "Too many levels of symbolic links" if where == "entry" else f"{path} is a link"
    assert cache.get(KEY) is None
    if "symbolic" not in told:
        assert f"cache: {told}; this entry is not used" in caplog.text
    if where == "folder":
        assert cache.put(KEY, b"mine") == b"mine"  # and is not written there
        assert b"mine" not in (path / KEY).read_bytes()


@pytest.mark.parametrize("level", ["objects", "objects/v1"])
def test_a_folder_of_others_is_not_used_at_all(
    cache: ObjectCache, level: str, tmp_path: Path, caplog
) -> None:
    folder = tmp_path / "autotensor" / level
    folder.chmod(0o777)
    assert ObjectCache(tmp_path / "autotensor" / "objects", 1 << 20).folder is None
    assert f"cache: others may write to {folder}; going on without" in caplog.text


def test_a_folder_that_others_could_exchange(tmp_path: Path) -> None:
    around = tmp_path / "all"
    around.mkdir()
    around.chmod(0o777)
    assert make_own(around / "objects") == f"everybody may write to {around}"
    around.chmod(0o1777)  # as /tmp
    assert make_own(around / "objects") == ""
    if os.getuid() == 0:
        os.chown(around, 12345, -1)
        assert complaint_above(around / "objects") == f"{around} belongs to another user"


def test_pocls_folder_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    for name in ("POCL_CACHE_DIR", "POCL_KERNEL_CACHE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    inside = tmp_path / "pocl" / "AA" / "kernel.so"
    inside.parent.mkdir(parents=True)
    inside.symlink_to("/etc/passwd")
    assert use_own_folder(ObjectCache(tmp_path / "objects", 1 << 20)) is None
    assert os.environ["POCL_KERNEL_CACHE"] == "0"
    assert f"cache: {inside} is a link; OpenCL's kernels are not kept" in caplog.text


def test_what_may_be_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    with os.fdopen(open_own(file), "rb") as opened:
        assert opened.read() == b"x"
    assert complaint(file) == ""
    file.chmod(0o666)
    with pytest.raises(PermissionError, match=f"others may write to {file}"):
        open_own(file)
    file.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match=f"others may write to {tmp_path}"):
        open_own(file)
    tmp_path.chmod(0o700)
    os.mkfifo(tmp_path / "pipe")  # is not waited for
    with pytest.raises(PermissionError, match="is neither a folder nor a file"):
        open_own(tmp_path / "pipe")


# -- children --------------------------------------------------------------------------------------------

SHADOWS = ("numpy", "llvmlite", "autotensor", "json", "encodings", "evil_worker", "sitecustomize")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder whose modules say that they were imported."""
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'seen')!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}")  # the colon at the end means: here, too
    return tmp_path / "seen"


def test_workers_import_nothing_from_the_current_folder(hostile: Path) -> None:
    with Child("evil_worker", path=[Path(__file__).parents[1]]) as child:
        assert child.request("echo hello", 20).status is Status.OK
    with Child("autotensor.search.measuring.worker", ["build"]) as child:
        child.start()
    assert not hostile.exists(), hostile.read_text()


def test_compiling_apart_imports_nothing_from_the_current_folder(hostile: Path) -> None:
    _check_target.cache_clear()
    _check_target("x86_64-unknown-linux-gnu", "bonnell", "")
    assert not hostile.exists(), hostile.read_text()
    assert "" not in python_path().split(os.pathsep)


def test_children_find_the_package_where_it_is_not_installed() -> None:
    assert (Path(python_path().split(os.pathsep)[-1]) / "autotensor" / "__init__.py").exists()


def test_every_child_is_told_so() -> None:
    """Every place that starts Python passes -P; a new place must do so, too."""
    sources = [
        p for folder in ("autotensor", "tuning_db", "schedules") for p in (ROOT / folder).rglob("*.py")
    ]
    starts = [
        m for p in sources for m in re.findall(r"\[\s*(?:sys\.executable|python), [^\]]*", p.read_text())
    ]
    assert starts
    assert all('"-P"' in start for start in starts), starts
