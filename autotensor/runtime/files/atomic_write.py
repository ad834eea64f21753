"""Writing files so that a reader sees the old contents or the new ones, never a part of the new ones."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, mode: int = 0o666, lasting: bool = True) -> Iterator[BinaryIO]:
    """A binary file, open for reading and writing. It replaces `path` when the block ends without an error.

    temp file next to `path` ──▶ flush, fsync ──▶ rename ──▶ fsync of the directory

    A symbolic link stays: the file to which it leads is replaced. The new file gets the mode of the file that
    it replaces, and its owner if this process may give files away. `mode` is for files that replace nothing,
    and is subject to the umask. If `mode` gives other users no rights, a file that replaces another one gives
    them none either. A device or a FIFO is not replaced: it gets the contents when they are complete.

    If the block raises, `path` is unchanged and the temporary file is removed. lasting: whether to run the
    two fsyncs, which take some 10 ms. After them, the file survives a power cut. Without them, a power cut
    may leave other contents in the file, so this is for files whose readers check a hash. An OSError names
    `path`.
    """
    with naming(path):
        old = _replaced_file(path)
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
    if old is not None and is_stream(old):
        with naming(path):
            yield from _passed_on(path)
        return
    temporary = place.with_name(f".{place.name[:80]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with naming(path, temporary):
        yield from _replaced(place, temporary, mode, old, lasting)


def _replaced_file(path: Path) -> os.stat_result | None:
    """The status of the file behind `path` and its links; None if there is none. Raises OSError for links
    in a circle."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def is_stream(found: os.stat_result) -> bool:
    """Whether this is a device, a FIFO or a socket: what is written there is passed on, not kept."""
    return not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode)


def _passed_on(path: Path) -> Iterator[BinaryIO]:
    """A file whose contents go to a device or FIFO. It can be sought, as formats with a directory need."""
    with tempfile.TemporaryFile() as file:
        yield file
        file.seek(0)
        with open(path, "wb") as out:
            shutil.copyfileobj(file, out)


@contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """If an OSError of the block names the temporary file, or no file (the disk is full), it names `path`
    instead."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.filename == str(temporary):
            error.filename = str(path)
        raise


def _replaced(
    path: Path, temporary: Path, mode: int, old: os.stat_result | None, lasting: bool
) -> Iterator[BinaryIO]:
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            if old is not None:
                _hand_on(old, temporary, mode)
            yield file
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if lasting:
        _sync_directory(path.parent)


def _hand_on(old: os.stat_result, new: Path, mode: int) -> None:
    """Gives a new file the owner and the mode of an old one, as far as this process may."""
    others = stat.S_IRWXG | stat.S_IRWXO
    now = new.stat()
    if hasattr(os, "chown") and (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):
            os.chown(new, old.st_uid, old.st_gid)
    with suppress(PermissionError):  # a file system without modes
        os.chmod(new, stat.S_IMODE(old.st_mode) & (stat.S_IRWXU | (others if mode & others else 0)))


def _sync_directory(path: Path) -> None:
    """Makes a rename in `path` survive a power cut. File systems that cannot do this cause no error."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
