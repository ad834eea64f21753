"""Open a database and make sure it is a tuning log of this version.

    path or URL ──▶ raw header ours? ──▶ engine ──▶ empty: create · older: back up, upgrade · newer: refuse

SQLite, as measured: WAL, busy timeout, foreign keys, and
`BEGIN IMMEDIATE` for every write. A deferred transaction that reads and then writes lost 56 to 71 % of the
commits of ten writers; IMMEDIATE lost none. A file that is refused is looked at with plain reads only,
since even opening a WAL file with SQLite may change it. A log in memory is SQLite on one connection, for
which threads wait in turns.
"""

from __future__ import annotations

import os
import sqlite3
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select, text
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from tuning_db import migrations
from tuning_db.address import shown, without_passwords
from tuning_db.errors import StoreError
from tuning_db.migrations import revision
from tuning_db.models import VIEWS, Base, SchemaVersion
from tuning_db.outage import Patience, is_away

# ten writers on one file wait for each other; a batch of trials is written in milliseconds
BUSY_TIMEOUT_S = 60.0
APPLICATION_ID = 0x41544442  # "ATDB" at byte 68 of every SQLite file of ours
IN_MEMORY = (":memory:", "sqlite://", "sqlite:///:memory:")  # addresses of a log that nothing is kept of
SQLITE_MAGIC = b"SQLite format 3\x00"
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "fuse.sshfs",
    "ceph",
    "lustre",
    "glusterfs",
    "beegfs",
    "afs",
)

# what a damaged or hostile database may make the layers below raise
FOREIGN_ERRORS = (
    SQLAlchemyError, sqlite3.Error, OSError, ValueError, TypeError, ArithmeticError, MemoryError,
    RecursionError, LookupError, AttributeError,
)  # fmt: skip


_reached: set[str] = set()  # servers that this process has talked to


@dataclass(frozen=True, slots=True)
class Opened:
    """An open database: `write` and `read` share one pool and differ in how a transaction begins."""

    write: Engine
    read: Engine
    place: str  # for messages; no password
    file: Path | None  # None: on a server, or in memory

    @property
    def is_sqlite(self) -> bool:
        return self.read.dialect.name == "sqlite"


def open_engine(url_or_path: str | os.PathLike[str], readonly: bool) -> Opened:
    """Open, create or upgrade the tuning log. Raises StoreError, leaving a refused file exactly as it was."""
    address = os.fspath(url_or_path)
    place, file = shown(address), None
    if address in IN_MEMORY:
        place = IN_MEMORY[0]
    elif "://" not in address:
        file = Path(address)
    else:
        try:
            url = make_url(address)
        except (ArgumentError, ValueError):  # ValueError: of a port that is no number
            raise StoreError(
                f"'{place}' is not a database URL.", "Write sqlite:///path or postgresql://…"
            ) from None  # its text may hold the address
        if url.get_backend_name() == "sqlite":
            file = Path(url.database or "")
            place = str(file)
    try:
        if file is not None:
            engine = _file_engine(file, readonly)
        elif place in IN_MEMORY:
            engine = _memory_engine()
        else:
            engine = _server_engine(address, readonly)
    except ImportError as error:
        raise StoreError(
            f"no driver for '{place}' is installed ({without_passwords(str(error), address)}).",
            "Install it, e.g. psycopg.",
        ) from error
    except ArgumentError as error:  # the URL is well formed, but nobody knows its kind of database
        raise StoreError(
            f"'{place}' names no kind of database that is known here.",
            "Write sqlite:///path or postgresql://…",
        ) from error
    except FOREIGN_ERRORS as error:
        raise explain(error, place) from error
    opened = Opened(engine.execution_options(tuning_db_write=True), engine, place, file)
    patience = Patience(place)
    while True:
        try:
            _ensure_schema(opened, readonly)
        except StoreError:
            engine.dispose()
            raise
        except FOREIGN_ERRORS as error:
            # A server that this process has never reached is a wrong address, say, and no outage.
            if place in _reached and is_away(error) and patience.wait(error, tell=True):
                continue
            engine.dispose()
            raise explain(error, place) from error
        if not opened.is_sqlite:
            _reached.add(place)
        return opened


# --- engines ---


def _file_engine(file: Path, readonly: bool, foreign_keys: bool = True) -> Engine:
    fresh = _check_file(file, readonly)
    uri = file.absolute().as_uri()
    mode = "ro" if readonly else "rwc" if fresh else "rw"
    if readonly and not os.access(file.absolute().parent, os.W_OK) and not _has_wal(file):
        mode += "&immutable=1"  # a WAL file needs a -shm file beside it, which cannot be made here

    def connect() -> sqlite3.Connection:
        return _connect(f"{uri}?mode={mode}", foreign_keys)

    # max_overflow: a thread that waits for a connection would report a full pool instead of a busy file
    return _sqlite_engine(connect, pool_size=4, max_overflow=-1)


def _memory_engine() -> Engine:
    engine = _sqlite_engine(lambda: _connect(IN_MEMORY[0]), pool_size=1, max_overflow=0)

    @event.listens_for(engine, "handle_error")
    def keep(context: ExceptionContext) -> None:
        """Ctrl-C in a statement would have the connection replaced, and the log with it."""
        context.is_disconnect = False

    return engine


def _sqlite_engine(connect: Callable[[], sqlite3.Connection], pool_size: int, max_overflow: int) -> Engine:
    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=max_overflow,
        pool_timeout=BUSY_TIMEOUT_S,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("tuning_db_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _connect(uri: str, foreign_keys: bool = True) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        connection.execute("PRAGMA synchronous = FULL")  # 2,100 commits/s, and a power cut loses nothing
        connection.execute("PRAGMA trusted_schema = OFF")  # a log from elsewhere may hold hostile views
        connection.execute("PRAGMA cell_size_check = ON")  # find damage early
    except BaseException:
        connection.close()
        raise
    return connection


def _server_engine(address: str, readonly: bool) -> Engine:
    engine = create_engine(address, pool_pre_ping=True, max_overflow=-1)
    if readonly:
        return engine.execution_options(postgresql_readonly=True)
    return engine


# --- is it ours? ---


def _check_file(file: Path, readonly: bool) -> bool:
    """Whether the file is still to be made. Raises StoreError for anything that is not a log we may open."""
    folder = file.absolute().parent
    if file.is_dir():
        raise StoreError(f"tuning log '{file}' is a directory.", "Name a file in it, such as tuning.db.")
    if not file.exists():
        if readonly:
            raise StoreError(f"tuning log '{file}' does not exist.", "Tune first, or check the path.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot make directory '{folder}' for the tuning log: {error.strerror}.",
                "Choose a path that you may write.",
            ) from error
        _check_writable(file, folder)
        return True
    if not file.is_file():
        raise StoreError(f"tuning log '{file}' is not a regular file.", "Name a regular file.")
    try:
        with file.open("rb") as stream:
            header = stream.read(100)
    except OSError as error:
        raise StoreError(
            f"cannot read tuning log '{file}': {error.strerror}.", "Give yourself permission to read it."
        ) from error
    if header:
        _check_header(file, header)
    elif readonly:
        raise StoreError(f"tuning log '{file}' is empty.", "Tune first, or check the path.")
    if header and _has_wal(file):
        _check_wal(file)
    if not readonly:
        _check_writable(file, folder)
    return not header


def _check_header(file: Path, header: bytes) -> None:
    if not header.startswith(SQLITE_MAGIC):
        raise StoreError(f"'{file}' is not a tuning log: it is no SQLite database.", "Name another file.")
    if len(header) < 100:
        raise damaged(str(file), "its header is cut off")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError(
            f"'{file}' is an SQLite database of another program, not a tuning log.", "Name another file."
        )
    version = int.from_bytes(header[60:64], "big")
    if version > migrations.HEAD:
        raise _newer(str(file), version)


def _check_wal(file: Path) -> None:
    """Refuse a newer log whose upgrade is still in the WAL; closing it writable would write to the file."""
    with closing(
        sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
    ) as found:
        try:
            version = found.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError:
            return  # no -shm to be had, or a transaction to roll back first; the check after opening decides
    if version > migrations.HEAD:
        raise _newer(str(file), version)


def _check_writable(file: Path, folder: Path) -> None:
    if file.exists() and not os.access(file, os.W_OK):
        raise StoreError(f"tuning log '{file}' is read-only.", "Make it writable, or only read from it.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"tuning log '{file}' cannot be written: directory '{folder}' is read-only.",
            "Choose a directory that you may write, or only read from it.",
        )
    if _file_system(folder).startswith(NETWORK_FILE_SYSTEMS):
        warnings.warn(
            f"tuning log '{file}' is on a network file system, where SQLite cannot lock safely; "
            "use a local file, or a postgresql:// URL",
            RuntimeWarning,
            stacklevel=2,
        )


def _has_wal(file: Path) -> bool:
    wal = file.with_name(file.name + "-wal")
    return wal.exists() and wal.stat().st_size > 0


def _file_system(folder: Path) -> str:
    """Type of the file system a folder is on; "" where the system does not tell."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    real = folder.resolve()
    holding = [(len(m[1]), m[2]) for m in mounts if real.is_relative_to(m[1].replace("\\040", " "))]
    return max(holding, default=(0, ""))[1]


# --- schema ---


def _ensure_schema(opened: Opened, readonly: bool) -> None:
    with opened.read.begin() as connection:
        version = schema_version(connection, opened.place)
    if version is None and readonly and opened.place not in IN_MEMORY:
        raise StoreError(f"tuning log '{opened.place}' is empty.", "Tune first, or check the path.")
    if version is None:
        _create(opened)
    elif version > migrations.HEAD:
        raise _newer(opened.place, version)
    elif version < migrations.HEAD and readonly:
        raise StoreError(
            f"tuning log '{opened.place}' has schema version {version}; {migrations.HEAD} is needed.",
            "Open it once for writing: it is backed up and upgraded.",
        )
    elif version < migrations.HEAD:
        _upgrade(opened, version)
    if not readonly and opened.file is not None:
        _use_wal(opened)


def schema_version(connection: Connection, place: str) -> int | None:
    """The schema version recorded in a database; None if it has no tables at all."""
    tables = inspect(connection).get_table_names()
    if migrations.VERSION_TABLE in tables:
        found = connection.execute(select(SchemaVersion.version_num)).scalars().all()
        if len(found) != 1 or not found[0].isdecimal():
            raise damaged(place, "its schema version is unreadable")
        return int(found[0])
    if tables:
        raise StoreError(
            f"'{place}' holds tables of another program, not a tuning log.", "Name another database."
        )
    return None


def _create(opened: Opened) -> None:
    """Make all tables in one transaction, in SQLite's rollback mode.

    Rollback mode, because then the header with our mark is in the main file from the first commit on.
    """
    with opened.write.begin() as connection:
        _lock_schema(connection)
        if schema_version(connection, opened.place) is not None:
            return  # another process was faster
        create_tables(connection)
        if opened.file is not None:
            connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version = {migrations.HEAD}")


def create_tables(connection: Connection) -> None:
    """Tables, indexes and views of the newest schema, stamped with its version."""
    Base.metadata.create_all(connection)
    for view in VIEWS.values():
        connection.execute(text(view))
    connection.execute(insert(SchemaVersion).values(version_num=revision(migrations.HEAD)))


def _upgrade(opened: Opened, version: int) -> None:
    """Bring an older log to this version in one transaction; a kill leaves the old or the new one."""
    if opened.file is None:
        _upgrade_in(opened.write, opened)
        return
    back_up(opened.file, f"v{version}")
    opened.read.dispose()
    engine = _file_engine(opened.file, readonly=False, foreign_keys=False)
    try:
        _upgrade_in(engine.execution_options(tuning_db_write=True), opened)
    finally:
        engine.dispose()


def _upgrade_in(engine: Engine, opened: Opened) -> None:
    with engine.begin() as connection:
        _lock_schema(connection)
        if schema_version(connection, opened.place) == migrations.HEAD:
            return  # another process was faster
        migrations.upgrade(connection)
        if opened.file is not None:
            connection.exec_driver_sql(f"PRAGMA user_version = {migrations.HEAD}")
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if broken:
                raise damaged(opened.place, f"{len(broken)} rows refer to rows that do not exist")


def back_up(file: Path, label: str) -> Path:
    """A consistent copy `<name>.<label>.<time>.backup` beside the log; what is still in the WAL included."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    copy = file.with_name(f"{file.name}.{label}.{stamp}.backup")
    part = copy.with_name(copy.name + ".part")
    try:
        with (
            closing(_connect(f"{file.absolute().as_uri()}?mode=ro")) as old,
            closing(sqlite3.connect(part)) as new,
        ):
            old.backup(new)
        os.replace(part, copy)
    finally:
        part.unlink(missing_ok=True)
    return copy


def _lock_schema(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # SQLite holds the whole file by BEGIN IMMEDIATE
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": APPLICATION_ID})


def _use_wal(opened: Opened) -> None:
    """Switch to WAL, which stays in the file; it needs a moment without other connections."""
    for _ in range(50):
        with closing(opened.read.raw_connection()) as connection:
            try:
                if connection.cursor().execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal":
                    return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
        time.sleep(0.02)
    # still right without WAL, only slower; the next process to open the log tries again


# --- errors ---


def is_busy(error: BaseException) -> bool:
    """Whether trying the whole transaction again may succeed (a lock, a deadlock victim)."""
    original = error.orig if isinstance(error, DBAPIError) else error
    name = str(getattr(original, "sqlite_errorname", ""))
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or getattr(original, "sqlstate", "") in (
        "40001",
        "40P01",
    )


def _newer(place: str, version: int) -> StoreError:
    return StoreError(
        f"tuning log '{place}' has schema version {version}; this program knows only {migrations.HEAD}.",
        "Upgrade autotensor (a newer one wrote it), or use another log.",
    )


def damaged(place: str, how: str) -> StoreError:
    return StoreError(
        f"tuning log '{place}' is damaged: {how}.",
        "Move it away and restore a backup, or salvage it with `sqlite3 FILE .recover`.",
    )


def explain(error: BaseException, place: str, writing: bool = False) -> StoreError:
    """The sentence for whatever came from below."""
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


def pragma(connection: Connection, name: str) -> list[Any]:
    return list(connection.exec_driver_sql(f"PRAGMA {name}").fetchall())
