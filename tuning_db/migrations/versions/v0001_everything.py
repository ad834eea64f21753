"""Schema version 1: all tables. This file is frozen: it must not change when `models.py` changes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.String(32)


def col(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False)


def maybe(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=True)


def key(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=False, unique=True)


def own_id() -> sa.Column[Any]:
    return sa.Column("id", ID, primary_key=True)


def ref(table: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(f"{table}_id", ID, sa.ForeignKey(f"{table}.id"), nullable=nullable)


def part_of_trial() -> sa.Column[Any]:
    return sa.Column("trial_id", ID, sa.ForeignKey("trial.id"), primary_key=True, autoincrement=False)


TABLES = (
    ("workload", own_id(), key("key"), col("name", sa.Text),
     col("text", sa.Text), col("flops", sa.Double)),
    ("target", own_id(), key("key"), col("text", sa.Text)),
    ("machine", own_id(), key("fingerprint"),
     col("cpu_model", sa.Text), col("features", sa.Text), col("cores", sa.Integer), col("caches", sa.Text),
     col("device", sa.Text), col("driver", sa.Text), col("extra", sa.Text)),
    ("environment", own_id(), key("key"), col("versions", sa.Text)),
    ("calibration", own_id(), ref("machine"), col("name", sa.Text), col("value", sa.Double),
     col("unit", sa.Text), col("samples", sa.Text), col("measured", TIME),
     sa.UniqueConstraint("machine_id", "name", "measured")),
    ("session", own_id(), key("uuid"),
     sa.Column("run_key", sa.Text, nullable=False, index=True), col("seed", sa.Text), col("options", sa.Text),
     ref("machine"), ref("environment"), col("started", TIME), maybe("ended", TIME),
     maybe("stop_reason", sa.Text)),
    ("round", own_id(), ref("session"), ref("workload"), ref("target"), col("number", sa.Integer),
     col("notes", sa.Text), col("started", TIME),
     sa.UniqueConstraint("session_id", "workload_id", "target_id", "number")),
    ("intent", own_id(), ref("session"), ref("workload"), ref("target"), col("trace_hash", sa.Text),
     col("trace", sa.Text), col("worker_pid", sa.Integer), col("boot_id", sa.Text), col("started", TIME),
     col("attempts", sa.Integer),
     sa.UniqueConstraint("session_id", "workload_id", "target_id", "trace_hash")),
    ("trial", own_id(), ref("session"), ref("round", nullable=True), ref("workload"), ref("target"),
     ref("machine"), ref("environment"), col("trace", sa.Text), col("trace_hash", sa.Text),
     col("sketch_hash", sa.Text), col("decisions", sa.Text), col("parents", sa.Text), col("made_by", sa.Text),
     maybe("predicted", sa.Double), col("status", sa.String(32)), maybe("median_s", sa.Double),
     maybe("build_s", sa.Double), maybe("error", sa.Text), col("error_signature", sa.Text),
     col("assembly", sa.Text), maybe("source_sha", sa.Text), col("created", TIME),
     sa.UniqueConstraint("session_id", "workload_id", "target_id", "trace_hash"),
     sa.CheckConstraint("(status = 'OK') = (median_s IS NOT NULL)", name="time_only_if_ok"),
     sa.Index(None, "workload_id", "target_id", "machine_id", "median_s")),
    ("sample", part_of_trial(), sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
     col("seconds", sa.Double), col("residency", sa.Text), maybe("reference_s", sa.Double)),
    ("verification", part_of_trial(), maybe("max_error", sa.Double), col("tolerance", sa.Double),
     col("seeds", sa.Text), col("verdict", sa.Boolean)),
    ("apply_event", own_id(),
     sa.Column("trial_id", ID, sa.ForeignKey("trial.id"), nullable=False, index=True),
     col("used_by", sa.Text), col("applied", TIME)),
)  # fmt: skip

VIEWS = (
    """
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
    """
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
    """
CREATE VIEW v_failures AS
SELECT s.uuid AS session, w.key AS workload, g.key AS target, t.status AS status,
       t.error_signature AS signature, COUNT(*) AS failures, MIN(t.id) AS example
FROM trial t
JOIN session s ON s.id = t.session_id
JOIN workload w ON w.id = t.workload_id
JOIN target g ON g.id = t.target_id
WHERE t.status <> 'OK'
GROUP BY s.uuid, w.key, g.key, t.status, t.error_signature""",
)


for _name, *_parts in TABLES:
    sa.Table(_name, metadata, *_parts)


def upgrade() -> None:
    metadata.create_all(op.get_bind())
    for view in VIEWS:
        op.execute(view)
