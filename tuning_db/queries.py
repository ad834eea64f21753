"""Queries of the store in SQL, and functions that turn rows into records.

TRIALS           a select of the trial table alone; `trials_from` turns its rows into records
SESSIONS         a select; `session_from` turns its rows into records
conditions(…)    conditions for either select, by row ids; None: a key is not stored, so no row fits
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, delete, or_, select, text, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import aliased

from tuning_db import models as m
from tuning_db.answers import Leader, TaskCount, distinct_traces
from tuning_db.columns.samples import pack, unpack
from tuning_db.columns.traces import fill, reproduces
from tuning_db.keys import Keys, chunks
from tuning_db.records import Parent, Session, Standing, Status, TrialRecord, Verification
from tuning_db.values import error_signature

TASK = ("session_id", "workload_id", "target_id")
VERIFIED = text(m.VERIFIED)  # word for word the index's condition, otherwise the index is not used

# columns that become fields of the record without a change
PLAIN = (
    "round", "trace_hash", "decisions", "made_by", "predicted", "median_s", "build_s", "error", "conditions",
    "note", "numerics", "assembly", "source_sha", "created",
)  # fmt: skip
OTHER = (
    "id", *TASK, "machine_id", "environment_id", "host_id", "code_id", "sketch_id", "trace", "status",
    "residency", "samples", "max_error", "tolerance", "seeds", "verdict", "metrics", "extents",
)  # fmt: skip
TRIALS = select(*(getattr(m.Trial, name) for name in (*OTHER, *PLAIN)))

_Of = aliased(m.Session)
SESSIONS = (
    select(
        m.Session.uuid, m.Run.key, m.Session.seed, m.Session.options, m.Machine.fingerprint,
        m.Environment.key, m.Session.started, m.Session.ended, m.Session.stop_reason, m.Session.kind,
        _Of.uuid, m.Session.owner, m.Session.lease_until,
    )
    .join(m.Run, m.Run.id == m.Session.run_id)
    .join(m.Machine, m.Machine.id == m.Session.machine_id)
    .join(m.Environment, m.Environment.id == m.Session.environment_id)
    .outerjoin(_Of, _Of.id == m.Session.of_id)
)  # fmt: skip
LATEST = (m.Session.started.desc(), m.Session.id.desc())


def of_tasks(q: Any, table: type[m.Round | m.Intent]) -> Any:
    """The query `q` over rows of this table, joined with the session, workload and target of each row."""
    return (
        q.select_from(table)
        .join(m.Session, m.Session.id == table.session_id)
        .join(m.Workload, m.Workload.id == table.workload_id)
        .join(m.Target, m.Target.id == table.target_id)
    )


def conditions(
    c: Connection,
    keys: Keys,
    table: Any,
    workload: str | None = None,
    target: str | None = None,
    machine: str | None = None,
    session: str | None = None,
    statuses: tuple[Status, ...] | None = None,
) -> list[Any] | None:
    """Conditions that restrict a select of this table to these keys; None if a key is not stored."""
    wanted = (
        (m.Workload, "workload_id", workload),
        (m.Target, "target_id", target),
        (m.Machine, "machine_id", machine),
        (m.Session, "session_id", session),
    )
    found = []
    for owner, column, key in wanted:
        if key is not None:
            id = keys.find(c, owner, key)
            if id is None:
                return None
            found.append(getattr(table, column) == id)
    if statuses is not None:
        found.append(table.status.in_([s.value for s in statuses]))
    return found


def fastest(
    c: Connection, keys: Keys, workload: str, target: str, machine: str, k: int
) -> tuple[TrialRecord, ...]:
    """The `k` fastest verified trials of a task on one machine, with different traces.

    One trace may occur in many sessions. So a few more rows than `k` are read, and again more if they were
    too few.
    """
    where = conditions(c, keys, m.Trial, workload, target, machine)
    if where is None or k <= 0:
        return ()
    ask = k
    while True:
        q = TRIALS.where(*where, VERIFIED).order_by(m.Trial.median_s, m.Trial.id).limit(ask)
        found = tuple(trials_from(c, keys, c.execute(q).all()))
        best = distinct_traces((t for t in found if t.verified), k)
        if len(best) == k or len(found) < ask:
            return best
        ask *= 8


# --- statements: each is made once, because making one takes longer than executing it ---


@cache
def insert(dialect: str, table: Any) -> Any:
    """INSERT of a row unless it exists. SQLite and PostgreSQL share ON CONFLICT; other databases lack it."""
    return _insert(dialect, table).on_conflict_do_nothing()


@cache
def insert_trials(dialect: str) -> Any:
    """INSERT of trials that returns the ids and identities of the new ones."""
    t = m.Trial
    return insert(dialect, t).returning(t.id, t.session_id, t.workload_id, t.target_id, t.trace_hash)


@cache
def _insert_id(dialect: str, table: Any) -> Any:
    return insert(dialect, table).returning(table.id)


def insert_new(c: Connection, table: Any, row: dict[str, Any]) -> int | None:
    """Inserts a row and returns its id; None if the row exists already."""
    id: int | None = c.execute(_insert_id(c.dialect.name, table), row).scalar()
    return id


@cache
def upsert_round(dialect: str) -> Any:
    """INSERT of a round. If the round exists already, its notes are replaced."""
    new = _insert(dialect, m.Round)
    return new.on_conflict_do_update(index_elements=[*TASK, "number"], set_={"notes": new.excluded.notes})


@cache
def upsert_intents(dialect: str) -> Any:
    """INSERT of intents. If an intent exists already, its launch is replaced and counted, unless it is the
    same launch (the answer to the first INSERT was lost).
    """
    new, row = _insert(dialect, m.Intent), m.Intent
    launch = {name: new.excluded[name] for name in ("worker_pid", "boot_id", "started", "host_id")}
    attempts = row.attempts + case((row.started != new.excluded.started, 1), else_=0)
    return new.on_conflict_do_update(
        index_elements=[*TASK, "trace_hash"], set_=launch | {"attempts": attempts}
    )


@cache
def add_counts(dialect: str) -> Any:
    new, row = _insert(dialect, m.TaskCount), m.TaskCount
    return new.on_conflict_do_update(
        index_elements=["workload_id", "target_id", "machine_id", "status", "signature"],
        set_={"n": row.count + new.excluded.n},
    )


@cache
def upsert_last_race(dialect: str) -> Any:
    """INSERT of a race without its winner. It replaces the result of an earlier race, never of a later
    one."""
    new, row = _insert(dialect, m.Standing), m.Standing
    later = or_(
        new.excluded.raced > row.raced,
        and_(new.excluded.raced == row.raced, new.excluded.race_id > row.race_id),
    )
    names = ("race_id", "raced", "trial_id", "seconds", "default_s", "updated")
    return new.on_conflict_do_update(
        index_elements=["workload_id", "target_id", "machine_id"],
        set_={name: new.excluded[name] for name in names},
        where=later,
    )


@cache
def upsert_sketch(dialect: str) -> Any:
    new = _insert(dialect, m.Sketch)
    return new.on_conflict_do_update(
        index_elements=["hash"], set_={"text": new.excluded.text}, where=m.Sketch.text.is_(None)
    )


@cache
def upsert_host(dialect: str) -> Any:
    new = _insert(dialect, m.Host)
    return new.on_conflict_do_update(
        index_elements=["uuid"],
        set_={"seen": new.excluded.seen, "name": new.excluded.name},
        where=new.excluded.seen > m.Host.seen,
    )


def _insert(dialect: str, table: Any) -> Any:
    if dialect != "postgresql":
        return sqlite.insert(table.__table__)
    from sqlalchemy.dialects import postgresql  # imported here, because a log in a file does not need it

    return postgresql.insert(table.__table__)


def of_candidate(column: Any, table: type[m.Intent | m.Trial]) -> Any:
    """Conditions on the columns that identify a candidate. Their values are given at execution."""
    names = (*TASK, "trace_hash")
    return column.where(*(getattr(table, name) == bindparam(f"of_{name}") for name in names))


TRIAL_OF = of_candidate(select(m.Trial.id, m.Trial.created), m.Trial)
DROP_INTENT = of_candidate(delete(m.Intent), m.Intent)
DROP_DONE = delete(m.Intent).where(  # intents of a session whose trial is stored
    m.Intent.session_id == bindparam("of_session"),
    select(m.Trial.id)
    .where(*(getattr(m.Trial, n) == getattr(m.Intent, n) for n in (*TASK, "trace_hash")))
    .exists(),
)
RENEW = update(m.Session).where(
    m.Session.uuid == bindparam("of_session"), m.Session.owner == bindparam("of_owner")
)
ROUND_OF = select(m.Round.id).where(
    *(getattr(m.Round, name) == bindparam(f"of_{name}") for name in TASK),
    m.Round.number == bindparam("of_number"),
)


# --- rows to records, records to rows ---


def row_of(record: Any) -> dict[str, Any]:
    """The columns of a record whose table has the same names."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def columns_of(record: type[Any], table: type[m.Base]) -> Any:
    """The query for the columns that `row_of` writes."""
    return select(*(getattr(table, name) for name in record.__dataclass_fields__))


def session_from(id: str, run_key: str, seed: str, *rest: Any) -> Session:
    return Session(id, run_key, int(seed), *rest)


def candidate_row(c: Connection, keys: Keys, sketch_hash: str, decisions: Any, trace: str) -> dict[str, Any]:
    """The columns that describe a candidate. The trace is included only if sketch and decisions do not give
    it."""
    if not sketch_hash:
        return {"sketch_id": None, "decisions": decisions, "trace": trace}
    sketch = keys.sketch(c, sketch_hash)
    if sketch is None:
        c.execute(insert(c.dialect.name, m.Sketch), {"hash": sketch_hash, "text": None})
        sketch = keys.sketch(c, sketch_hash)
        assert sketch is not None
    known = sketch.text is not None and reproduces(sketch.text, decisions, trace)
    return {"sketch_id": sketch.id, "decisions": decisions, "trace": None if known else trace}


def trial_row(c: Connection, keys: Keys, t: TrialRecord) -> dict[str, Any]:
    """The columns of a trial. Raises StoreError if a record to which the trial refers is not stored."""
    residency, samples = pack(t.samples)
    check = t.verification
    row = {
        "session_id": keys.session(c, t.session).id,
        "workload_id": keys.id(c, m.Workload, t.workload),
        "target_id": keys.id(c, m.Target, t.target),
        "machine_id": keys.id(c, m.Machine, t.machine),
        "environment_id": keys.id(c, m.Environment, t.environment),
        "host_id": keys.maybe_id(c, m.Host, t.host),
        "code_id": keys.maybe_id(c, m.Code, t.code),
        "status": t.status.value,
        "residency": residency,
        "samples": samples,
        "max_error": None if check is None else check.max_error,
        "tolerance": None if check is None else check.tolerance,
        "seeds": None if check is None else check.seeds,
        "verdict": None if check is None else check.verdict,
        "metrics": t.metrics or None,
        "extents": t.extents or None,
        "error_signature": "" if t.status is Status.OK else error_signature(t.error),
    }
    row |= {name: getattr(t, name) for name in PLAIN}
    return row | candidate_row(c, keys, t.sketch_hash, t.decisions, t.trace)


def trials_from(c: Connection, keys: Keys, rows: Sequence[Any]) -> Iterator[TrialRecord]:
    for part in chunks(rows):
        for table, column in (
            (m.Session, "session_id"), (m.Workload, "workload_id"), (m.Target, "target_id"),
            (m.Machine, "machine_id"), (m.Environment, "environment_id"), (m.Host, "host_id"),
            (m.Code, "code_id"),
        ):  # fmt: skip
            keys.load(c, table, (getattr(row, column) for row in part))
        keys.load_sketches(c, (row.sketch_id for row in part))
        parents = _parents(c, keys, [row.id for row in part])
        for row in part:
            yield _trial(keys, row, parents.get(row.id, ()))


def _trial(keys: Keys, row: Any, parents: Sequence[Parent]) -> TrialRecord:
    sketch = None if row.sketch_id is None else keys.sketch_of(row.sketch_id)
    check = None
    if row.verdict is not None:
        check = Verification(row.max_error, row.tolerance, row.seeds, row.verdict)
    return TrialRecord(
        id=row.id,
        session=keys.key(m.Session, row.session_id),
        workload=keys.key(m.Workload, row.workload_id),
        target=keys.key(m.Target, row.target_id),
        machine=keys.key(m.Machine, row.machine_id),
        environment=keys.key(m.Environment, row.environment_id),
        host=keys.maybe_key(m.Host, row.host_id),
        code=keys.maybe_key(m.Code, row.code_id),
        trace=trace_of(row, sketch),
        sketch_hash="" if sketch is None else sketch.hash,
        status=row.status,
        samples=unpack(row.residency, row.samples),
        verification=check,
        parents=tuple(parents),
        metrics=row.metrics or {},
        extents=row.extents or {},
        **{name: getattr(row, name) for name in PLAIN},
    )


def trace_of(row: Any, sketch: Any) -> str:
    """The trace of a row of trials or intents. Raises ValueError if neither the trace nor its sketch is
    stored."""
    if row.trace is not None:
        return str(row.trace)
    if sketch is None or sketch.text is None:
        raise ValueError(f"row {row.id} has neither a trace nor the text of its sketch")
    return fill(sketch.text, row.decisions)


def _parents(c: Connection, keys: Keys, ids: Sequence[int]) -> dict[int, list[Parent]]:
    p = m.Parent
    q = select(p.child_id, p.trace_hash, p.how, p.workload_id).where(p.child_id.in_(ids))
    rows = c.execute(q.order_by(p.child_id, p.number)).all()
    keys.load(c, m.Workload, (row.workload_id for row in rows))
    found: dict[int, list[Parent]] = {}
    for child, trace_hash, how, workload in rows:
        found.setdefault(child, []).append(
            Parent(trace_hash, how, keys.maybe_key(m.Workload, workload) or "")
        )
    return found


def counts_from(c: Connection, keys: Keys, rows: Sequence[Any]) -> tuple[TaskCount, ...]:
    for table, column in ((m.Workload, 0), (m.Target, 1), (m.Machine, 2)):
        keys.load(c, table, (row[column] for row in rows))
    return tuple(
        TaskCount(
            keys.key(m.Workload, w), keys.key(m.Target, g), keys.key(m.Machine, h), Status(status), *rest
        )
        for w, g, h, status, *rest in rows
    )


def leaders_from(c: Connection, keys: Keys, rows: Sequence[Any]) -> tuple[Leader, ...]:
    for table, column in ((m.Workload, 0), (m.Target, 1), (m.Machine, 2)):
        keys.load(c, table, (row[column] for row in rows))
    return tuple(
        Leader(keys.key(m.Workload, w), keys.key(m.Target, g), keys.key(m.Machine, h), *rest)
        for w, g, h, *rest in rows
    )


def standings_from(c: Connection, keys: Keys, rows: Sequence[Any]) -> tuple[Standing, ...]:
    for table, column in ((m.Workload, 0), (m.Target, 1), (m.Machine, 2), (m.Session, 3)):
        keys.load(c, table, (row[column] for row in rows))
    return tuple(
        Standing(
            keys.key(m.Workload, w), keys.key(m.Target, g), keys.key(m.Machine, h), keys.key(m.Session, s),
            *rest,
        )
        for w, g, h, s, *rest in rows
    )  # fmt: skip


_Best = aliased(m.Trial)
_first = (
    select(_Best.id)
    .where(
        _Best.workload_id == m.TaskCount.workload_id,
        _Best.target_id == m.TaskCount.target_id,
        _Best.machine_id == m.TaskCount.machine_id,
        VERIFIED,  # this text names no table, so it refers to the inner table
    )
    .order_by(_Best.median_s, _Best.id)
    .limit(1)
    .correlate(m.TaskCount)
    .scalar_subquery()
)
LEADERS = (
    select(
        m.TaskCount.workload_id, m.TaskCount.target_id, m.TaskCount.machine_id, m.Trial.id,
        m.Trial.median_s, m.Trial.created, m.Trial.made_by,
    )
    .select_from(m.TaskCount)
    .join(m.Trial, m.Trial.id == _first)
)  # fmt: skip
STANDINGS = select(
    m.Standing.workload_id, m.Standing.target_id, m.Standing.machine_id, m.Standing.race_id,
    m.Standing.trial_id, m.Standing.seconds, m.Standing.default_s, m.Standing.updated,
)  # fmt: skip
COUNTS = select(
    m.TaskCount.workload_id, m.TaskCount.target_id, m.TaskCount.machine_id, m.TaskCount.status,
    m.TaskCount.signature, m.TaskCount.count,
)  # fmt: skip

_Newer = aliased(m.Trial)
OVERTAKEN = STANDINGS.where(
    select(_Newer.id)
    .where(
        _Newer.workload_id == m.Standing.workload_id,
        _Newer.target_id == m.Standing.target_id,
        _Newer.machine_id == m.Standing.machine_id,
        VERIFIED,  # it names no table, so it refers to the inner one
        _Newer.median_s < bindparam("share") * m.Standing.seconds,
        _Newer.created > m.Standing.raced,
        _Newer.session_id != m.Standing.race_id,
    )
    .exists()
)
