"""The tables of a tuning log, with types. The migrations contain the same tables for each version.

    workload  target  machine ◀── calibration      sketch    host  code  environment
        ▲        ▲       ▲                            ▲        ▲     ▲        ▲
        └────┬───┴───────┴────────────────────────────┴────┬───┴─────┴────────┘
           trial ──▶ round ──▶ session ──▶ run             │
             ▲                    ▲                        │
      parent, apply_event      opening, intent ────────────┘
             ▲
         standing: winners in use     task_count: numbers of trials       merged: how far other logs were read

The tables have every column that may be useful one day, because facts that were not recorded cannot be added
later. JSON is text, and times are ISO 8601 in UTC, so that any SQL shell can read the file. Look-ups by task
use an index that has the order of the result. Counts are kept in `task_count`.
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
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from tuning_db.values import Json, as_utc, canonical_json, freeze

Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite assigns row numbers only for the type INTEGER


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
JsonValue = Annotated[Json, mapped_column(JsonText, nullable=False)]
JsonMaybe = Annotated[Json, mapped_column(JsonText, nullable=True)]
OfSession = Annotated[int, mapped_column(ForeignKey("session.id"))]
OfWorkload = Annotated[int, mapped_column(ForeignKey("workload.id"))]
OfTarget = Annotated[int, mapped_column(ForeignKey("target.id"))]
OfMachine = Annotated[int, mapped_column(ForeignKey("machine.id"))]
OfEnvironment = Annotated[int, mapped_column(ForeignKey("environment.id"))]
OfHost = Annotated[int, mapped_column(ForeignKey("host.id"))]
OfCode = Annotated[int, mapped_column(ForeignKey("code.id"))]
MaybeHost = Annotated[int | None, mapped_column(ForeignKey("host.id"))]
MaybeCode = Annotated[int | None, mapped_column(ForeignKey("code.id"))]
MaybeSketch = Annotated[int | None, mapped_column(ForeignKey("sketch.id"))]


def part_of(column: str) -> Any:
    """A column of a primary key. If its name has a dot, it refers to another table; otherwise it is a
    number."""
    return mapped_column(
        *([ForeignKey(column)] if "." in column else []), primary_key=True, autoincrement=False
    )


# condition for a trial that may be applied; a query must repeat it word for word to use the index
VERIFIED = "verdict AND status = 'OK'"


class Log(Base):
    """The name of this log, in one row. By this name, another log knows which part it has merged."""

    __tablename__ = "log"
    id: Mapped[RowId]
    uuid: Mapped[str]
    created: Mapped[datetime]


class Workload(Base):
    __tablename__ = "workload"
    id: Mapped[RowId]
    key: Mapped[Key]
    name: Mapped[str]
    text: Mapped[str]
    flops: Mapped[float]
    symbols: Mapped[JsonValue]


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
    memory: Mapped[int] = mapped_column(BigInteger)


class Host(Base):
    __tablename__ = "host"
    id: Mapped[RowId]
    uuid: Mapped[Key]
    name: Mapped[str]
    machine_id: Mapped[OfMachine]
    seen: Mapped[datetime]


class Code(Base):
    __tablename__ = "code"
    id: Mapped[RowId]
    key: Mapped[Key]
    version: Mapped[str]
    commit_sha: Mapped[str]
    dirty: Mapped[bool]
    sources: Mapped[str]


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


class Sketch(Base):
    __tablename__ = "sketch"
    id: Mapped[RowId]
    hash: Mapped[Key]
    text: Mapped[str | None]  # None: only the hash was recorded, and the trials have whole traces


class Run(Base):
    __tablename__ = "run"
    id: Mapped[RowId]
    key: Mapped[Key]
    model: Mapped[str]
    model_hash: Mapped[str]
    tasks: Mapped[JsonValue]
    tags: Mapped[JsonValue]
    note: Mapped[str]


class Session(Base):
    __tablename__ = "session"
    __table_args__ = (Index(None, "kind", "started"), Index(None, "run_id", "started"))
    id: Mapped[RowId]
    uuid: Mapped[Key]
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    kind: Mapped[Word]
    of_id: Mapped[int | None] = mapped_column(ForeignKey("session.id"))
    seed: Mapped[str]  # decimal text: seeds may exceed 64 bits
    options: Mapped[JsonValue]
    machine_id: Mapped[OfMachine]
    environment_id: Mapped[OfEnvironment]
    started: Mapped[datetime]
    ended: Mapped[datetime | None]
    stop_reason: Mapped[str | None]
    owner: Mapped[str]
    lease_until: Mapped[datetime | None]


class Opening(Base):
    __tablename__ = "opening"
    __table_args__ = (UniqueConstraint("session_id", "host_id", "pid", "started"),)
    id: Mapped[RowId]
    session_id: Mapped[OfSession]
    host_id: Mapped[OfHost]
    code_id: Mapped[OfCode]
    command: Mapped[str]
    user_name: Mapped[str]
    pid: Mapped[int]
    boot_id: Mapped[str]
    started: Mapped[datetime]


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
    host_id: Mapped[MaybeHost]
    sketch_id: Mapped[MaybeSketch]
    decisions: Mapped[JsonValue]
    trace: Mapped[str | None]  # None: sketch and decisions give the trace
    trace_hash: Mapped[str]
    worker_pid: Mapped[int]
    boot_id: Mapped[str]
    started: Mapped[datetime]
    attempts: Mapped[int]


class Trial(Base):
    __tablename__ = "trial"
    __table_args__ = (
        # the task comes first, so that the index also finds out whether a trace was ever measured
        UniqueConstraint("workload_id", "target_id", "trace_hash", "session_id"),
        ForeignKeyConstraint(
            ["session_id", "workload_id", "target_id", "round"],
            ["round.session_id", "round.workload_id", "round.target_id", "round.number"],
            name="fk_trial_round",
        ),
        CheckConstraint("(status = 'OK') = (median_s IS NOT NULL)", name="time_only_if_ok"),
        Index(
            "ix_trial_best", "workload_id", "target_id", "machine_id", "median_s",
            sqlite_where=text(VERIFIED),
        ),
        Index("ix_trial_session", "session_id", "workload_id", "target_id"),
        Index("ix_trial_newest", "machine_id", "target_id", "id"),
    )  # fmt: skip
    id: Mapped[RowId]
    session_id: Mapped[OfSession]
    round: Mapped[int | None]
    workload_id: Mapped[OfWorkload]
    target_id: Mapped[OfTarget]
    machine_id: Mapped[OfMachine]
    environment_id: Mapped[OfEnvironment]
    host_id: Mapped[MaybeHost]
    code_id: Mapped[MaybeCode]
    sketch_id: Mapped[MaybeSketch]
    decisions: Mapped[JsonValue]
    trace: Mapped[str | None]  # None: sketch and decisions give the trace
    trace_hash: Mapped[str]
    made_by: Mapped[str]
    predicted: Mapped[float | None]
    status: Mapped[Word]
    median_s: Mapped[float | None]
    residency: Mapped[str | None]  # residency of the samples
    samples: Mapped[str | None]  # see columns/samples.py
    max_error: Mapped[float | None]
    tolerance: Mapped[float | None]
    seeds: Mapped[JsonMaybe]
    verdict: Mapped[bool | None]  # None: never checked
    conditions: Mapped[str | None] = mapped_column(String(32))
    note: Mapped[str]
    metrics: Mapped[JsonMaybe]
    numerics: Mapped[str]
    extents: Mapped[JsonMaybe]
    build_s: Mapped[float | None]
    error: Mapped[str | None]
    error_signature: Mapped[str]
    assembly: Mapped[JsonValue]
    source_sha: Mapped[str | None]
    created: Mapped[datetime]


class Parent(Base):
    __tablename__ = "parent"
    __table_args__ = ({"sqlite_with_rowid": False},)
    child_id: Mapped[int] = part_of("trial.id")
    number: Mapped[int] = part_of("")
    trace_hash: Mapped[str]
    workload_id: Mapped[int | None] = mapped_column(ForeignKey("workload.id"))  # None: that of the child
    how: Mapped[str]


class TaskCount(Base):
    __tablename__ = "task_count"
    __table_args__ = ({"sqlite_with_rowid": False},)
    workload_id: Mapped[int] = part_of("workload.id")
    target_id: Mapped[int] = part_of("target.id")
    machine_id: Mapped[int] = part_of("machine.id")
    status: Mapped[str] = mapped_column(String(32), primary_key=True)
    signature: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int] = mapped_column("n", BigInteger)
    example: Mapped[int] = mapped_column(BigInteger)  # id of the first such trial


class Standing(Base):
    __tablename__ = "standing"
    __table_args__ = ({"sqlite_with_rowid": False},)
    workload_id: Mapped[int] = part_of("workload.id")
    target_id: Mapped[int] = part_of("target.id")
    machine_id: Mapped[int] = part_of("machine.id")
    race_id: Mapped[OfSession]  # the last race
    raced: Mapped[datetime]  # when it started
    trial_id: Mapped[int | None] = mapped_column(ForeignKey("trial.id"))  # the winner; None: not decided
    seconds: Mapped[float | None]
    default_s: Mapped[float | None]
    updated: Mapped[datetime]


class ApplyEvent(Base):
    __tablename__ = "apply_event"
    __table_args__ = (UniqueConstraint("trial_id", "used_by", "applied"),)
    id: Mapped[RowId]
    trial_id: Mapped[int] = mapped_column(ForeignKey("trial.id"))
    used_by: Mapped[str]
    applied: Mapped[datetime]


class Merged(Base):
    """How far another log was read: up to the trial `last_id`. `mark` is made of its trace and time."""

    __tablename__ = "merged"
    source: Mapped[str] = mapped_column(primary_key=True)
    last_id: Mapped[int] = mapped_column(BigInteger)
    mark: Mapped[str]
    at: Mapped[datetime]


class SchemaVersion(Base):
    """The table with one row in which alembic keeps the version. Its name marks a database as a tuning
    log."""

    __tablename__ = "tuning_db_version"
    version_num: Mapped[str] = mapped_column(String(32), primary_key=True)
