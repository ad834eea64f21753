"""Queries and rows of the store in SQL: keys to row ids, joins and filters, rows to records.

TRIALS, SESSIONS            selects whose rows `trials_from`, `session_from` make records of
filtered(q, workload, …)    the same, restricted; None restricts nothing
Ids(connection, place)      keys to row ids within one transaction
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.dialects import sqlite

from tuning_db import models as m
from tuning_db.contract import unknown
from tuning_db.records import Sample, Session, Status, TrialRecord, Verification, distinct_traces

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
        return {
            "session_id": self.of(m.Session.uuid, session),
            "workload_id": self.of(m.Workload.key, workload),
            "target_id": self.of(m.Target.key, target),
        }


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


def insert(c: Connection, table: Any) -> Any:
    """INSERT of this dialect: SQLite's and PostgreSQL's spell ON CONFLICT alike, the generic one has none."""
    if c.dialect.name != "postgresql":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # here: a file does without

    return postgresql.insert(table)


def insert_new(c: Connection, table: Any, row: Mapping[str, Any], unique: str) -> bool:
    """Insert unless the unique column has this value already; whether it was new."""
    new = insert(c, table).values(row).on_conflict_do_nothing(index_elements=[unique])
    return c.execute(new.returning(table.id)).first() is not None


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
