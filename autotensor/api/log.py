"""Where the tuning log is, and opening it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from autotensor.base import switches
from autotensor.base.errors import InputError
from tuning_db import TrialStore, connect

Log = str | Path | TrialStore | None


def default_log() -> str:
    """Where the user's tuning log is: AUTOTENSOR_DB, else the data directory."""
    given = switches.db()
    if given:
        return str(given)
    import platformdirs

    return str(Path(platformdirs.user_data_dir("autotensor")) / "tuning.db")


def open_log(db: Log) -> AbstractContextManager[TrialStore]:
    """The tuning log, created if need be: a path, a URL, an open store, None for the user's own."""
    if isinstance(db, TrialStore):
        return nullcontext(db)
    place = default_log() if db is None else str(db)
    if "://" not in place and place != ":memory:":
        folder = Path(place).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(f"the folder {folder} for the tuning log cannot be made: {e.strerror}.") from e
    return connect(place)


def open_existing(db: Log) -> AbstractContextManager[TrialStore | None]:
    """The tuning log for reading; None when the user's own does not exist yet.

    Raises InputError when a log that was asked for by name does not exist.
    """
    if isinstance(db, TrialStore):
        return nullcontext(db)
    place = default_log() if db is None else str(db)
    if "://" in place or place == ":memory:" or Path(place).exists():
        return connect(place, readonly="://" not in place and place != ":memory:")
    if db is not None:
        raise InputError(f"there is no tuning log at {place}.", fix="Check the path, or tune first.")
    return nullcontext(None)
