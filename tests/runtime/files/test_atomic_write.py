"""A new file gets the mode and the owner of the file that it replaces. Links, devices and FIFOs are not
replaced."""

from __future__ import annotations

import errno
import os
import threading
import zipfile
from pathlib import Path
from typing import BinaryIO

import pytest

from autotensor.runtime.files.atomic_write import replacing

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")


def write(path: Path, data: bytes = b"new", **how: int) -> None:
    with replacing(path, **how) as file:  # type: ignore[arg-type]
        file.write(data)


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link, second = tmp_path / "there" / "x.bin", tmp_path / "link", tmp_path / "second"
    target.write_bytes(b"old")
    link.symlink_to("there/x.bin")
    second.symlink_to(link)
    write(second)
    assert link.is_symlink()
    assert second.is_symlink()
    assert target.read_bytes() == b"new"
    assert not target.is_symlink()
    assert sorted(tmp_path.iterdir()) == sorted([target.parent, link, second])
    assert list(target.parent.iterdir()) == [target]


def test_a_link_to_no_file_gets_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "x.bin")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "x.bin").read_bytes() == b"new"


def test_links_in_a_circle_are_an_error_that_names_the_link(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="symbolic links") as raised:
        write(tmp_path / "a")
    assert (raised.value.errno, raised.value.filename) == (errno.ELOOP, str(tmp_path / "a"))
    assert (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_file_hands_on_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    path.chmod(mode)
    write(path)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o7777 == mode


def test_a_private_file_keeps_no_rights_of_others(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    path.chmod(0o666)
    write(path, mode=0o600)
    assert path.stat().st_mode & 0o7777 == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_hands_on_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    write(path)
    assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o7777) == (12345, 23456, 0o640)


def test_a_fifo_gets_the_whole_file_even_if_its_format_is_written_back_and_forth(tmp_path: Path) -> None:
    path, found = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    reader.start()
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"x" * 200_000)  # more than a pipe holds
    reader.join(10)
    assert path.is_fifo()
    (tmp_path / "x.zip").write_bytes(found[0])
    assert zipfile.ZipFile(tmp_path / "x.zip").read("a") == b"x" * 200_000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pipe", "x.zip"]


def broken(file: BinaryIO) -> None:
    file.write(b"half")
    raise BytesWarning


def test_a_fifo_gets_nothing_of_a_file_that_is_not_completed(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(BytesWarning), replacing(path) as file:
        broken(file)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(end, 10) == b""
    os.close(end)


@pytest.mark.parametrize(("minor", "code"), [(3, None), (7, errno.ENOSPC)])
def test_a_device_stays_and_its_error_names_it(tmp_path: Path, minor: int, code: int | None) -> None:
    """Private nodes of the devices null and full."""
    path = tmp_path / "node"
    try:
        os.mknod(path, 0o020666, os.makedev(1, minor))
        with path.open("wb"):
            pass
    except PermissionError:
        pytest.skip("this process makes no devices")
    if code is None:
        write(path)
    else:
        with pytest.raises(OSError, match="No space") as raised:
            write(path)
        assert (raised.value.errno, raised.value.filename) == (code, str(path))
    assert path.is_char_device()
    assert list(tmp_path.iterdir()) == [path]
