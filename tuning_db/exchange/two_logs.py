"""Two logs on one connection of the first log.

If both are files, the second log is attached; otherwise its rows are copied.

    with connected(into, source, TEMPORARY) as work:
        fill_table(work, m.Session)       copies sessions to `src_session` if the log cannot be attached
        work.run("INSERT … SELECT … FROM " + work.src + "trial")

An error names the log that it comes from, so that a fault of the second log is not blamed on the first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import Boolean, Connection, text
from sqlalchemy.exc import DBAPIError

from tuning_db import models as m
from tuning_db.engine import Opened, readonly_uri
from tuning_db.outage import is_away
from tuning_db.sentences import FOREIGN_ERRORS, explain

PART = 5_000  # rows in memory at once


@dataclass(slots=True)
class Merging:
    """Two logs on one connection of the first. A table of the second log has the name `src` + its own
    name."""

    c: Connection
    found: Connection  # connection to the second log
    src: str
    into: Opened
    source: Opened
    other_sketches: Mapping[int, str] = field(default_factory=dict)  # sketches of the second log, by number

    @property
    def streamed(self) -> bool:
        return self.src == "src_"

    def run(self, statement: str, **values: Any) -> Any:
        return self.c.execute(text(statement), values)

    def one(self, statement: str, **values: Any) -> Any:
        return self.run(statement, **values).first()

    def ask(self, query: str, **values: Any) -> Any:
        """A row of the second log itself. No transaction stays open in that log."""
        with _blamed(self.source):
            row = self.found.execute(text(query), values).first()
            self.found.rollback()
            return row

    @contextmanager
    def transaction(self, writing: bool = True) -> Iterator[None]:
        """A transaction. writing: other writers wait for its end; if False, only temporary tables change."""
        self.c.execution_options(tuning_db_write=writing)
        with self.c.begin():
            yield


def is_one(into: Opened, source: Opened) -> bool:
    if into.read.pool is source.read.pool:
        return True
    return into.file is not None and source.file is not None and into.file.samefile(source.file)


@contextmanager
def connected(into: Opened, source: Opened, temporary: Collection[str]) -> Iterator[Merging]:
    """Connects two logs for a block. temporary: the names of the tables that are dropped at its end."""
    with _blamed(source):
        found = source.read.connect()
    with found, into.write.connect() as c, _attached(c, into, source) as src:
        try:
            yield Merging(c, found, src, into, source)
        except DBAPIError as error:
            if _is_corrupt(error) and _is_damaged(found):
                raise explain(error, source.place) from error
            raise
        finally:
            _forget(c, temporary)


@contextmanager
def _attached(c: Connection, into: Opened, source: Opened) -> Iterator[str]:
    """The beginning of the names of the source's tables on this connection."""
    if into.file is None or source.file is None:
        yield "src_"
        return
    raw: Any = c.connection.dbapi_connection
    with _blamed(source):
        raw.execute("ATTACH DATABASE ? AS src", (readonly_uri(source.file),))
    try:
        yield "src."
    finally:
        raw.execute("DETACH DATABASE src")


def _forget(c: Connection, temporary: Collection[str]) -> None:
    """Drops the temporary tables of this connection, because it goes back into its pool."""
    if c.in_transaction():
        c.rollback()
    c.execution_options(tuning_db_write=False)
    with suppress(DBAPIError), c.begin():  # if the server is gone, its temporary tables are, too
        for name in temporary:
            c.execute(text(f"DROP TABLE IF EXISTS {name}"))


@contextmanager
def _blamed(log: Opened) -> Iterator[None]:
    """Errors while reading a log name this log. Errors after which a retry may work are not changed."""
    try:
        yield
    except FOREIGN_ERRORS as error:
        if isinstance(error, DBAPIError) and is_server_away(error):
            raise
        raise explain(error, log.place) from error


def is_server_away(error: DBAPIError) -> bool:
    return not isinstance(error.orig, sqlite3.Error) and is_away(error)


def _is_corrupt(error: DBAPIError) -> bool:
    return str(getattr(error.orig, "sqlite_errorname", "")).startswith("SQLITE_CORRUPT")


def _is_damaged(found: Connection) -> bool:
    try:
        return bool(found.exec_driver_sql("PRAGMA quick_check(1)").scalar() != "ok")
    except DBAPIError:
        return True


# --- rows that no ATTACH can reach ---


def fill_table(work: Merging, table: type[m.Base], where: str = "") -> None:
    """Fills a temporary table with the source's rows, which replace its earlier rows."""
    name, columns = table.__tablename__, list(table.__table__.columns)
    names = ", ".join(column.name for column in columns)
    work.run(f"DROP TABLE IF EXISTS src_{name}")
    work.run(f"CREATE TEMPORARY TABLE src_{name} AS SELECT {names} FROM {name} WHERE 1 = 0")
    yes_or_no = [n for n, column in enumerate(columns) if isinstance(column.type, Boolean)]
    for batch in batches(work, f"SELECT {names} FROM {name} {where}"):
        insert(work.c, f"src_{name}", names, [_with_bools(row, yes_or_no) for row in batch])
    analyze(work, f"src_{name}")


def analyze(work: Merging, table: str) -> None:
    """Makes a server analyse temporary tables. It does not do this automatically, and would plan for small
    tables."""
    if work.c.dialect.name == "postgresql":
        work.run(f"ANALYZE {table}")


def batches(work: Merging, query: str) -> Iterator[Sequence[Any]]:
    with _blamed(work.source):
        rows = work.found.execute(text(query), execution_options={"stream_results": True})
    while True:
        with _blamed(work.source):
            batch = list(islice(rows, PART))
        if not batch:
            return
        yield batch


def _with_bools(row: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    """The row with bools instead of SQLite's numbers at these positions."""
    return tuple(bool(value) if n in places and value is not None else value for n, value in enumerate(row))


def insert(c: Connection, table: str, names: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if c.dialect.name != "postgresql":
        marks = ", ".join("?" * len(rows[0]))
        c.exec_driver_sql(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(rows))
        return
    raw: Any = c.connection.dbapi_connection
    driver: Any = c.dialect.dbapi
    statement = f"COPY {table} ({names}) FROM STDIN"
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except driver.Error as error:
        raise DBAPIError.instance(statement, None, error, driver.Error, dialect=c.dialect) from error
