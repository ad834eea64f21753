"""Add one log to another, by the million: the rows stay in SQL.

    source file ──ATTACH──────────────▶ src.trial ┐
    server, memory ──rows, in batches──▶ src_trial ┴─▶ key maps ──▶ INSERT … SELECT, table by table

Row numbers differ between logs, keys do not: so every number goes through a map that its key made. Trials
come in ranges, each a transaction in which their lineage and counts come, too, so that other writers get
turns. What was merged of a log before is not read again (`merged`), unless the log is not the one that it was
then: a copy of it went on by itself, say. After a kill some sessions are there in part; merging again
completes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Boolean, Connection, text

from tuning_db import models as m
from tuning_db.contract import other_text
from tuning_db.engine import Opened
from tuning_db.errors import StoreError
from tuning_db.records import now

RANGE = 10_000  # row numbers in one transaction: a second or less, in which others wait
UNSURE = 10_000  # newest rows of a server that are read again: it gives numbers before it commits

WHOLE = (  # small tables, copied before any trial
    m.Workload, m.Target, m.Machine, m.Environment, m.Code, m.Sketch, m.Run, m.Host, m.Session, m.Opening,
    m.Calibration, m.Round, m.Standing, m.ApplyEvent,
)  # fmt: skip
KEYED = (  # table, its key, its other columns, and what to do when the key is known
    ("workload", "key", ("name", "text", "flops", "symbols"), "NOTHING"),
    ("target", "key", ("text",), "NOTHING"),
    ("machine", "fingerprint",
     ("cpu_model", "features", "cores", "caches", "device", "driver", "extra", "memory"), "NOTHING"),
    ("environment", "key", ("versions",), "NOTHING"),
    ("code", "key", ("version", "commit_sha", "dirty", "sources"), "NOTHING"),
    ("sketch", "hash", ("text",), "UPDATE SET text = excluded.text WHERE sketch.text IS NULL"),
    ("run", "key", ("model", "model_hash", "tasks", "tags", "note"),
     "UPDATE SET model = excluded.model, model_hash = excluded.model_hash, tasks = excluded.tasks "
     "WHERE run.model = '' AND run.tasks = '[]'"),
    ("host", "uuid", ("name", "@machine", "seen"),
     "UPDATE SET seen = excluded.seen, name = excluded.name WHERE excluded.seen > host.seen"),
    ("session", "uuid",
     ("@run", "kind", "seed", "options", "@machine", "@environment", "started", "ended", "stop_reason",
      "=owner", "=lease_until"),
     "UPDATE SET ended = excluded.ended, stop_reason = excluded.stop_reason "
     "WHERE session.ended IS NULL AND excluded.ended IS NOT NULL"),
)  # fmt: skip
GIVEN_UP = {"=owner": "''", "=lease_until": "NULL"}  # a lease is held in one log
UNKEYED = (
    ("opening", ("@session", "@host", "@code", "command", "user_name", "pid", "boot_id", "started")),
    ("calibration", ("@machine", "name", "value", "unit", "samples", "measured")),
    ("round", ("@session", "@workload", "@target", "number", "notes", "started")),
)
TRIAL = (
    "@session", "round", "@workload", "@target", "@machine", "@environment", "?host", "?code", "?sketch",
    "decisions", "trace", "trace_hash", "made_by", "predicted", "status", "median_s", "residency", "samples",
    "max_error", "tolerance", "seeds", "verdict", "conditions", "note", "metrics", "numerics", "extents",
    "build_s", "error", "error_signature", "assembly", "source_sha", "created",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Merging:
    """Two logs on one connection of the first: tables of the second are named `src` + their name."""

    c: Connection
    src: str

    def run(self, statement: str, **values: Any) -> Any:
        return self.c.execute(text(statement), values)

    def one(self, statement: str, **values: Any) -> Any:
        return self.run(statement, **values).first()


def merge_logs(into: Opened, source: Opened) -> tuple[int, int]:
    """Adds everything in a log to another; gives the trials that were new, and those that were looked at.

    Raises StoreError when the two are one, or hold different workloads under one key.
    """
    with source.read.connect() as found, into.write.connect() as c, _attached(c, into, source) as src:
        uuid = found.execute(text("SELECT uuid FROM log")).scalar_one()
        last = found.execute(text("SELECT COALESCE(MAX(id), 0) FROM trial")).scalar_one()
        work, streamed = Merging(c, src), src == "src_"
        with c.begin():
            copied = work.one("SELECT uuid FROM log")[0] == uuid  # the file was, at some time
            if copied and into.place == source.place:
                raise StoreError(f"'{into.place}' is one log and not two.", "Name another log.")
            known = 0 if copied else _watermark(work, found, uuid)
            for table in WHOLE if streamed else ():
                _fill(work, found, table)
            _map_keys(work, into.place)
        new = seen = 0
        for low in range(known, last, RANGE):
            high = min(low + RANGE, last)
            with c.begin():
                if streamed:
                    _fill(work, found, m.Trial, f"WHERE id > {low} AND id <= {high}")
                    _fill(work, found, m.Parent, f"WHERE child_id > {low} AND child_id <= {high}")
                added, looked = _trials(work, low, high)
            new, seen = new + added, seen + looked
        with c.begin():
            if streamed:
                needed = "SELECT trial_id FROM standing UNION SELECT trial_id FROM apply_event"
                _fill(work, found, m.Trial, f"WHERE id IN ({needed})")
            _standings(work)
            _applications(work)
            if not copied:
                _remember(work, found, uuid, last if source.is_sqlite else max(0, last - UNSURE))
            _forget(work)
    return new, seen


@contextmanager
def _attached(c: Connection, into: Opened, source: Opened) -> Iterator[str]:
    """How names of the source's tables begin on this connection."""
    if into.file is None or source.file is None:
        yield "src_"
        return
    raw: Any = c.connection.dbapi_connection
    raw.execute("ATTACH DATABASE ? AS src", (f"{source.file.absolute().as_uri()}?mode=ro",))
    try:
        yield "src."
    finally:
        if c.in_transaction():
            c.rollback()
        raw.execute("DETACH DATABASE src")


# --- rows that no ATTACH can reach ---


def _fill(work: Merging, found: Connection, table: type[m.Base], where: str = "") -> None:
    """A temporary table with the source's rows, instead of those that it held."""
    name, columns = table.__tablename__, list(table.__table__.columns)
    names = [column.name for column in columns]
    work.run(f"DROP TABLE IF EXISTS src_{name}")
    work.run(f"CREATE TEMPORARY TABLE src_{name} AS SELECT {', '.join(names)} FROM {name} WHERE 1 = 0")
    rows = found.execute(text(f"SELECT {', '.join(names)} FROM {name} {where}"))
    yes_or_no = [n for n, column in enumerate(columns) if isinstance(column.type, Boolean)]
    plain = (_with_bools(row, yes_or_no) for row in rows)
    while batch := list(islice(plain, 5000)):
        _insert(work.c, f"src_{name}", names, batch)


def _with_bools(row: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    """SQLite has numbers for them."""
    return tuple(bool(value) if n in places and value is not None else value for n, value in enumerate(row))


def _insert(c: Connection, table: str, names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    raw: Any = c.connection.dbapi_connection
    with_names = f"{table} ({', '.join(names)})"
    if c.dialect.name == "postgresql":
        with raw.cursor() as cursor, cursor.copy(f"COPY {with_names} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    else:
        raw.executemany(f"INSERT INTO {with_names} VALUES ({', '.join('?' * len(names))})", rows)


# --- keys ---


def _map_keys(work: Merging, place: str) -> None:
    """What trials refer to, and for each table the map from the source's numbers to this log's."""
    clash = work.one(
        f"SELECT w.key FROM {work.src}workload s JOIN workload w ON w.key = s.key WHERE w.text <> s.text"
    )
    if clash:
        raise other_text(place, clash[0])
    for table, key, columns, known in KEYED:
        _copy(work, table, (key, *columns), f"ON CONFLICT ({key}) DO {known}")
        work.run(f"DROP TABLE IF EXISTS map_{table}")
        work.run(f"CREATE TEMPORARY TABLE map_{table} (old BIGINT PRIMARY KEY, new BIGINT NOT NULL)")
        work.run(
            f"INSERT INTO map_{table} SELECT s.id, t.id FROM {work.src}{table} s "
            f"JOIN {table} t ON t.{key} = s.{key}"
        )
    work.run(
        "UPDATE session SET of_id = (SELECT o.new "
        f"FROM {work.src}session s JOIN map_session i ON i.old = s.id "
        "JOIN map_session o ON o.old = s.of_id WHERE i.new = session.id) "
        f"WHERE of_id IS NULL AND id IN (SELECT i.new FROM {work.src}session s "
        "JOIN map_session i ON i.old = s.id WHERE s.of_id IS NOT NULL)"
    )
    for part, its_columns in UNKEYED:
        _copy(work, part, its_columns, "ON CONFLICT DO NOTHING")


def _copy(work: Merging, table: str, columns: Sequence[str], known: str, where: str = "1 = 1") -> None:
    """INSERT … SELECT of rows whose references go through the maps."""
    names, values, joins = [], [], []
    for column in columns:
        kind, name = (column[0], column[1:]) if column[0] in "@?=" else ("", column)
        names.append(f"{name}_id" if kind in ("@", "?") else name)
        values.append({"": f"s.{name}", "=": GIVEN_UP.get(column, "")}.get(kind, f"m_{name}.new"))
        if kind in ("@", "?"):
            join = "JOIN" if kind == "@" else "LEFT JOIN"
            joins.append(f"{join} map_{name} m_{name} ON m_{name}.old = s.{name}_id")
    work.run(
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {work.src}{table} s "
        f"{' '.join(joins)} WHERE {where} {known}"
    )


# --- trials, and what comes with them ---

# the trial of this log that a trial `s` of the source is
SAME = (
    "JOIN map_session a ON a.old = s.session_id JOIN map_workload b ON b.old = s.workload_id "
    "JOIN map_target d ON d.old = s.target_id JOIN trial n ON n.workload_id = b.new AND n.target_id = d.new "
    "AND n.trace_hash = s.trace_hash AND n.session_id = a.new"
)


def _trials(work: Merging, low: int, high: int) -> tuple[int, int]:
    """Trials of a range of the source's numbers, with lineage and counts; gives how many were new, seen."""
    between = f"s.id > {low} AND s.id <= {high}"
    seen = work.one(f"SELECT COUNT(*) FROM {work.src}trial s WHERE {between}")[0]
    if not seen:
        return 0, 0
    if work.c.dialect.name == "postgresql":  # else others might give numbers to rows meanwhile
        work.run("LOCK TABLE trial IN SHARE ROW EXCLUSIVE MODE")
    newest = work.one("SELECT COALESCE(MAX(id), 0) FROM trial")[0]
    _copy(work, "trial", TRIAL, "ON CONFLICT DO NOTHING", between)
    new = work.one("SELECT COUNT(*) FROM trial WHERE id > :newest", newest=newest)[0]
    if new:
        work.run(
            "INSERT INTO parent (child_id, number, trace_hash, workload_id, how) "
            f"SELECT n.id, p.number, p.trace_hash, w.new, p.how FROM {work.src}parent p "
            f"JOIN {work.src}trial s ON s.id = p.child_id {SAME} "
            "LEFT JOIN map_workload w ON w.old = p.workload_id "
            f"WHERE {between} AND n.id > :newest ON CONFLICT DO NOTHING",
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
    return new, seen


def _standings(work: Merging) -> None:
    """The later race of both logs; of the same one, what was said of it last."""
    work.run("DROP TABLE IF EXISTS map_winner")
    work.run("CREATE TEMPORARY TABLE map_winner (old BIGINT PRIMARY KEY, new BIGINT NOT NULL)")
    work.run(
        f"INSERT INTO map_winner SELECT DISTINCT s.id, n.id FROM {work.src}standing x "
        f"JOIN {work.src}trial s ON s.id = x.trial_id {SAME}"
    )
    work.run(
        "INSERT INTO standing (workload_id, target_id, machine_id, race_id, raced, trial_id, seconds, "
        "default_s, updated) "
        "SELECT w.new, g.new, h.new, r.new, x.raced, n.new, x.seconds, x.default_s, x.updated "
        f"FROM {work.src}standing x JOIN map_workload w ON w.old = x.workload_id "
        "JOIN map_target g ON g.old = x.target_id JOIN map_machine h ON h.old = x.machine_id "
        "JOIN map_session r ON r.old = x.race_id "
        "LEFT JOIN map_winner n ON n.old = x.trial_id WHERE 1 = 1 "
        "ON CONFLICT (workload_id, target_id, machine_id) DO UPDATE SET race_id = excluded.race_id, "
        "raced = excluded.raced, trial_id = excluded.trial_id, seconds = excluded.seconds, "
        "default_s = excluded.default_s, updated = excluded.updated "
        "WHERE excluded.raced > standing.raced "
        "OR (excluded.raced = standing.raced AND excluded.race_id > standing.race_id) "
        "OR (excluded.race_id = standing.race_id AND excluded.trial_id IS NOT NULL "
        "AND (standing.trial_id IS NULL OR excluded.updated >= standing.updated))"
    )


def _applications(work: Merging) -> None:
    work.run(
        "INSERT INTO apply_event (trial_id, used_by, applied) SELECT n.id, x.used_by, x.applied "
        f"FROM {work.src}apply_event x JOIN {work.src}trial s ON s.id = x.trial_id {SAME} "
        "WHERE 1 = 1 ON CONFLICT DO NOTHING"
    )


# --- how far a log was read ---


def _watermark(work: Merging, found: Connection, uuid: str) -> int:
    """The last row of the source that is surely here; 0 if the source is not what it was."""
    known = work.one("SELECT last_id, mark FROM merged WHERE source = :uuid", uuid=uuid)
    return known.last_id if known is not None and _mark(found, known.last_id) == known.mark else 0


def _mark(found: Connection, id: int) -> str:
    """Tells a row from the one that has its number in a copy of the log that went on by itself."""
    query = text("SELECT id, trace_hash, created FROM trial WHERE id <= :id ORDER BY id DESC LIMIT 1")
    return " ".join(map(str, found.execute(query, {"id": id}).first() or ()))


def _remember(work: Merging, found: Connection, uuid: str, last: int) -> None:
    work.run(
        "INSERT INTO merged (source, last_id, mark, at) VALUES (:uuid, :last, :mark, :at) "
        "ON CONFLICT (source) "
        "DO UPDATE SET last_id = excluded.last_id, mark = excluded.mark, at = excluded.at",
        uuid=uuid,
        last=last,
        mark=_mark(found, last),
        at=now().isoformat(timespec="microseconds"),
    )


def _forget(work: Merging) -> None:
    """The maps of this connection, which goes back into its pool."""
    maps = (f"map_{name}" for name in (*(keyed[0] for keyed in KEYED), "winner"))
    rows = (f"src_{table.__tablename__}" for table in (*WHOLE, m.Trial, m.Parent))
    for name in (*maps, *rows):
        work.run(f"DROP TABLE IF EXISTS {name}")
