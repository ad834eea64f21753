"""Writing files so that a reader sees the old contents or the new ones, never a part of the new ones."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, mode: int = 0o666, lasting: bool = True) -> Iterator[BinaryIO]:
    """A binary file, open for reading and writing. It replaces `path` when the block ends without an error.

    temp file next to `path` ──▶ flush, fsync ──▶ rename ──▶ fsync of the directory

    `mode` is subject to the umask. If the block raises, `path` is unchanged and the temporary file is
    removed. lasting: whether to run the two fsyncs, which take some 10 ms. After them, the file survives a
    power cut. Without them, a power cut may leave other contents in the file, so this is for files whose
    readers check a hash. An OSError names `path`.
    """
    temporary = path.with_name(f".{path.name[:80]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with naming(path, temporary):
        yield from _replaced(path, temporary, mode, lasting)


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


def _replaced(path: Path, temporary: Path, mode: int, lasting: bool) -> Iterator[BinaryIO]:
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    try:
        with os.fdopen(descriptor, "w+b") as file:
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


def _sync_directory(path: Path) -> None:
    """Makes a rename in `path` survive a power cut. File systems that cannot do this cause no error."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
