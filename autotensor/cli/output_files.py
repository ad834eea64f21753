"""The files that verbs write: where they may lie, and which existing files they replace.

autotensor bench mlp --trace FILE      FILE is missing, empty, a device, a FIFO   ──▶ written
                                       FILE is an earlier timeline                ──▶ replaced
                                       FILE is something else                     ──▶ only with --force
                                       FILE is the model or the tuning log itself ──▶ never
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotensor.base.errors import InputError
from autotensor.runtime.files.atomic_write import is_stream

HEAD_BYTES = 1 << 16  # the kind of a file follows from its first bytes; none needs more than the first line
BESIDE_LOG = ("", "-wal", "-shm", "-journal")  # endings of the files of one SQLite log


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of files, with its article, and whether a file that begins with these bytes is of this kind."""

    name: str
    is_one: Callable[[bytes], bool]
    endings: tuple[str, ...] = ()  # of the names of such files, the usual one first; (): any


def beginning(name: str, *marks: bytes, endings: tuple[str, ...] = ()) -> Kind:
    """The files that begin with one of these marks, in lower case and without leading white space."""
    return Kind(name, lambda head: head.lstrip().lower().startswith(marks), endings)


TIMELINE = beginning("a timeline", b'{"traceevents":', endings=(".json",))
PAGE = beginning("an HTML page", b"<!doctype html", endings=(".html", ".htm"))
PICTURE = beginning("a PNG picture", b"\x89png")
ARRAYS = {".npy": beginning("a .npy file", b"\x93numpy"), ".npz": beginning("an .npz file", b"pk\3\4")}
SCRIPT = Kind("a script of `autotensor verify`", lambda head: head[:2] == b"# " and b"\n# Kernel of " in head)


def check_output(
    path: Path, kind: Kind, force: bool | None, own: Mapping[str, str | Path | None] | None = None
) -> None:
    """Raises InputError unless a verb may write its file at `path`; leaves nothing behind.

    A name with the ending of another kind of file is refused; a name without an ending is not.
    force: whether a file of another kind may be replaced; None: the verb has no --force.
    own: files that the verb itself reads, by a description of each; they are never replaced.
    """
    check_place(path)
    for what, other in (own or {}).items():
        if other is not None and is_same(path, Path(other)):
            raise InputError(f"{path} is {what} itself.", fix="Name another file.")
    if not force and holds_other(path, kind):
        more = "" if force is None else ", or replace it by --force"
        raise InputError(f"{path} exists and is not {kind.name}.", fix=f"Name another file{more}.")
    if kind.endings and path.suffix and path.suffix.lower() not in kind.endings and not _is_stream(path):
        raise InputError(
            f"{path} would be {kind.name}, but its name ends in {path.suffix}.",
            fix=f"Name it {path.with_suffix(kind.endings[0])}.",
        )


def files_of_log(db: str | None) -> dict[str, Path | None]:
    """The files of the tuning log, as `own` of `check_output`; empty for a log on a server."""
    from autotensor.api.log import log_file

    file = log_file(db)
    parts = {"the tuning log": ""} | {f"the tuning log's file {e}": e for e in BESIDE_LOG[1:]}
    return {what: file and file.with_name(file.name + ending) for what, ending in parts.items()}


def is_same(path: Path, other: Path) -> bool:
    """Whether two names lead to one existing file."""
    return path.exists() and other.exists() and path.samefile(other)


def holds_other(path: Path, kind: Kind) -> bool:
    """Whether an existing file has contents of another kind. A file that cannot be read counts as such."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return True
    return bool(head) and not kind.is_one(head)


def _is_stream(path: Path) -> bool:
    return path.exists() and is_stream(path.stat())


def check_place(path: Path) -> None:
    """Raises InputError unless a file can be written at `path`; leaves nothing behind."""
    if path.is_dir():
        raise InputError(f"{path} is a directory.", fix="Name a file in it.")
    if _is_stream(path):
        if not os.access(path, os.W_OK):
            raise InputError(f"{path} cannot be written.", fix="Choose a place that you may write.")
        return
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: there is no directory {folder}.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}.", fix="Choose a place that you may write."
        ) from error


__all__ = [
    "ARRAYS",
    "PAGE",
    "PICTURE",
    "SCRIPT",
    "TIMELINE",
    "Kind",
    "beginning",
    "check_output",
    "check_place",
    "files_of_log",
    "holds_other",
    "is_same",
]
