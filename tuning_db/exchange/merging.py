"""Adds one log to another, even with millions of trials: the rows stay in SQL.

    source file ──ATTACH──────────────▶ src.trial ┐
    server, memory ──rows, in batches──▶ src_trial ┴─▶ key maps ──▶ INSERT … SELECT, table by table

Row numbers differ between logs, but keys do not. So a map made from the keys translates every row number.
Trials are copied in ranges, each in one transaction with its lineage and counts; between two ranges, other
processes can write. Trials that were merged before (`merged`) are not read again, unless the source is no
longer the same log, for example because a copy of it was changed. If a merge is killed, the finished ranges
are in the log; the other ranges and the trials in use are missing. Merging again completes them, and also
adds rows that were stored in the source during the first merge.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError

from tuning_db import models as m
from tuning_db.columns.traces import fill
from tuning_db.engine import TURN_S, Opened
from tuning_db.errors import StoreError, other_text
from tuning_db.exchange.two_logs import (
    Merging,
    analyze,
    connected,
    fill_table,
    insert,
    is_one,
    is_server_away,
)
from tuning_db.outage import Patience
from tuning_db.sentences import is_busy
from tuning_db.values import now

RANGE = 10_000  # trials in one transaction, which takes half a second; other writers wait for it
UNSURE = 10_000  # newest rows of a server, which are read again: it assigns their numbers before it commits
ATTEMPTS = 3  # tries of a merge after a lock or a deadlock; each continues from the end of the last one

# Prefixes of columns: `@x` is translated by the map of table x. `?x` is translated, too, but may be NULL.
# `=x` belongs to one log and is not copied. `+x` is filled in if it is NULL, see `_fill_traces`.
RUN_UNKNOWN = {"model": "''", "model_hash": "''", "tasks": "'[]'", "tags": "'{}'", "note": "''"}
FILL_RUN = (
    "UPDATE SET "
    + ", ".join(
        f"{name} = COALESCE(NULLIF(run.{name}, {none}), excluded.{name})"
        for name, none in RUN_UNKNOWN.items()
    )
    + " WHERE "
    + " OR ".join(
        f"(run.{name} = {none} AND excluded.{name} <> {none})" for name, none in RUN_UNKNOWN.items()
    )
)
KEYED = (  # table, its key, its other columns, and what to do when the key is known
    ("workload", "key", ("name", "text", "flops", "symbols"), "NOTHING"),
    ("target", "key", ("text",), "NOTHING"),
    ("machine", "fingerprint",
     ("cpu_model", "features", "cores", "caches", "device", "driver", "extra", "memory"), "NOTHING"),
    ("environment", "key", ("versions",), "NOTHING"),
    ("code", "key", ("version", "commit_sha", "dirty", "sources"), "NOTHING"),
    ("sketch", "hash", ("text",),
     "UPDATE SET text = excluded.text WHERE sketch.text IS NULL AND excluded.text IS NOT NULL"),
    ("run", "key", tuple(RUN_UNKNOWN), FILL_RUN),
    ("host", "uuid", ("name", "@machine", "seen"),
     "UPDATE SET seen = excluded.seen, name = excluded.name WHERE excluded.seen > host.seen"),
    ("session", "uuid",
     ("@run", "kind", "seed", "options", "@machine", "@environment", "started", "ended", "stop_reason",
      "=owner", "=lease_until"),
     "UPDATE SET ended = excluded.ended, stop_reason = excluded.stop_reason "
     "WHERE session.ended IS NULL AND excluded.ended IS NOT NULL"),
)  # fmt: skip
LEFT_BEHIND = {"owner": "''", "lease_until": "NULL"}  # a lease is held in one log
UNKEYED = (
    ("opening", ("@session", "@host", "@code", "command", "user_name", "pid", "boot_id", "started")),
    ("calibration", ("@machine", "name", "value", "unit", "samples", "measured")),
    ("round", ("@session", "@workload", "@target", "number", "notes", "started")),
)
TRIAL = (
    "@session", "round", "@workload", "@target", "@machine", "@environment", "?host", "?code", "?sketch",
    "decisions", "+trace", "trace_hash", "made_by", "predicted", "status", "median_s", "residency", "samples",
    "max_error", "tolerance", "seeds", "verdict", "conditions", "note", "metrics", "numerics", "extents",
    "build_s", "error", "error_signature", "assembly", "source_sha", "created",
)  # fmt: skip
WHOLE = (  # small tables, which are read completely each time, so that no row is missed
    m.Workload, m.Target, m.Machine, m.Environment, m.Code, m.Sketch, m.Run, m.Host, m.Session, m.Opening,
    m.Calibration, m.Round, m.Standing, m.ApplyEvent,
)  # fmt: skip
TEMPORARY = (
    *(f"map_{keyed[0]}" for keyed in KEYED), "map_trial", "map_used", "filled",
    *(f"src_{table.__tablename__}" for table in (*WHOLE, m.Trial, m.Parent)),
)  # fmt: skip


@dataclass(slots=True)
class Reached:
    """How far a merge got, in case it must be tried again."""

    low: int = 0  # trials of the source up to this number are here
    new: int = 0
    seen: int = 0


def merge_logs(into: Opened, source: Opened) -> tuple[int, int]:
    """Adds everything in a log to another. Returns the number of new trials, and of trials that were read.

    Raises StoreError if both are the same log, or hold different workloads under one key.
    """
    if is_one(into, source):
        raise StoreError(f"'{into.place}' cannot be merged into itself.", "Name another log.")
    reached, patience, attempt = Reached(), Patience(into.place), 1
    while True:
        try:
            with connected(into, source, TEMPORARY) as work:
                _merge(work, reached)
            return reached.new, reached.seen
        except DBAPIError as error:
            if is_server_away(error):
                again = patience.wait(error, tell=True)
            else:
                again, attempt = is_busy(error) and attempt < ATTEMPTS, attempt + 1
            if not again:
                raise


def _merge(work: Merging, reached: Reached) -> None:
    uuid = work.ask("SELECT uuid FROM log")[0]
    last = work.ask("SELECT COALESCE(MAX(id), 0) FROM trial")[0]
    if work.streamed:
        with work.transaction(writing=False):
            for table in WHOLE:
                fill_table(work, table)
    with work.transaction():
        copied = work.one("SELECT uuid FROM log")[0] == uuid  # the file was copied at some time
        if copied and work.into.place == work.source.place:
            raise StoreError(f"'{work.into.place}' cannot be merged into itself.", "Name another log.")
        reached.low = max(reached.low, 0 if copied else _watermark(work, uuid))
        _map_keys(work)
    while part := _next_range(work, reached.low, last):
        if work.streamed:
            with work.transaction(writing=False):
                fill_table(work, m.Trial, f"WHERE id > {reached.low} AND id <= {part.high}")
                fill_table(work, m.Parent, f"WHERE child_id > {reached.low} AND child_id <= {part.high}")
        with work.transaction():
            new = _trials(work, reached.low, part.high)
        reached.low, reached.new, reached.seen = part.high, reached.new + new, reached.seen + part.n
        if work.into.file is not None:
            time.sleep(2 * TURN_S)  # others that wait for the file try within that time
    if work.streamed:
        with work.transaction(writing=False):
            fill_table(work, m.Trial, USED.format(id="id", src=""))
    with work.transaction():
        _map_used(work)
        _standings(work)
        _applications(work)
        if not copied:
            _remember(work, uuid, last if work.source.is_sqlite else max(0, last - UNSURE))


def _next_range(work: Merging, low: int, last: int) -> Any:
    """The end of the next range of the source's trials, and the number of trials in it; None after the last
    range."""
    part = work.ask(
        "SELECT COUNT(*) AS n, MAX(id) AS high FROM (SELECT id FROM trial WHERE id > :low AND id <= :last "
        "ORDER BY id LIMIT :range) AS part",
        low=low,
        last=last,
        range=RANGE,
    )
    return part if part.n else None


# --- keys ---


def _map_keys(work: Merging) -> None:
    """Copies the rows to which trials refer, and makes each table's map from the source's row numbers to
    ours."""
    for table, key, columns, known in KEYED:
        # in the order of the keys, so that two merges at the same time do not wait for each other in a circle
        _copy(work, table, (key, *columns), f"s.{key}", f"({key}) DO {known}")
        _map(work, table, f"SELECT s.id, t.id FROM {work.src}{table} s JOIN {table} t ON t.{key} = s.{key}")
    clash = work.one(
        f"SELECT w.key FROM {work.src}workload s JOIN workload w ON w.key = s.key WHERE w.text <> s.text"
    )
    if clash:
        raise other_text(work.into.place, clash[0])
    work.run(
        f"UPDATE session SET of_id = o.new FROM {work.src}session s JOIN map_session i ON i.old = s.id "
        "JOIN map_session o ON o.old = s.of_id WHERE session.id = i.new AND session.of_id IS NULL"
    )
    work.other_sketches = {
        id: its_text
        for id, its_text in work.run(
            f"SELECT s.id, s.text FROM {work.src}sketch s JOIN sketch k ON k.hash = s.hash "
            "WHERE k.text <> s.text"
        )
    }
    _empty_map(work, "filled", "trace TEXT NOT NULL")
    for part, its_columns in UNKEYED:
        _copy(work, part, its_columns, "s.id", "DO NOTHING")


def _map(work: Merging, name: str, rows: str) -> None:
    """A temporary table from numbers of the source to those of this log."""
    _empty_map(work, f"map_{name}", "new BIGINT NOT NULL")
    work.run(f"INSERT INTO map_{name} {rows}")
    analyze(work, f"map_{name}")


def _empty_map(work: Merging, table: str, value: str) -> None:
    number = "INTEGER" if work.into.is_sqlite else "BIGINT"  # SQLite finds rows fastest by an INTEGER
    work.run(f"DROP TABLE IF EXISTS {table}")
    work.run(f"CREATE TEMPORARY TABLE {table} (old {number} PRIMARY KEY, {value})")


def _copy(
    work: Merging, table: str, columns: Sequence[str], order: str, known: str, where: str = "1 = 1"
) -> None:
    """INSERT … SELECT of rows, with references translated by the maps."""
    names, values, joins = [], [], []
    for column in columns:
        kind, name = (column[0], column[1:]) if column[0] in "@?=+" else ("", column)
        names.append(f"{name}_id" if kind in ("@", "?") else name)
        match kind:
            case "@" | "?":
                values.append(f"m_{name}.new")
                join = "JOIN" if kind == "@" else "LEFT JOIN"
                joins.append(f"{join} map_{name} m_{name} ON m_{name}.old = s.{name}_id")
            case "=":
                values.append(LEFT_BEHIND[name])
            case "+":
                values.append(f"COALESCE(s.{name}, f.{name})")
                joins.append("LEFT JOIN filled f ON f.old = s.id")
            case _:
                values.append(f"s.{name}")
    work.run(
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {work.src}{table} s "
        f"{' '.join(joins)} WHERE {where} ORDER BY {order} ON CONFLICT {known}"
    )


# --- trials, and what comes with them ---

# trials that are in use for a task, or were built into a file
USED = "WHERE {id} IN (SELECT trial_id FROM {src}standing UNION SELECT trial_id FROM {src}apply_event)"
# condition: the trial `n` of this log is the trial `s` of the source
SAME = (
    "JOIN map_session a ON a.old = s.session_id JOIN map_workload b ON b.old = s.workload_id "
    "JOIN map_target d ON d.old = s.target_id JOIN trial n ON n.workload_id = b.new AND n.target_id = d.new "
    "AND n.trace_hash = s.trace_hash AND n.session_id = a.new"
)


def _trials(work: Merging, low: int, high: int) -> int:
    """Copies trials of a range of the source's numbers, with lineage and counts. Returns how many were
    new."""
    between = f"s.id > {low} AND s.id <= {high}"
    _fill_traces(work, between)
    if work.c.dialect.name == "postgresql":  # otherwise other writers might assign numbers meanwhile
        work.run("LOCK TABLE trial IN SHARE ROW EXCLUSIVE MODE")
    newest = work.one("SELECT COALESCE(MAX(id), 0) FROM trial")[0]
    _copy(work, "trial", TRIAL, "s.id", "DO NOTHING", between)
    new: int = work.one("SELECT COUNT(*) FROM trial WHERE id > :newest", newest=newest)[0]
    if new:
        _map(work, "trial", f"SELECT s.id, n.id FROM {work.src}trial s {SAME} WHERE {between}")
        work.run(
            "INSERT INTO parent (child_id, number, trace_hash, workload_id, how) "
            f"SELECT t.new, p.number, p.trace_hash, w.new, p.how FROM {work.src}parent p "
            "JOIN map_trial t ON t.old = p.child_id LEFT JOIN map_workload w ON w.old = p.workload_id "
            f"WHERE p.child_id > {low} AND p.child_id <= {high} AND t.new > :newest",
            newest=newest,
        )
        work.run(
            "INSERT INTO task_count (workload_id, target_id, machine_id, status, signature, n, example) "
            "SELECT workload_id, target_id, machine_id, status, error_signature, COUNT(*), MIN(id) "
            "FROM trial WHERE id > :newest "
            "GROUP BY workload_id, target_id, machine_id, status, error_signature "
            "ON CONFLICT (workload_id, target_id, machine_id, status, signature) "
            "DO UPDATE SET n = task_count.n + excluded.n",
            newest=newest,
        )
    work.run(
        "DELETE FROM intent WHERE EXISTS (SELECT 1 FROM trial n WHERE n.workload_id = intent.workload_id "
        "AND n.target_id = intent.target_id AND n.trace_hash = intent.trace_hash "
        "AND n.session_id = intent.session_id)"
    )
    return new


def _fill_traces(work: Merging, between: str) -> None:
    """Fills in traces that the source does not store, if this log has another text for their sketch."""
    if not work.other_sketches:
        return
    work.run("DELETE FROM filled")
    of_them = ", ".join(map(str, work.other_sketches))
    rows = work.run(
        f"SELECT s.id, s.sketch_id, s.decisions FROM {work.src}trial s "
        f"WHERE {between} AND s.trace IS NULL AND s.sketch_id IN ({of_them})"
    )
    traces = [(id, fill(work.other_sketches[of], json.loads(decisions))) for id, of, decisions in rows]
    if traces:
        insert(work.c, "filled", "old, trace", traces)


def _map_used(work: Merging) -> None:
    """Maps the trials of the source that are in use to their numbers in this log."""
    # A stream holds only trials in use. Testing them again would cost a server half a minute: it expects one
    # or two trials, and would search all standings for each.
    used = "" if work.streamed else USED.format(id="s.id", src=work.src)
    _map(work, "used", f"SELECT s.id, n.id FROM {work.src}trial s {SAME} {used}")


def _standings(work: Merging) -> None:
    """Keeps the later race of both logs; for the same race, the latest record of its winner. A race whose
    trials were stored during this merge is left for the next merge.
    """
    work.run(
        "INSERT INTO standing (workload_id, target_id, machine_id, race_id, raced, trial_id, seconds, "
        "default_s, updated) "
        "SELECT w.new, g.new, h.new, r.new, x.raced, n.new, x.seconds, x.default_s, x.updated "
        f"FROM {work.src}standing x JOIN map_workload w ON w.old = x.workload_id "
        "JOIN map_target g ON g.old = x.target_id JOIN map_machine h ON h.old = x.machine_id "
        "JOIN map_session r ON r.old = x.race_id LEFT JOIN map_used n ON n.old = x.trial_id "
        "WHERE (x.trial_id IS NULL OR n.new IS NOT NULL) AND EXISTS (SELECT 1 FROM trial t "
        "WHERE t.session_id = r.new AND t.workload_id = w.new AND t.target_id = g.new) "
        "ORDER BY w.new, g.new, h.new "
        "ON CONFLICT (workload_id, target_id, machine_id) DO UPDATE SET race_id = excluded.race_id, "
        "raced = excluded.raced, trial_id = excluded.trial_id, seconds = excluded.seconds, "
        "default_s = excluded.default_s, updated = excluded.updated "
        "WHERE excluded.raced > standing.raced "
        "OR (excluded.raced = standing.raced AND excluded.race_id > standing.race_id) "
        "OR (excluded.race_id = standing.race_id AND excluded.trial_id IS NOT NULL "
        "AND (standing.trial_id IS NULL OR excluded.updated > standing.updated))"
    )


def _applications(work: Merging) -> None:
    work.run(
        "INSERT INTO apply_event (trial_id, used_by, applied) SELECT n.new, x.used_by, x.applied "
        f"FROM {work.src}apply_event x JOIN map_used n ON n.old = x.trial_id "
        "WHERE 1 = 1 ORDER BY x.id ON CONFLICT DO NOTHING"
    )


# --- how far a log was read ---


def _watermark(work: Merging, uuid: str) -> int:
    """The last row of the source that is certainly in this log; 0 if the source is no longer the same log."""
    known = work.one("SELECT last_id, mark FROM merged WHERE source = :uuid", uuid=uuid)
    return known.last_id if known is not None and _mark(work, known.last_id) == known.mark else 0


def _mark(work: Merging, id: int) -> str:
    """A mark of a row. In a copy of the log that was changed, the row with the same number has another
    mark."""
    query = "SELECT id, trace_hash, created FROM trial WHERE id <= :id ORDER BY id DESC LIMIT 1"
    return " ".join(map(str, work.ask(query, id=id) or ()))


def _remember(work: Merging, uuid: str, last: int) -> None:
    work.run(
        "INSERT INTO merged (source, last_id, mark, at) VALUES (:uuid, :last, :mark, :at) "
        "ON CONFLICT (source) "
        "DO UPDATE SET last_id = excluded.last_id, mark = excluded.mark, at = excluded.at",
        uuid=uuid,
        last=last,
        mark=_mark(work, last),
        at=now().isoformat(timespec="microseconds"),
    )
