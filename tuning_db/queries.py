"""Queries and rows of the store in SQL: keys to row ids, joins and filters, rows to records.

TRIALS, SESSIONS            selects whose rows `trials_from`, `session_from` make records of
filtered(q, workload, …)    the same, restricted; None restricts nothing
Ids(connection, place)      keys to row ids within one transaction
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, select
from sqlalchemy.dialects import sqlite

from tuning_db import models as m
from tuning_db.contract import unknown
from tuning_db.records import Sample, Session, Status, TrialRecord, Verification, distinct_traces

TASK = ("session_id", "workload_id", "target_id")
CHUNK = 500  # values in one IN (…), trials whose samples are fetched at once; SQLite's oldest limit is 999


class Ids:
    """Keys to row ids within one transaction, each looked up once."""

    def __init__(self, connection: Connection, place: str) -> None:
        self._connection = connection
        self._place = place
        self._known: dict[tuple[str, str], int] = {}

    def of(self, column: Any, key: str) -> int:
        table = column.class_
        known = self._known.get((table.__tablename__, key))
        if known is not None:
            return known
        found = self._connection.execute(select(table.id).where(column == key)).scalar()
        if found is None:
            raise unknown(self._place, table.__tablename__, key)
        return self._known.setdefault((table.__tablename__, key), int(found))

    def task(self, session: str, workload: str, target: str) -> dict[str, Any]:
        columns = (m.Session.uuid, m.Workload.key, m.Target.key)
        return dict(zip(TASK, map(self.of, columns, (session, workload, target)), strict=True))


PLAIN_COLUMNS = (
    "trace", "sketch_hash", "decisions", "parents", "made_by", "predicted", "median_s", "build_s", "error",
    "assembly", "source_sha", "created",
)  # fmt: skip

SESSIONS = (
    select(
        m.Session.uuid, m.Session.run_key, m.Session.seed, m.Session.options, m.Machine.fingerprint,
        m.Environment.key, m.Session.started, m.Session.ended, m.Session.stop_reason,
    )
    .join(m.Machine, m.Machine.id == m.Session.machine_id)
    .join(m.Environment, m.Environment.id == m.Session.environment_id)
)  # fmt: skip


def of_tasks(q: Any, table: type[m.Round | m.Intent | m.Trial]) -> Any:
    """The query over rows of this table with session, workload and target of each."""
    return (
        q.select_from(table)
        .join(m.Session, m.Session.id == table.session_id)
        .join(m.Workload, m.Workload.id == table.workload_id)
        .join(m.Target, m.Target.id == table.target_id)
    )


def joined(q: Any) -> Any:
    """The query over trials with what they refer to, so that any filter may follow."""
    return of_tasks(q, m.Trial).join(m.Machine, m.Machine.id == m.Trial.machine_id)


TRIALS = (
    joined(
        select(
            m.Trial.id,
            m.Session.uuid.label("session"),
            m.Workload.key.label("workload"),
            m.Target.key.label("target"),
            m.Machine.fingerprint.label("machine"),
            m.Environment.key.label("environment"),
            m.Trial.trace_hash,
            m.Trial.status,
            m.Round.number.label("round"),
            *(getattr(m.Trial, name) for name in PLAIN_COLUMNS),
        )
    )
    .join(m.Environment, m.Environment.id == m.Trial.environment_id)
    .outerjoin(m.Round, m.Round.id == m.Trial.round_id)
)


def filtered(
    q: Any,
    workload: str | None,
    target: str | None,
    machine: str | None,
    session: str | None,
    statuses: tuple[Status, ...] | None,
) -> Any:
    wanted = (
        (m.Workload.key, workload),
        (m.Target.key, target),
        (m.Machine.fingerprint, machine),
        (m.Session.uuid, session),
    )
    for column, value in wanted:
        if value is not None:
            q = q.where(column == value)
    return q if statuses is None else q.where(m.Trial.status.in_([s.value for s in statuses]))


def fastest(c: Connection, workload: str, target: str, machine: str, k: int) -> tuple[TrialRecord, ...]:
    """The `k` fastest verified trials of a task on one machine, with different traces."""
    q = filtered(TRIALS, workload, target, machine, None, (Status.OK,))
    q = q.join(m.Verification, m.Verification.trial_id == m.Trial.id).where(m.Verification.verdict)
    q = q.order_by(m.Trial.median_s, m.Trial.id)
    with c.execute(q) as rows:  # read only as far as needed; one trace may occur in many sessions
        parts = rows.partitions(max(k, 8))
        return distinct_traces((t for part in parts for t in trials_from(c, part) if t.verified), k)


# --- statements, each made once: making one takes longer than executing it ---


@cache
def insert(dialect: str, table: Any) -> Any:
    """INSERT of a row unless it is there: SQLite and PostgreSQL spell ON CONFLICT alike, others have none."""
    return _insert(dialect, table).on_conflict_do_nothing()


@cache
def _insert_id(dialect: str, table: Any) -> Any:
    return insert(dialect, table).returning(table.id)


def insert_new(c: Connection, table: Any, row: Mapping[str, Any]) -> int | None:
    """The id of the row that is inserted; None if it is there already."""
    id: int | None = c.execute(_insert_id(c.dialect.name, table), row).scalar()
    return id


@cache
def upsert_round(dialect: str) -> Any:
    """INSERT of a round; of one that is there the notes are replaced."""
    new = _insert(dialect, m.Round)
    return new.on_conflict_do_update(index_elements=[*TASK, "number"], set_={"notes": new.excluded.notes})


@cache
def upsert_intent(dialect: str) -> Any:
    """INSERT of an intent; of one that is there the launch is replaced, and counted."""
    new, row = _insert(dialect, m.Intent), m.Intent
    again = row.started != new.excluded.started  # else the answer to this very one was lost
    launch = {name: new.excluded[name] for name in ("worker_pid", "boot_id", "started")}
    attempts = row.attempts + case((again, 1), else_=0)
    return new.on_conflict_do_update(
        index_elements=[*TASK, "trace_hash"], set_=launch | {"attempts": attempts}
    )


def _insert(dialect: str, table: Any) -> Any:
    if dialect != "postgresql":
        return sqlite.insert(table.__table__)
    from sqlalchemy.dialects import postgresql  # here: a file does without

    return postgresql.insert(table.__table__)


def of_candidate(column: Any, table: type[m.Intent | m.Trial]) -> Any:
    """Conditions on the columns that name a candidate; their values are parameters of the execution."""
    names = (*TASK, "trace_hash")
    return column.where(*(getattr(table, name) == bindparam(name) for name in names))


TRIAL_OF = of_candidate(select(m.Trial.id, m.Trial.created), m.Trial)
DROP_INTENT = of_candidate(delete(m.Intent), m.Intent)
ROUND_OF = select(m.Round.id).where(
    *(getattr(m.Round, name) == bindparam(name) for name in TASK), m.Round.number == bindparam("number")
)


def chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[i : i + CHUNK] for i in range(0, len(values), CHUNK))


# --- rows to records ---


def row_of(record: Any) -> dict[str, Any]:
    """The columns of a record whose table has the same names."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def columns_of(record: type[Any], table: type[m.Base]) -> Any:
    """The query for what `row_of` put there."""
    return select(*(getattr(table, name) for name in record.__dataclass_fields__))


def session_from(id: str, run_key: str, seed: str, *rest: Any) -> Session:
    return Session(id, run_key, int(seed), *rest)


def trials_from(c: Connection, rows: Sequence[Any]) -> Iterator[TrialRecord]:
    for part in chunks(rows):
        ids = [row.id for row in part]
        samples: dict[int, list[Sample]] = {}
        q = columns_of(Sample, m.Sample).add_columns(m.Sample.trial_id).where(m.Sample.trial_id.in_(ids))
        for *sample, trial_id in c.execute(q.order_by(m.Sample.number)):
            samples.setdefault(trial_id, []).append(Sample(*sample))
        q = columns_of(Verification, m.Verification).add_columns(m.Verification.trial_id)
        checks = c.execute(q.where(m.Verification.trial_id.in_(ids)))
        verified = {trial_id: Verification(*check) for *check, trial_id in checks}
        for row in part:
            yield TrialRecord(
                **row._mapping, samples=tuple(samples.get(row.id, ())), verification=verified.get(row.id)
            )
