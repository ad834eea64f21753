"""Schema version 2: runs, hosts, code, lineage, standings, counts; samples and checks in the trial's row.

This file is frozen: it must not change when `models.py` changes. The old tables are renamed; the new ones are
made and filled in batches, with the same row numbers. All this happens in the transaction of the caller.

    run_key  "race:model", "race:end:K", "race:K", "K"  ──▶  kind model, end, race, search; run "model", …, K
    sample, verification                                ──▶  columns of trial
    parents  ["hash", …]                                ──▶  rows of parent; `how` is not known
    the last race of every task                         ──▶  standing; the reader decides who won
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BATCH = 2000  # trials in memory at once

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
VERIFIED = sa.text("verdict AND status = 'OK'")
NO_ROWID = {"sqlite_with_rowid": False}


def col(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False)


def maybe(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=True)


def key(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=False, unique=True)


def own_id() -> sa.Column[Any]:
    return sa.Column("id", ID, primary_key=True)


def ref(table: str, nullable: bool = False, name: str = "") -> sa.Column[Any]:
    return sa.Column(name or f"{table}_id", ID, sa.ForeignKey(f"{table}.id"), nullable=nullable)


def part(name: str, table: str = "", type_: Any = ID) -> sa.Column[Any]:
    refers = [sa.ForeignKey(f"{table}.id")] if table else []
    return sa.Column(name, type_, *refers, primary_key=True, autoincrement=False)


TABLES: tuple[tuple[Any, ...], ...] = (
    ("log", own_id(), col("uuid", sa.Text), col("created", TIME)),
    ("workload", own_id(), key("key"), col("name", sa.Text), col("text", sa.Text), col("flops", sa.Double),
     col("symbols", sa.Text)),
    ("target", own_id(), key("key"), col("text", sa.Text)),
    ("machine", own_id(), key("fingerprint"), col("cpu_model", sa.Text), col("features", sa.Text),
     col("cores", sa.Integer), col("caches", sa.Text), col("device", sa.Text), col("driver", sa.Text),
     col("extra", sa.Text), col("memory", sa.BigInteger)),
    ("host", own_id(), key("uuid"), col("name", sa.Text), ref("machine"), col("seen", TIME)),
    ("code", own_id(), key("key"), col("version", sa.Text), col("commit_sha", sa.Text),
     col("dirty", sa.Boolean), col("sources", sa.Text)),
    ("environment", own_id(), key("key"), col("versions", sa.Text)),
    ("calibration", own_id(), ref("machine"), col("name", sa.Text), col("value", sa.Double),
     col("unit", sa.Text), col("samples", sa.Text), col("measured", TIME),
     sa.UniqueConstraint("machine_id", "name", "measured")),
    ("sketch", own_id(), key("hash"), maybe("text", sa.Text)),
    ("run", own_id(), key("key"), col("model", sa.Text), col("model_hash", sa.Text), col("tasks", sa.Text),
     col("tags", sa.Text), col("note", sa.Text)),
    ("session", own_id(), key("uuid"), ref("run"), col("kind", sa.String(32)),
     ref("session", nullable=True, name="of_id"), col("seed", sa.Text), col("options", sa.Text),
     ref("machine"), ref("environment"), col("started", TIME), maybe("ended", TIME),
     maybe("stop_reason", sa.Text), col("owner", sa.Text), maybe("lease_until", TIME),
     sa.Index(None, "kind", "started"), sa.Index(None, "run_id", "started")),
    ("opening", own_id(), ref("session"), ref("host"), ref("code"), col("command", sa.Text),
     col("user_name", sa.Text), col("pid", sa.Integer), col("boot_id", sa.Text), col("started", TIME),
     sa.UniqueConstraint("session_id", "host_id", "pid", "started")),
    ("round", own_id(), ref("session"), ref("workload"), ref("target"), col("number", sa.Integer),
     col("notes", sa.Text), col("started", TIME),
     sa.UniqueConstraint("session_id", "workload_id", "target_id", "number")),
    ("intent", own_id(), ref("session"), ref("workload"), ref("target"), ref("host", nullable=True),
     ref("sketch", nullable=True), col("decisions", sa.Text), maybe("trace", sa.Text),
     col("trace_hash", sa.Text), col("worker_pid", sa.Integer), col("boot_id", sa.Text),
     col("started", TIME), col("attempts", sa.Integer),
     sa.UniqueConstraint("session_id", "workload_id", "target_id", "trace_hash")),
    ("trial", own_id(), ref("session"), maybe("round", sa.Integer), ref("workload"), ref("target"),
     ref("machine"), ref("environment"), ref("host", nullable=True), ref("code", nullable=True),
     ref("sketch", nullable=True), col("decisions", sa.Text), maybe("trace", sa.Text),
     col("trace_hash", sa.Text), col("made_by", sa.Text), maybe("predicted", sa.Double),
     col("status", sa.String(32)), maybe("median_s", sa.Double), maybe("residency", sa.Text),
     maybe("samples", sa.Text), maybe("max_error", sa.Double), maybe("tolerance", sa.Double),
     maybe("seeds", sa.Text), maybe("verdict", sa.Boolean), maybe("conditions", sa.String(32)),
     col("note", sa.Text), maybe("metrics", sa.Text), col("numerics", sa.Text), maybe("extents", sa.Text),
     maybe("build_s", sa.Double), maybe("error", sa.Text), col("error_signature", sa.Text),
     col("assembly", sa.Text), maybe("source_sha", sa.Text), col("created", TIME),
     sa.UniqueConstraint("workload_id", "target_id", "trace_hash", "session_id"),
     sa.ForeignKeyConstraint(
         ["session_id", "workload_id", "target_id", "round"],
         ["round.session_id", "round.workload_id", "round.target_id", "round.number"],
         name="fk_trial_round"),
     sa.CheckConstraint("(status = 'OK') = (median_s IS NOT NULL)", name="time_only_if_ok"),
     sa.Index("ix_trial_best", "workload_id", "target_id", "machine_id", "median_s",
              sqlite_where=VERIFIED, postgresql_where=VERIFIED),
     sa.Index("ix_trial_session", "session_id", "workload_id", "target_id"),
     sa.Index("ix_trial_newest", "machine_id", "target_id", "id")),
    ("parent", part("child_id", "trial"), part("number"), col("trace_hash", sa.Text),
     ref("workload", nullable=True), col("how", sa.Text), NO_ROWID),
    ("task_count", part("workload_id", "workload"), part("target_id", "target"),
     part("machine_id", "machine"), part("status", type_=sa.String(32)), part("signature", type_=sa.Text),
     col("n", sa.BigInteger), col("example", sa.BigInteger), NO_ROWID),
    ("standing", part("workload_id", "workload"), part("target_id", "target"), part("machine_id", "machine"),
     ref("session", name="race_id"), col("raced", TIME), ref("trial", nullable=True),
     maybe("seconds", sa.Double), maybe("default_s", sa.Double), col("updated", TIME), NO_ROWID),
    ("apply_event", own_id(), ref("trial"), col("used_by", sa.Text), col("applied", TIME),
     sa.UniqueConstraint("trial_id", "used_by", "applied")),
    ("merged", part("source", type_=sa.Text), col("last_id", sa.BigInteger), col("mark", sa.Text),
     col("at", TIME)),
)  # fmt: skip

for _name, *_parts in TABLES:
    _options = _parts.pop() if isinstance(_parts[-1], dict) else {}
    sa.Table(_name, metadata, *_parts, **_options)

OLD_TABLES = (
    "apply_event", "verification", "sample", "trial", "intent", "round", "session", "calibration",
    "environment", "machine", "target", "workload",
)  # fmt: skip
OLD_VIEWS = ("v_best", "v_progress", "v_failures")

COMMON_VIEWS = (
    """
CREATE VIEW v_best AS
SELECT w.key AS workload, w.name AS name, g.key AS target, m.fingerprint AS machine, s.trial_id AS trial,
       t.trace_hash AS trace_hash, s.seconds AS median_s, w.flops / NULLIF(s.seconds, 0) / 1e9 AS gflops,
       s.default_s AS default_s, s.updated AS updated
FROM standing s
JOIN trial t ON t.id = s.trial_id
JOIN workload w ON w.id = s.workload_id
JOIN target g ON g.id = s.target_id
JOIN machine m ON m.id = s.machine_id""",
    """
CREATE VIEW v_progress AS
SELECT s.uuid AS session, w.key AS workload, g.key AS target, t.id AS trial, t.created AS created,
       t.status AS status, t.median_s AS median_s, t.predicted AS predicted,
       (SELECT COUNT(*) FROM trial o
        WHERE o.session_id = t.session_id AND o.workload_id = t.workload_id AND o.target_id = t.target_id
        AND o.id <= t.id) AS number,
       (SELECT MIN(o.median_s) FROM trial o
        WHERE o.session_id = t.session_id AND o.workload_id = t.workload_id AND o.target_id = t.target_id
        AND o.id <= t.id AND o.verdict AND o.status = 'OK') AS best_s
FROM trial t
JOIN session s ON s.id = t.session_id
JOIN workload w ON w.id = t.workload_id
JOIN target g ON g.id = t.target_id""",
    """
CREATE VIEW v_failures AS
SELECT w.key AS workload, g.key AS target, m.fingerprint AS machine, c.status AS status,
       c.signature AS signature, c.n AS failures, c.example AS example
FROM task_count c
JOIN workload w ON w.id = c.workload_id
JOIN target g ON g.id = c.target_id
JOIN machine m ON m.id = c.machine_id
WHERE c.status <> 'OK'""",
    """
CREATE VIEW v_runs AS
SELECT r.key AS run, r.model AS model, s.uuid AS session, s.kind AS kind, m.fingerprint AS machine,
       h.name AS host, o.user_name AS user_name, o.command AS command, c.version AS version,
       c.commit_sha AS commit_sha, c.dirty AS dirty, s.started AS started, s.ended AS ended,
       s.stop_reason AS stop_reason
FROM session s
JOIN run r ON r.id = s.run_id
JOIN machine m ON m.id = s.machine_id
LEFT JOIN opening o ON o.id = (SELECT MAX(p.id) FROM opening p WHERE p.session_id = s.id)
LEFT JOIN host h ON h.id = o.host_id
LEFT JOIN code c ON c.id = o.code_id""",
    """
CREATE VIEW v_lineage AS
SELECT p.child_id AS trial, t.trace_hash AS trace_hash, t.made_by AS made_by, p.trace_hash AS parent,
       p.how AS how, w.key AS parent_workload
FROM parent p
JOIN trial t ON t.id = p.child_id
JOIN workload w ON w.id = COALESCE(p.workload_id, t.workload_id)""",
)
VERIFICATION = """
CREATE VIEW verification AS
SELECT id AS trial_id, max_error, tolerance, seeds, verdict FROM trial WHERE verdict IS NOT NULL"""
VIEWS = {
    "sqlite": (
        *COMMON_VIEWS,
        """
CREATE VIEW sample AS
SELECT t.id AS trial_id, e.key AS number, json_extract(e.value, '$[0]') AS seconds,
       COALESCE(json_extract(e.value, '$[2]'), t.residency) AS residency,
       json_extract(e.value, '$[1]') AS reference_s
FROM trial t, json_each(t.samples) e""",
        VERIFICATION,
    ),
    "postgresql": (
        *COMMON_VIEWS,
        """
CREATE VIEW sample AS
SELECT t.id AS trial_id, e.number - 1 AS number, (e.value ->> 0)::double precision AS seconds,
       COALESCE(e.value ->> 2, t.residency) AS residency, (e.value ->> 1)::double precision AS reference_s
FROM trial t, json_array_elements(t.samples::json) WITH ORDINALITY AS e(value, number)""",
        VERIFICATION,
    ),
}

KINDS = (("race:end:", "end"), ("race:", "race"), ("", "search"))


def upgrade() -> None:
    c = op.get_bind()
    server = c.dialect.name == "postgresql"
    for view in OLD_VIEWS:
        c.exec_driver_sql(f"DROP VIEW {view}")
    if server:
        c.exec_driver_sql("CREATE SCHEMA tuning_db_v1")
    for table in OLD_TABLES:
        rename = f"ALTER TABLE {table} "
        c.exec_driver_sql(rename + ("SET SCHEMA tuning_db_v1" if server else f"RENAME TO old_{table}"))
    metadata.create_all(c)
    _copy(c, "tuning_db_v1." if server else "old_")
    if server:
        c.exec_driver_sql("DROP SCHEMA tuning_db_v1 CASCADE")
        _continue_numbers(c)
    else:
        for table in OLD_TABLES:
            c.exec_driver_sql(f"DROP TABLE old_{table}")
    for view in VIEWS[c.dialect.name]:
        c.exec_driver_sql(view)


def _copy(c: sa.Connection, old: str) -> None:
    """Copies everything from the old tables, whose names begin with `old`."""
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    c.execute(metadata.tables["log"].insert(), {"uuid": str(uuid4()), "created": now})
    for into, columns, more in (
        ("workload (id, key, name, text, flops, symbols)", "id, key, name, text, flops, '{}'", "workload"),
        ("target (id, key, text)", "id, key, text", "target"),
        ("machine (id, fingerprint, cpu_model, features, cores, caches, device, driver, extra, memory)",
         "id, fingerprint, cpu_model, features, cores, caches, device, driver, extra, 0", "machine"),
        ("environment (id, key, versions)", "id, key, versions", "environment"),
        ("calibration (id, machine_id, name, value, unit, samples, measured)",
         "id, machine_id, name, value, unit, samples, measured", "calibration"),
    ):  # fmt: skip
        c.exec_driver_sql(f"INSERT INTO {into} SELECT {columns} FROM {old}{more}")
    c.exec_driver_sql(
        "INSERT INTO sketch (hash) SELECT DISTINCT sketch_hash FROM "
        f"{old}trial WHERE sketch_hash <> '' ORDER BY sketch_hash"
    )
    _copy_sessions(c, old)
    c.exec_driver_sql(
        "INSERT INTO round (id, session_id, workload_id, target_id, number, notes, started) "
        f"SELECT id, session_id, workload_id, target_id, number, notes, started FROM {old}round"
    )
    c.exec_driver_sql(
        "INSERT INTO intent (id, session_id, workload_id, target_id, decisions, trace, trace_hash, "
        "worker_pid, boot_id, started, attempts) "
        "SELECT id, session_id, workload_id, target_id, '{}', trace, trace_hash, "
        f"worker_pid, boot_id, started, attempts FROM {old}intent"
    )
    _copy_trials(c, old)
    c.exec_driver_sql(
        "INSERT INTO apply_event (id, trial_id, used_by, applied) SELECT MIN(id), trial_id, used_by, applied "
        f"FROM {old}apply_event GROUP BY trial_id, used_by, applied"
    )
    c.exec_driver_sql(
        "INSERT INTO task_count (workload_id, target_id, machine_id, status, signature, n, example) "
        "SELECT workload_id, target_id, machine_id, status, error_signature, COUNT(*), MIN(id) FROM trial "
        "GROUP BY workload_id, target_id, machine_id, status, error_signature"
    )
    c.exec_driver_sql(
        "INSERT INTO standing (workload_id, target_id, machine_id, race_id, raced, updated) "
        "SELECT workload_id, target_id, machine_id, id, started, COALESCE(ended, started) FROM ("
        "SELECT t.workload_id, t.target_id, t.machine_id, s.id, s.started, s.ended, ROW_NUMBER() OVER ("
        "PARTITION BY t.workload_id, t.target_id, t.machine_id ORDER BY s.started DESC, s.id DESC) AS place "
        "FROM trial t JOIN session s ON s.id = t.session_id WHERE s.kind IN ('race', 'model') "
        "GROUP BY t.workload_id, t.target_id, t.machine_id, s.id, s.started, s.ended) races WHERE place = 1"
    )


def _copy_sessions(c: sa.Connection, old: str) -> None:
    names = ("id", "uuid", "run_key", "seed", "options", "machine_id", "environment_id", "started", "ended",
             "stop_reason")  # fmt: skip
    rows = [
        r._asdict() for r in c.execute(sa.text(f"SELECT {', '.join(names)} FROM {old}session ORDER BY id"))
    ]
    ids = {row["uuid"]: row["id"] for row in rows}
    runs: dict[str, int] = {}
    for row in rows:
        key = row.pop("run_key")
        kind = next(kind for prefix, kind in KINDS if key.startswith(prefix))
        kind = "model" if key == "race:model" else kind
        run = key.removeprefix("race:")
        of = json.loads(row["options"]).get("of")
        row |= {
            "kind": kind,
            "run_id": runs.setdefault(run, len(runs) + 1),
            "of_id": ids.get(of) if isinstance(of, str) else None,
            "owner": "",
            "lease_until": None,
        }
    empty = {"model": "", "model_hash": "", "tasks": "[]", "tags": "{}", "note": ""}
    _insert(c, "run", [{"id": id, "key": run, **empty} for run, id in runs.items()])
    _insert(c, "session", rows)


def _copy_trials(c: sa.Connection, old: str) -> None:
    sketches = {hash: id for hash, id in c.execute(sa.text("SELECT hash, id FROM sketch"))}
    for rows, samples in _batches(c, old):
        parents = []
        for row in rows:
            parents += [
                {"child_id": row["id"], "number": n, "trace_hash": hash, "workload_id": None, "how": ""}
                for n, hash in enumerate(json.loads(row.pop("parents")))
            ]
            row["sketch_id"] = sketches.get(row.pop("sketch_hash"))
            row["residency"], row["samples"] = samples.get(row["id"], (None, None))
            row |= {"note": "", "numerics": ""}
        _insert(c, "trial", rows)
        _insert(c, "parent", parents)


def _batches(c: sa.Connection, old: str) -> Iterator[tuple[list[dict[str, Any]], dict[int, tuple[str, str]]]]:
    """Batches of trials in the order of their row numbers, each with its trials' packed samples by trial."""
    trials = sa.text(
        "SELECT t.id, t.session_id, r.number AS round, t.workload_id, t.target_id, t.machine_id, "
        "t.environment_id, t.trace, t.trace_hash, t.sketch_hash, t.decisions, t.parents, t.made_by, "
        "t.predicted, t.status, t.median_s, t.build_s, t.error, t.error_signature, t.assembly, t.source_sha, "
        "t.created, v.max_error, v.tolerance, v.seeds, v.verdict "
        f"FROM {old}trial t LEFT JOIN {old}round r ON r.id = t.round_id "
        f"LEFT JOIN {old}verification v ON v.trial_id = t.id "
        "WHERE t.id > :after ORDER BY t.id LIMIT :batch"
    )
    samples = sa.text(
        f"SELECT trial_id, seconds, residency, reference_s FROM {old}sample "
        "WHERE trial_id > :after AND trial_id <= :last ORDER BY trial_id, number"
    )
    after = 0
    while rows := [r._asdict() for r in c.execute(trials, {"after": after, "batch": BATCH})]:
        last = rows[-1]["id"]
        found = c.execute(samples, {"after": after, "last": last})
        yield rows, {id: _pack(list(mine)) for id, mine in groupby(found, key=lambda s: s.trial_id)}
        after = last


def _pack(samples: list[Any]) -> tuple[str, str]:
    residency = samples[0].residency
    entries = [
        [s.seconds, s.reference_s] if s.residency == residency else [s.seconds, s.reference_s, s.residency]
        for s in samples
    ]
    return residency, json.dumps(entries, separators=(",", ":"))


def _insert(c: sa.Connection, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        c.execute(metadata.tables[table].insert(), rows)


def _continue_numbers(c: sa.Connection) -> None:
    """New rows get numbers above those that were copied."""
    for table in metadata.sorted_tables:
        if "id" in table.columns:
            c.exec_driver_sql(
                f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "
                f"(SELECT COALESCE(MAX(id), 0) + 1 FROM {table.name}), false)"
            )
