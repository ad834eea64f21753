"""Makes sure that an opened database is a tuning log of this version: it is created, upgraded or refused.

engines(address) ──▶ empty: create · older: back up, upgrade · newer: refuse ──▶ Opened
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, insert, inspect, select, text

from tuning_db import migrations
from tuning_db.engine import APPLICATION_ID, IN_MEMORY, Opened, connect_sqlite, engines, file_engine
from tuning_db.errors import OlderLog, StoreError
from tuning_db.migrations import revision
from tuning_db.models import VERIFIED, Base, Log, SchemaVersion, Trial
from tuning_db.outage import Patience, is_away
from tuning_db.sentences import FOREIGN_ERRORS, damaged, explain, is_busy, newer
from tuning_db.values import now
from tuning_db.views import views

_reached: set[str] = set()  # servers that this process has talked to


def open_log(url_or_path: str | os.PathLike[str], readonly: bool) -> Opened:
    """Open, create or upgrade a tuning log. Raises StoreError if the file is refused; the file is not
    changed."""
    opened = engines(url_or_path, readonly)
    patience = Patience(opened.place)
    while True:
        try:
            _ensure_schema(opened, readonly)
        except StoreError:
            opened.read.dispose()
            raise
        except FOREIGN_ERRORS as error:
            # If this process has never reached a server, the address may be wrong, so it is not an outage.
            if opened.place in _reached and is_away(error) and patience.wait(error, tell=True):
                continue
            opened.read.dispose()
            raise explain(error, opened.place) from error
        if not opened.is_sqlite:
            _reached.add(opened.place)
        return opened


def _ensure_schema(opened: Opened, readonly: bool) -> None:
    with opened.read.begin() as connection:
        version = schema_version(connection, opened.place)
    if version is None and readonly and opened.place not in IN_MEMORY:
        raise StoreError(f"tuning log '{opened.place}' is empty.", "Tune first, or check the path.")
    if version is None:
        _create(opened)
    elif version > migrations.HEAD:
        raise newer(opened.place, version)
    elif version < migrations.HEAD and readonly:
        raise OlderLog(
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

    In rollback mode, the first commit writes the header with our mark to the main file.
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
    """Creates the tables, indexes and views of the newest schema, and records its version."""
    # this option is set here, because in the table it would load the dialect even for a file
    if connection.dialect.name == "postgresql":
        (best,) = (i for i in Trial.__table__.indexes if i.name == "ix_trial_best")  # type: ignore[attr-defined]
        best.dialect_options["postgresql"]["where"] = text(VERIFIED)
    Base.metadata.create_all(connection)
    for view in views(connection.dialect.name).values():
        connection.exec_driver_sql(view)
    connection.execute(insert(Log).values(uuid=str(uuid4()), created=now()))
    connection.execute(insert(SchemaVersion).values(version_num=revision(migrations.HEAD)))


def _upgrade(opened: Opened, version: int) -> None:
    """Bring an older log to this version in one transaction. After a kill, the log has the old or the new
    version."""
    if opened.file is None:
        _upgrade_in(opened.write, opened)
        return
    back_up(opened.file, f"v{version}")
    opened.read.dispose()
    engine = file_engine(opened.file, readonly=False, foreign_keys=False)
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
    """Writes a consistent copy `<name>.<label>.<time>.backup` next to the log, with the rows that are still
    in the WAL."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    copy = file.with_name(f"{file.name}.{label}.{stamp}.backup")
    part = copy.with_name(copy.name + ".part")
    try:
        with (
            closing(connect_sqlite(f"{file.absolute().as_uri()}?mode=ro")) as old,
            closing(sqlite3.connect(part)) as new,
        ):
            old.backup(new)
        os.replace(part, copy)
    finally:
        part.unlink(missing_ok=True)
    return copy


def _lock_schema(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # with SQLite, BEGIN IMMEDIATE has locked the whole file
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": APPLICATION_ID})


def _use_wal(opened: Opened) -> None:
    """Switch to WAL mode, which the file keeps. This needs a moment without other connections."""
    for _ in range(50):
        with closing(opened.read.raw_connection()) as connection:
            try:
                if connection.cursor().execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal":
                    return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
        time.sleep(0.02)
    # The log works without WAL, too, but is slower. The next process that opens the log tries again.


def pragma(connection: Connection, name: str) -> list[Any]:
    return list(connection.exec_driver_sql(f"PRAGMA {name}").fetchall())
