"""Messages for failures of a database: one sentence for any error below, and one with advice."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tuning_db import migrations
from tuning_db.errors import StoreError

# many writers on one file wait for each other; a batch of trials is written in milliseconds
BUSY_TIMEOUT_S = 60.0

# errors that a damaged or hostile database may cause in the layers below
FOREIGN_ERRORS = (
    SQLAlchemyError, sqlite3.Error, OSError, ValueError, TypeError, ArithmeticError, MemoryError,
    RecursionError, LookupError, AttributeError,
)  # fmt: skip


def is_busy(error: BaseException) -> bool:
    """Whether a second try of the whole transaction may succeed (after a lock or a deadlock)."""
    original = error.orig if isinstance(error, DBAPIError) else error
    name = str(getattr(original, "sqlite_errorname", ""))
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or getattr(original, "sqlstate", "") in (
        "40001",
        "40P01",
    )


def newer(place: str, version: int) -> StoreError:
    return StoreError(
        f"tuning log '{place}' has schema version {version}; this program reads only {migrations.HEAD}.",
        "Upgrade autotensor (a newer one wrote it), or use another log.",
    )


def damaged(place: str, how: str) -> StoreError:
    return StoreError(
        f"tuning log '{place}' is damaged: {how}.",
        "Move it away and restore a backup, or salvage it with `sqlite3 FILE .recover`.",
    )


def misunderstood(error: DBAPIError) -> StoreError | None:
    """The sentence for SQL that a database does not understand; None for any other error."""
    original = error.orig or error
    if "number of bindings" in str(original):  # of SQLite
        return StoreError("the query has a parameter, such as :run.", "Write the value itself: 'a4f0'.")
    of_sqlite = getattr(original, "sqlite_errorname", "") == "SQLITE_ERROR"
    of_server = str(getattr(original, "sqlstate", "") or "").startswith(("42", "22"))
    if not (of_sqlite or of_server):
        return None
    return StoreError(f"the database rejects the query: {_first_line(original)}.", "Correct the SELECT.")


def explain(error: BaseException, place: str, writing: bool = False) -> StoreError:
    """The sentence for any error of the layers below."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    name = str(getattr(original, "sqlite_errorname", "") or "")
    if isinstance(error, PoolTimeout) or is_busy(error):
        return StoreError(
            f"tuning log '{place}' stayed locked by another process for over {BUSY_TIMEOUT_S:.0f} s.",
            "End the process that holds it and try again.",
        )
    if name.startswith("SQLITE_FULL"):
        return StoreError(
            f"tuning log '{place}' could not grow: the disk is full.",
            "Free some space; what is stored is intact.",
        )
    if name.startswith("SQLITE_READONLY") or getattr(original, "sqlstate", None) == "25006":
        return StoreError(f"tuning log '{place}' is read-only.", "Make it writable, or only read from it.")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT", "SQLITE_SCHEMA")):
        return damaged(place, str(original))
    if name.startswith("SQLITE_IOERR"):
        return StoreError(
            f"tuning log '{place}' could not be read or written: {original} ({name}).",
            "Look for a full disk, a quota or a file size limit; what was stored before is intact.",
        )
    if name.startswith("SQLITE_CANTOPEN"):
        return StoreError(
            f"tuning log '{place}' cannot be opened: {original}.",
            "Check that file and directory exist and are yours.",
        )
    if name.startswith("SQLITE_CONSTRAINT") or getattr(original, "sqlstate", None) in (
        "23503",
        "23514",
        "23502",
    ):
        return StoreError(
            f"tuning log '{place}' refused a row: {original}.", "Store what it refers to first."
        )
    if isinstance(error, DBAPIError) and not name:
        return StoreError(
            f"database '{place}' failed: {_first_line(original)}.", "Check that it runs and is reachable."
        )
    if isinstance(original, OSError):
        return StoreError(f"tuning log '{place}' failed: {original}.", "Check disk and permissions.")
    if writing:
        return StoreError(
            f"tuning log '{place}' cannot hold this value: {_first_line(original)}.", "Correct the value."
        )
    return damaged(place, _first_line(original) or type(original).__name__)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
