"""Ownership of files: files that are executed or trusted must belong to the user, and only the user may
write.

    /home/ada/.cache ── autotensor ── objects ── v1 ── 3f ── 3fa9…
    who may rename this?  └──────── owner, and who may write? ────┘

Links are not followed, because their owner may change them later. On systems without owners of files,
everything is trusted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def complaint(path: Path, *, writable: bool = False) -> str:
    """Why the file or folder at `path` cannot be trusted, as a clause; "" if it belongs to the user.

    writable: others may have the right to write to it, because an outer folder keeps them out. Raises OSError
    if it does not exist.
    """
    return _complaint(path, path.lstat(), writable)


def _complaint(path: Path, found: os.stat_result, writable: bool = False) -> str:
    if not hasattr(os, "getuid"):
        return ""
    if stat.S_ISLNK(found.st_mode):
        return f"{path} is a link"
    if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
        return f"{path} is neither a folder nor a file"
    if found.st_uid != os.getuid():
        return f"{path} belongs to another user"
    return f"others may write to {path}" if found.st_mode & _OTHERS and not writable else ""


def complaint_above(folder: Path) -> str:
    """Why others could replace a folder: an outer folder belongs to another user, or is open to everybody."""
    if not hasattr(os, "getuid"):
        return ""
    for around in folder.resolve().parents:
        found = around.stat()
        if found.st_uid not in (0, os.getuid()):
            return f"{around} belongs to another user"
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return f"everybody may write to {around}"
    return ""


def complaint_below(folder: Path) -> str:
    """Why something in a folder, at any depth, cannot be trusted; "" if everything can be trusted."""
    closed = not stat.S_IMODE(folder.lstat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    for path in _all_below(folder):
        if why := complaint(path, writable=closed):
            return why
    return ""


def _all_below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))


def make_own(folder: Path) -> str:
    """Makes a folder and its missing parents, closed to others. Returns why it cannot be trusted, or "".

    Raises OSError if the folder cannot be made.
    """
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    return complaint_above(folder) or complaint(folder)


def open_own(path: Path) -> int:
    """Opens a user's own file in a folder of the user's own, for reading. Returns the descriptor.

    Raises PermissionError if the file or the folder belongs to somebody else, and OSError for other failures.
    """
    if why := complaint(path.parent):
        raise PermissionError(why)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if why := _complaint(path, os.fstat(descriptor)):
        os.close(descriptor)
        raise PermissionError(why)
    return descriptor


__all__ = ["complaint", "complaint_above", "complaint_below", "make_own", "open_own"]
