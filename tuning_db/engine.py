"""Engines: SQLAlchemy opens a database, after a check whether the database can be a tuning log.

For SQLite we use WAL, foreign keys, and `BEGIN IMMEDIATE` for every write. This follows from measurements:
with ten writers, deferred transactions that read and then write lost 56 to 71 % of the commits; IMMEDIATE
lost none. A writer waits for the lock for a random time, because SQLite's own waiting times grow with each
try, and some of eight writers waited for seconds. A file is checked with plain reads before SQLite opens it,
because even opening a WAL file with SQLite may change a file that is then refused. A log in memory is SQLite
with one connection, which the threads use one after the other.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from tuning_db import migrations
from tuning_db.address import shown
from tuning_db.errors import StoreError
from tuning_db.sentences import BUSY_TIMEOUT_S, FOREIGN_ERRORS, damaged, explain, is_busy, newer

TURN_S = 0.002  # mean time after which a writer tries again; a batch of trials takes about as long
APPLICATION_ID = 0x41544442  # "ATDB" at byte 68 of every SQLite file of ours
IN_MEMORY = (":memory:", "sqlite://", "sqlite:///:memory:")  # addresses of logs in memory, which are not kept
KINDS = ("sqlite", "postgresql")
SQLITE_URL = "sqlite:///PATH"
SERVER = "postgresql://USER@HOST/NAME, with pip install 'psycopg[binary]'"
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


@dataclass(frozen=True, slots=True)
class Opened:
    """An open database. The three engines share one pool, and begin a transaction in different ways.

    A power cut may undo writes of `mark` to a file; a crash of this process does not undo them. On a server,
    `mark` is a normal write, because the server may crash while this process continues.
    """

    write: Engine
    mark: Engine
    read: Engine
    place: str  # path or URL for messages, without password
    file: Path | None  # None: on a server, or in memory
    readonly: bool

    @property
    def is_sqlite(self) -> bool:
        return self.read.dialect.name == "sqlite"


def engines(url_or_path: str | os.PathLike[str], readonly: bool) -> Opened:
    """The engines of a database at a path or URL. Raises StoreError if it cannot be a tuning log."""
    address = os.fspath(url_or_path)
    place, file = shown(address), None
    if address in IN_MEMORY:
        place = IN_MEMORY[0]
    elif "://" not in address:
        file = Path(address)
    else:
        try:
            url = make_url(address)
        except (ArgumentError, ValueError):  # ValueError: the port is not a number
            raise StoreError(
                f"'{place}' is not a database URL.", f"Write {SQLITE_URL}, or {SERVER}."
            ) from None  # without the cause, whose text may hold the address
        if url.get_backend_name() not in KINDS:
            near = get_close_matches(url.get_backend_name(), KINDS, n=1)
            meant = f"Did you mean {near[0]}://? " if near else ""
            raise StoreError(
                f"'{place}' names an unsupported kind of database.",
                f"{meant}A tuning log is a SQLite file ({SQLITE_URL}, or a path) or on a PostgreSQL server "
                f"({SERVER}).",
            )
        if url.get_backend_name() == "sqlite":
            file = Path(url.database or "")
            place = str(file)
    try:
        if file is not None:
            engine = file_engine(file, readonly)
        elif place in IN_MEMORY:
            engine = _memory_engine()
        else:
            engine = _server_engine(address, readonly)
    except ImportError as error:
        raise StoreError(
            f"the driver for '{place}' is not installed.",
            "Write postgresql://, and pip install 'psycopg[binary]'.",
        ) from error
    except ArgumentError as error:  # the URL is well formed, but names an unknown driver
        raise StoreError(f"'{place}' names an unknown driver.", f"Write {SERVER}.") from error
    except FOREIGN_ERRORS as error:
        raise explain(error, place) from error
    return Opened(
        engine.execution_options(tuning_db_write=True),
        engine.execution_options(tuning_db_write=True, tuning_db_durable=False),
        engine,
        place,
        file,
        readonly,
    )


# --- engines ---


def file_engine(file: Path, readonly: bool, foreign_keys: bool = True) -> Engine:
    fresh = _check_file(file, readonly)
    uri = readonly_uri(file) if readonly else f"{file.absolute().as_uri()}?mode={'rwc' if fresh else 'rw'}"

    def connect() -> sqlite3.Connection:
        return connect_sqlite(uri, foreign_keys)

    # max_overflow: a thread that waits for a connection would report a full pool instead of a busy file
    return _sqlite_engine(connect, pool_size=4, max_overflow=-1)


def readonly_uri(file: Path) -> str:
    """The URI by which SQLite opens a file for reading only."""
    # a WAL file needs a -shm file next to it, which cannot be created in a read-only folder
    still = not os.access(file.absolute().parent, os.W_OK) and not _has_wal(file)
    return f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if still else ''}"


def _memory_engine() -> Engine:
    engine = _sqlite_engine(lambda: connect_sqlite(IN_MEMORY[0]), pool_size=1, max_overflow=0)

    @event.listens_for(engine, "handle_error")
    def keep(context: ExceptionContext) -> None:
        """Keeps the connection after Ctrl-C in a statement, because a new one would lose the log in
        memory."""
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
        options = connection.get_execution_options()
        if options.get("tuning_db_write", False):
            _begin_writing(connection, durable=options.get("tuning_db_durable", True))
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _begin_writing(connection: Connection, durable: bool) -> None:
    """Takes the write lock. When it is free, the first writer that tries gets it; all writers try equally
    often.

    With FULL, there are 2,100 commits/s, and a power cut loses nothing. With NORMAL, a power cut may undo the
    last commits.
    """
    raw: Any = connection.connection.dbapi_connection  # without SQLAlchemy, which would double the time
    wanted = "FULL" if durable else "NORMAL"
    if connection.info.get("synchronous", "FULL") != wanted:
        raw.execute(f"PRAGMA synchronous = {wanted}")
        connection.info["synchronous"] = wanted
    until = time.monotonic() + BUSY_TIMEOUT_S
    raw.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                raw.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > until:
                    raise
                time.sleep(random.uniform(0.0, 2.0 * TURN_S))
    finally:
        raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000:.0f}")


def connect_sqlite(uri: str, foreign_keys: bool = True) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        connection.execute("PRAGMA synchronous = FULL")
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
    """Whether the file does not exist yet. Raises StoreError if the file exists, but is not a log that we may
    open."""
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
        raise StoreError(f"'{file}' is not a tuning log: it is not a SQLite database.", "Name another file.")
    if len(header) < 100:
        raise damaged(str(file), "its header is cut off")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError(
            f"'{file}' is an SQLite database of another program, not a tuning log.", "Name another file."
        )
    version = int.from_bytes(header[60:64], "big")
    if version > migrations.HEAD:
        raise newer(str(file), version)


def _check_wal(file: Path) -> None:
    """Refuses a newer log whose upgrade is still in the WAL. To close such a log as writable would change
    it."""
    with closing(
        sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
    ) as found:
        try:
            version = found.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError:
            return  # no -shm, or a transaction must be rolled back first; the check after opening decides
    if version > migrations.HEAD:
        raise newer(str(file), version)


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
    """The type of the file system of a folder; "" if the system does not say it."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    real = folder.resolve()
    holding = [(len(m[1]), m[2]) for m in mounts if real.is_relative_to(m[1].replace("\\040", " "))]
    return max(holding, default=(0, ""))[1]
