"""Deletes trials that are not needed. All answers about trials in use stay the same.

    kept    the fastest of every task and machine · races · winners in use · trials built into a file ·
            sessions without an end · an example of every kind of failure · trials of chosen makers ·
            the newest trial · and all trials from which these were made
    goes    all other trials

The trials to delete are determined once, and deleted in ranges. Each range is a transaction with its lineage
and counts. After a kill, the log is intact and has fewer trials; pruning again continues. Trials that become
needed meanwhile stay. The newest trial stays because a row number must not be used twice: other processes
read "all trials after number 17".
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, text
from sqlalchemy.exc import DBAPIError

from tuning_db.answers import Pruned
from tuning_db.engine import TURN_S, Opened
from tuning_db.models import VERIFIED, UtcTime

RANGE = 10_000  # trials in one transaction

# The trials that are kept: one query for each reason.
FASTEST = f"""SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY workload_id, target_id, machine_id
    ORDER BY median_s, id) AS place FROM trial WHERE {VERIFIED}) AS ranked WHERE place <= :keep"""
IN_SESSIONS = """SELECT t.id FROM session s JOIN trial t ON t.session_id = s.id
    WHERE s.kind IN ('race', 'model') OR s.ended IS NULL"""
USED = "SELECT trial_id FROM standing WHERE trial_id IS NOT NULL UNION SELECT trial_id FROM apply_event"
EXAMPLES = "SELECT c.example FROM task_count c JOIN trial t ON t.id = c.example"
NEWEST = "SELECT MAX(id) FROM trial HAVING MAX(id) IS NOT NULL"
MADE = "SELECT id FROM trial WHERE made_by IN :makers"
YOUNG = "SELECT id FROM trial WHERE created >= :before"
# For each kept trial, the first trial of every trace from which it was made, on its machine: the trials that
# `LogHandle.lineage` returns.
ANCESTORS = """WITH RECURSIVE line(id) AS (SELECT id FROM kept UNION
    SELECT a.id FROM line JOIN parent p ON p.child_id = line.id JOIN trial c ON c.id = p.child_id
    JOIN trial a ON a.id = (SELECT MIN(o.id) FROM trial o
        WHERE o.workload_id = COALESCE(p.workload_id, c.workload_id) AND o.target_id = c.target_id
        AND o.machine_id = c.machine_id AND o.trace_hash = p.trace_hash)) SELECT id FROM line"""
# The trials of a range that are to be deleted and are still not needed.
GONE = f"""SELECT t.id FROM goes g JOIN trial t ON t.id = g.id WHERE g.id > :low AND g.id <= :high
    AND t.id NOT IN ({USED})
    AND t.session_id NOT IN (SELECT id FROM session WHERE ended IS NULL)
    AND t.trace_hash NOT IN (SELECT trace_hash FROM parent WHERE child_id > :newest)"""
DELETE = (
    "DELETE FROM parent WHERE child_id IN (SELECT id FROM gone)",
    """UPDATE task_count SET n = task_count.n - d.n FROM (
        SELECT workload_id, target_id, machine_id, status, error_signature, COUNT(*) AS n
        FROM trial WHERE id IN (SELECT id FROM gone)
        GROUP BY workload_id, target_id, machine_id, status, error_signature) AS d
       WHERE task_count.workload_id = d.workload_id AND task_count.target_id = d.target_id
       AND task_count.machine_id = d.machine_id AND task_count.status = d.status
       AND task_count.signature = d.error_signature""",
    "DELETE FROM trial WHERE id IN (SELECT id FROM gone)",
)
TEMPORARY = ("kept", "goes", "gone")


def prune(
    log: Opened, keep: int, before: datetime | None, makers: Collection[str], dry_run: bool
) -> tuple[Pruned, ...]:
    """Deletes trials. Returns the number of trials of each workload, and how many of them were deleted.

    keep: the number of the fastest trials of every task on every machine that stay. before: only older trials
    are deleted. makers: all trials that these made stay. dry_run: nothing is deleted.
    """
    with _connected(log) as c:
        with _transaction(c, writing=False):
            if c.dialect.name == "postgresql" and not dry_run:  # waits for writers, and makes new ones wait
                c.execute(text("LOCK TABLE trial IN SHARE MODE"))
            newest = c.execute(text("SELECT COALESCE(MAX(id), 0) FROM trial")).scalar_one()
            _decide(c, keep, before, makers)
            found = _by_workload(c)
        low = 0
        while not dry_run and (high := _end_of_range(c, low)):
            with _transaction(c):
                _delete(c, low, high, newest)
            low = high
            if log.file is not None:
                time.sleep(2 * TURN_S)  # others that wait for the file try within that time
        return found


def _decide(c: Connection, keep: int, before: datetime | None, makers: Collection[str]) -> None:
    """Fills the temporary table `kept`, then `goes`."""
    for name in TEMPORARY:
        c.execute(text(f"DROP TABLE IF EXISTS {name}"))
        number = "INTEGER" if c.dialect.name == "sqlite" else "BIGINT"  # SQLite's fastest key type
        c.execute(text(f"CREATE TEMPORARY TABLE {name} (id {number} PRIMARY KEY)"))
    for reason in (IN_SESSIONS, USED, EXAMPLES, NEWEST):
        _keep(c, reason)
    _keep(c, FASTEST, bindparam("keep", keep))
    if makers:
        _keep(c, MADE, bindparam("makers", list(makers), expanding=True))
    if before is not None:
        _keep(c, YOUNG, bindparam("before", before, UtcTime()))
    _keep(c, ANCESTORS)
    c.execute(text("INSERT INTO goes SELECT id FROM trial WHERE id NOT IN (SELECT id FROM kept)"))


def _keep(c: Connection, reason: str, *values: Any) -> None:
    put = text(f"INSERT INTO kept SELECT * FROM ({reason}) AS r WHERE true ON CONFLICT DO NOTHING")
    c.execute(put.bindparams(*values))


def _by_workload(c: Connection) -> tuple[Pruned, ...]:
    q = """SELECT w.key, w.name, COUNT(*), COUNT(g.id) FROM trial t JOIN workload w ON w.id = t.workload_id
           LEFT JOIN goes g ON g.id = t.id GROUP BY w.id, w.key, w.name ORDER BY w.id"""
    return tuple(Pruned(*row) for row in c.execute(text(q)))


def _end_of_range(c: Connection, low: int) -> int:
    """The last trial of the next range to delete; 0 after the last range."""
    q = "SELECT COALESCE(MAX(id), 0) FROM (SELECT id FROM goes WHERE id > :low ORDER BY id LIMIT :n) AS part"
    with _transaction(c, writing=False):
        return int(c.execute(text(q), {"low": low, "n": RANGE}).scalar_one())


def _delete(c: Connection, low: int, high: int, newest: int) -> None:
    c.execute(text("DELETE FROM gone"))
    c.execute(text(f"INSERT INTO gone {GONE}"), {"low": low, "high": high, "newest": newest})
    for statement in DELETE:
        c.execute(text(statement))


@contextmanager
def _connected(log: Opened) -> Iterator[Connection]:
    """A connection with temporary tables.

    For a file, foreign keys are not checked, because SQLite would read all standings for each deleted trial.
    """
    with log.write.connect() as c:
        raw: Any = c.connection.dbapi_connection
        if log.is_sqlite:
            raw.execute("PRAGMA foreign_keys = OFF")
        try:
            yield c
        finally:
            if c.in_transaction():
                c.rollback()
            with suppress(DBAPIError), _transaction(c, writing=False):
                for name in TEMPORARY:
                    c.execute(text(f"DROP TABLE IF EXISTS {name}"))
            if log.is_sqlite:
                raw.execute("PRAGMA foreign_keys = ON")


@contextmanager
def _transaction(c: Connection, writing: bool = True) -> Iterator[None]:
    """A transaction. writing: other writers wait for its end; if False, only temporary tables change."""
    c.execution_options(tuning_db_write=writing)
    with c.begin():
        yield
