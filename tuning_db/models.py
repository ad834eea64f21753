"""The tables of a tuning log, typed, and nothing else. The migrations repeat them, version by version.

    workload  target  machine ◀── calibration      environment
        ▲        ▲       ▲                              ▲
        └────┬───┴───────┴──────────────┬───────────────┘
           trial ──▶ round ──▶ session ─┘      intent: what is in flight, gone when its trial is stored
             ▲
     sample, verification, apply_event         views: v_best, v_progress, v_failures

Every column that may ever be wanted is here from version 1: what was not recorded cannot be added
afterwards. JSON is text, times are ISO 8601 in UTC, so that any SQL shell can read the file.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from tuning_db.records import Json, as_utc, canonical_json, freeze

Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows itself only for the type INTEGER


class JsonText(TypeDecorator[Any]):
    """A JSON value as canonical text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Json, dialect: Dialect) -> str | None:
        return None if value is None else canonical_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Json:
        return None if value is None else freeze(json.loads(value))


class UtcTime(TypeDecorator[datetime]):
    """An instant as ISO 8601 text of fixed width in UTC, so that text order is time order."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else as_utc(value).isoformat(timespec="microseconds")

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value).astimezone(UTC)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy reads it from the class)
        float: Double(),
        str: Text(),
        datetime: UtcTime(),
    }


# columns that several tables have
RowId = Annotated[int, mapped_column(Id, primary_key=True)]
Key = Annotated[str, mapped_column(unique=True)]
Word = Annotated[str, mapped_column(String(32))]
JsonValue = Annotated[Json, mapped_column(JsonText)]
OfSession = Annotated[int, mapped_column(ForeignKey("session.id"))]
OfWorkload = Annotated[int, mapped_column(ForeignKey("workload.id"))]
OfTarget = Annotated[int, mapped_column(ForeignKey("target.id"))]
OfMachine = Annotated[int, mapped_column(ForeignKey("machine.id"))]
OfEnvironment = Annotated[int, mapped_column(ForeignKey("environment.id"))]


class Workload(Base):
    __tablename__ = "workload"
    id: Mapped[RowId]
    key: Mapped[Key]
    name: Mapped[str]
    text: Mapped[str]
    flops: Mapped[float]


class Target(Base):
    __tablename__ = "target"
    id: Mapped[RowId]
    key: Mapped[Key]
    text: Mapped[str]


class Machine(Base):
    __tablename__ = "machine"
    id: Mapped[RowId]
    fingerprint: Mapped[Key]
    cpu_model: Mapped[str]
    features: Mapped[JsonValue]
    cores: Mapped[int]
    caches: Mapped[JsonValue]
    device: Mapped[str]
    driver: Mapped[str]
    extra: Mapped[JsonValue]


class Environment(Base):
    __tablename__ = "environment"
    id: Mapped[RowId]
    key: Mapped[Key]
    versions: Mapped[JsonValue]


class Calibration(Base):
    __tablename__ = "calibration"
    __table_args__ = (UniqueConstraint("machine_id", "name", "measured"),)
    id: Mapped[RowId]
    machine_id: Mapped[OfMachine]
    name: Mapped[str]
    value: Mapped[float]
    unit: Mapped[str]
    samples: Mapped[JsonValue]
    measured: Mapped[datetime]


class Session(Base):
    __tablename__ = "session"
    id: Mapped[RowId]
    uuid: Mapped[Key]
    run_key: Mapped[str] = mapped_column(index=True)
    seed: Mapped[str]  # decimal text: seeds may exceed 64 bits
    options: Mapped[JsonValue]
    machine_id: Mapped[OfMachine]
    environment_id: Mapped[OfEnvironment]
    started: Mapped[datetime]
    ended: Mapped[datetime | None]
    stop_reason: Mapped[str | None]


class Round(Base):
    __tablename__ = "round"
    __table_args__ = (UniqueConstraint("session_id", "workload_id", "target_id", "number"),)
    id: Mapped[RowId]
    session_id: Mapped[OfSession]
    workload_id: Mapped[OfWorkload]
    target_id: Mapped[OfTarget]
    number: Mapped[int]
    notes: Mapped[JsonValue]
    started: Mapped[datetime]


class Intent(Base):
    __tablename__ = "intent"
    __table_args__ = (UniqueConstraint("session_id", "workload_id", "target_id", "trace_hash"),)
    id: Mapped[RowId]
    session_id: Mapped[OfSession]
    workload_id: Mapped[OfWorkload]
    target_id: Mapped[OfTarget]
    trace_hash: Mapped[str]
    trace: Mapped[str]
    worker_pid: Mapped[int]
    boot_id: Mapped[str]
    started: Mapped[datetime]
    attempts: Mapped[int]


class Trial(Base):
    __tablename__ = "trial"
    __table_args__ = (
        UniqueConstraint("session_id", "workload_id", "target_id", "trace_hash"),
        CheckConstraint("(status = 'OK') = (median_s IS NOT NULL)", name="time_only_if_ok"),
        Index(None, "workload_id", "target_id", "machine_id", "median_s"),
    )
    id: Mapped[RowId]
    session_id: Mapped[OfSession]
    round_id: Mapped[int | None] = mapped_column(ForeignKey("round.id"))
    workload_id: Mapped[OfWorkload]
    target_id: Mapped[OfTarget]
    machine_id: Mapped[OfMachine]
    environment_id: Mapped[OfEnvironment]
    trace: Mapped[str]
    trace_hash: Mapped[str]
    sketch_hash: Mapped[str]
    decisions: Mapped[JsonValue]
    parents: Mapped[JsonValue]
    made_by: Mapped[str]
    predicted: Mapped[float | None]
    status: Mapped[Word]
    median_s: Mapped[float | None]
    build_s: Mapped[float | None]
    error: Mapped[str | None]
    error_signature: Mapped[str]
    assembly: Mapped[JsonValue]
    source_sha: Mapped[str | None]
    created: Mapped[datetime]


class Sample(Base):
    __tablename__ = "sample"
    trial_id: Mapped[int] = mapped_column(ForeignKey("trial.id"), primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    seconds: Mapped[float]
    residency: Mapped[str]
    reference_s: Mapped[float | None]


class Verification(Base):
    __tablename__ = "verification"
    trial_id: Mapped[int] = mapped_column(ForeignKey("trial.id"), primary_key=True, autoincrement=False)
    max_error: Mapped[float | None]
    tolerance: Mapped[float]
    seeds: Mapped[JsonValue]
    verdict: Mapped[bool]


class ApplyEvent(Base):
    __tablename__ = "apply_event"
    id: Mapped[RowId]
    trial_id: Mapped[int] = mapped_column(ForeignKey("trial.id"), index=True)
    used_by: Mapped[str]
    applied: Mapped[datetime]


class SchemaVersion(Base):
    """One row, the table alembic keeps its place in; its name marks a database as ours."""

    __tablename__ = "tuning_db_version"
    version_num: Mapped[str] = mapped_column(String(32), primary_key=True)


# Views for people with an SQL shell, and for dashboards. A migration that rebuilds a table drops them first.
VIEWS = {
    "v_best": """
CREATE VIEW v_best AS
SELECT workload, name, target, machine, trial, median_s, gflops, trace FROM (
  SELECT w.key AS workload, w.name AS name, g.key AS target, m.fingerprint AS machine, t.id AS trial,
         t.median_s AS median_s, w.flops / NULLIF(t.median_s, 0) / 1e9 AS gflops, t.trace AS trace,
         ROW_NUMBER() OVER (PARTITION BY t.workload_id, t.target_id, t.machine_id
                            ORDER BY t.median_s, t.id) AS place
  FROM trial t
  JOIN workload w ON w.id = t.workload_id
  JOIN target g ON g.id = t.target_id
  JOIN machine m ON m.id = t.machine_id
  JOIN verification v ON v.trial_id = t.id
  WHERE t.status = 'OK' AND v.verdict) ranked
WHERE place = 1""",
    "v_progress": """
CREATE VIEW v_progress AS
SELECT s.uuid AS session, w.key AS workload, g.key AS target, t.id AS trial, t.created AS created,
       t.status AS status, t.median_s AS median_s, t.predicted AS predicted,
       ROW_NUMBER() OVER task AS number,
       MIN(CASE WHEN t.status = 'OK' AND v.verdict THEN t.median_s END) OVER task AS best_s
FROM trial t
JOIN session s ON s.id = t.session_id
JOIN workload w ON w.id = t.workload_id
JOIN target g ON g.id = t.target_id
LEFT JOIN verification v ON v.trial_id = t.id
WINDOW task AS (PARTITION BY t.session_id, t.workload_id, t.target_id ORDER BY t.id)""",
    "v_failures": """
CREATE VIEW v_failures AS
SELECT s.uuid AS session, w.key AS workload, g.key AS target, t.status AS status,
       t.error_signature AS signature, COUNT(*) AS failures, MIN(t.id) AS example
FROM trial t
JOIN session s ON s.id = t.session_id
JOIN workload w ON w.id = t.workload_id
JOIN target g ON g.id = t.target_id
WHERE t.status <> 'OK'
GROUP BY s.uuid, w.key, g.key, t.status, t.error_signature""",
}
