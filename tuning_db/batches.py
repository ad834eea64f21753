"""Stores many trials, or the candidates of rounds, by few statements of one transaction.

trials ──▶ one INSERT … RETURNING ──▶ the new trials ──▶ parents, counts, last race
       └─▶ their intents are deleted
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from tuning_db import models as m
from tuning_db.errors import unknown
from tuning_db.keys import Keys, KnownSession
from tuning_db.queries import (
    DROP_DONE,
    DROP_INTENT,
    ROUND_OF,
    TASK,
    TRIAL_OF,
    add_counts,
    candidate_row,
    insert,
    insert_trials,
    trial_row,
    upsert_intents,
    upsert_last_race,
    upsert_round,
)
from tuning_db.records import RACES, Intent, Round, TrialRecord

IDENTITY = (*TASK, "trace_hash")
Row = Mapping[str, Any]


def store_rounds(c: Connection, keys: Keys, begun: Sequence[Round], intents: Sequence[Intent]) -> None:
    """Stores rounds and the candidates that will be launched next, except those whose trials are already
    stored."""
    rows = [_round_row(c, keys, r) for r in begun]
    c.execute(upsert_round(c.dialect.name), rows)
    keys.rounds |= {(*(row[name] for name in TASK), row["number"]) for row in rows}
    if intents:
        c.execute(upsert_intents(c.dialect.name), [_intent_row(c, keys, i) for i in intents])
        c.execute(DROP_DONE, [{"of_session": id} for id in {row["session_id"] for row in rows}])


def _round_row(c: Connection, keys: Keys, r: Round) -> dict[str, Any]:
    return {
        "session_id": keys.session(c, r.session).id,
        "workload_id": keys.id(c, m.Workload, r.workload),
        "target_id": keys.id(c, m.Target, r.target),
        "number": r.index,
        "notes": r.notes,
        "started": r.started,
    }


def _intent_row(c: Connection, keys: Keys, i: Intent) -> dict[str, Any]:
    return {
        "session_id": keys.session(c, i.session).id,
        "workload_id": keys.id(c, m.Workload, i.workload),
        "target_id": keys.id(c, m.Target, i.target),
        "host_id": keys.maybe_id(c, m.Host, i.host),
        "trace_hash": i.trace_hash,
        "worker_pid": i.worker_pid,
        "boot_id": i.boot_id,
        "started": i.started,
        "attempts": i.attempts,
        **candidate_row(c, keys, i.sketch_hash, i.decisions, i.trace),
    }


def store_trials(c: Connection, keys: Keys, trials: Sequence[TrialRecord], again: bool) -> int:
    """Stores those trials that are new, with lineage, counts and races. Returns their number.

    again: an earlier call, whose answer was lost, may have stored some of the trials; these count as new.
    """
    rows = [trial_row(c, keys, t) for t in trials]
    _check_rounds(c, keys, rows)
    ids = {(s, w, g, trace): id for id, s, w, g, trace in c.execute(insert_trials(c.dialect.name), rows)}
    c.execute(DROP_INTENT, [{f"of_{name}": row[name] for name in IDENTITY} for row in rows])
    new: dict[int, tuple[Row, TrialRecord]] = {}
    for row, t in zip(rows, trials, strict=True):
        id = ids.pop(_identity(row), None)  # for the first of several equal rows only
        if id is not None:
            new[id] = row, t
    _store_parents(c, keys, new)
    _add_counts(c, {id: row for id, (row, _) in new.items()})
    _note_races(c, keys, new.values())
    if not again:
        return len(new)
    stored = {_identity(row) for row, _ in new.values()}
    return len(new) + sum(_is_there(c, row) for row in _distinct(rows) if _identity(row) not in stored)


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in IDENTITY)


def _distinct(rows: Sequence[Row]) -> Iterable[Row]:
    return {_identity(row): row for row in reversed(rows)}.values()


def _is_there(c: Connection, row: Row) -> bool:
    """Whether exactly this trial is stored, and not another trial with the same identity."""
    known = c.execute(TRIAL_OF, {f"of_{name}": row[name] for name in IDENTITY}).first()
    return known is not None and known.created == row["created"]


def _check_rounds(c: Connection, keys: Keys, rows: Sequence[Row]) -> None:
    """Raises StoreError for a round that is not stored."""
    for row in rows:
        number = row["round"]
        place = (row["session_id"], row["workload_id"], row["target_id"], number)
        if number is None or place in keys.rounds:
            continue
        of = {f"of_{name}": row[name] for name in TASK} | {"of_number": number}
        if c.execute(ROUND_OF, of).scalar() is None:
            raise unknown(keys.place, "round", number)
        keys.rounds.add(place)


def _store_parents(c: Connection, keys: Keys, new: Mapping[int, tuple[Row, TrialRecord]]) -> None:
    rows = [
        {
            "child_id": id,
            "number": number,
            "trace_hash": p.trace_hash,
            "workload_id": keys.id(c, m.Workload, p.workload) if p.workload else None,
            "how": p.how,
        }
        for id, (_, t) in new.items()
        for number, p in enumerate(t.parents)
    ]
    if rows:
        c.execute(insert(c.dialect.name, m.Parent), rows)


def _add_counts(c: Connection, new: Mapping[int, Row]) -> None:
    """Adds the counts in the order of their keys, so that no two writers wait for each other in a circle."""
    names = ("workload_id", "target_id", "machine_id", "status", "error_signature")
    found: dict[tuple[Any, ...], list[int]] = {}
    for id, row in new.items():
        found.setdefault(tuple(row[name] for name in names), []).append(id)
    columns = (*names[:-1], "signature")
    rows = [
        dict(zip(columns, place, strict=True)) | {"n": len(ids), "example": min(ids)}
        for place, ids in sorted(found.items())
    ]
    if rows:
        c.execute(add_counts(c.dialect.name), rows)


def _note_races(c: Connection, keys: Keys, new: Iterable[tuple[Row, TrialRecord]]) -> None:
    """Records the race of these trials as the last race of their task. `put_standing` records its winner."""
    last: dict[tuple[int, int, int], KnownSession] = {}
    for row, t in new:
        race = keys.session(c, t.session)
        if race.kind in RACES:
            task = (row["workload_id"], row["target_id"], row["machine_id"])
            last[task] = max(race, last.get(task, race), key=lambda r: (r.started, r.id))
    rows = [
        {
            "workload_id": workload,
            "target_id": target,
            "machine_id": machine,
            "race_id": race.id,
            "raced": race.started,
            "trial_id": None,
            "seconds": None,
            "default_s": None,
            "updated": race.started,
        }
        for (workload, target, machine), race in sorted(last.items(), key=lambda entry: entry[0])
    ]
    if rows:
        c.execute(upsert_last_race(c.dialect.name), rows)
