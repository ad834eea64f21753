"""Finding and opening the tuning log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from autotensor.base import log, switches
from autotensor.base.errors import AutotensorError, InputError
from tuning_db import StoreError, TrialStore, connect
from tuning_db.address import shown
from tuning_db.errors import OlderLog

S = TypeVar("S")
Log = str | Path | TrialStore | None


class LogError(AutotensorError, StoreError):
    """The tuning log could not be opened, read or written: autotensor's name for a StoreError."""


def default_log() -> str:
    """The path of the user's tuning log: AUTOTENSOR_DB, else a file in the data directory."""
    given = switches.db()
    if given:
        return str(given)
    import platformdirs

    return str(Path(platformdirs.user_data_dir("autotensor")) / "tuning.db")


def open_log(db: Log) -> AbstractContextManager[TrialStore]:
    """The tuning log, created if need be. `db` is a path, a URL, an open store, or None: the user's own log.

    Raises InputError as `check_log` does, and LogError; using the log may raise LogError, too. The same holds
    for `open_existing`.
    """
    if isinstance(db, TrialStore):
        return _given(db)
    check_log(db)
    place = default_log() if db is None else str(db)
    if file := _file_of(place):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(
                f"the folder {file.parent} for the tuning log cannot be made: {e.strerror}."
            ) from e
    return _opened(place)


def check_log(db: Log) -> None:
    """Raises InputError when the directory of a requested log does not exist. A log may be requested by the
    argument or by AUTOTENSOR_DB. Only the user's own data directory is made if it is missing."""
    asked = switches.db() if db is None else db
    if not asked or isinstance(asked, TrialStore):
        return
    file = _file_of(str(asked))
    if file is not None and not file.parent.is_dir():
        raise InputError(
            f"there is no directory {file.parent} for the tuning log {file.name}.",
            fix="Create it, or choose another place.",
        )


def log_file(db: str | None) -> Path | None:
    """The file that holds a log, None for a log on a server or in memory. db: as for `open_log`."""
    return _file_of(default_log() if db is None else db)


def _file_of(place: str) -> Path | None:
    """The file that holds a log; None for a log on a server or in memory."""
    path = place.removeprefix("sqlite:///")
    return None if "://" in path or path in ("", ":memory:") else Path(path)


def log_name(db: Log) -> str:
    """The path of a log, or its URL without the password; "" for a store that is open."""
    if isinstance(db, TrialStore):
        return ""
    return shown(default_log() if db is None else str(db))


def open_existing(db: Log) -> AbstractContextManager[TrialStore | None]:
    """The tuning log for reading; None when the user's own log does not exist yet, or is in a folder that the
    user may not enter. An older log is upgraded.

    Raises InputError when a log that was requested by name does not exist.
    """
    if isinstance(db, TrialStore):
        return _given(db)
    place = default_log() if db is None else str(db)
    file = _file_of(place)
    try:
        if file is None or file.exists():
            return _opened(place, readonly=True)
    except PermissionError as refused:
        if db is not None or switches.db():
            raise LogError(f"{shown(place)}: {refused.strerror}.") from refused
        _tell_of_none(f"the tuning log {shown(place)} cannot be reached: {refused.strerror}. None is used.")
        return _given(None)
    if db is not None:
        raise InputError(f"there is no tuning log at {shown(place)}.", fix="Check the path, or tune first.")
    if switches.db():
        _tell_of_none(
            f"there is no tuning log at {shown(place)} (AUTOTENSOR_DB): an empty log is used until something "
            "is tuned."
        )
    return _given(None)


@lru_cache(maxsize=16)  # once for each place
def _tell_of_none(sentence: str) -> None:
    log.warn(sentence)


def _opened(place: str, readonly: bool = False) -> AbstractContextManager[TrialStore]:
    """A log that is open now, and closed at the end of the context."""
    with translated():
        try:
            store = connect(place, readonly=readonly)
        except OlderLog:  # the log is backed up and upgraded, so that users need not care
            connect(place).close()
            store = connect(place, readonly=readonly)
    return _closing(store)


@contextmanager
def _closing(store: TrialStore) -> Iterator[TrialStore]:
    with translated(), store:
        yield store


@contextmanager
def _given(store: S) -> Iterator[S]:
    with translated():
        yield store


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the store inside the block become LogErrors."""
    try:
        yield
    except LogError:
        raise
    except StoreError as error:
        raise LogError(error.what, fix=error.fix) from error
