"""Short records of trials, with the fields that a chart needs. Ten thousand of them are read in a moment.

    tried(store, session) ──▶ Tried, Tried, …          in order of storing
    parents(store, session) ──▶ {trial: (Parent, …)}   of trials that were made from others

A `TrialRecord` has the whole trace, and all samples as records, so it takes fifty times as long to make.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tuning_db.contract import TrialStore
from tuning_db.records import Parent, Status

ROWS = 10_000  # rows of a batch

_TRIED = """
SELECT t.id, w.key, g.key, t.status, t.median_s, t.verdict, t.predicted, t.made_by, t.trace_hash,
       COALESCE(k.hash, ''), t.decisions, t.residency, t.samples, COALESCE(t.conditions, ''),
       t.error_signature
FROM trial t
JOIN session s ON s.id = t.session_id
JOIN workload w ON w.id = t.workload_id
JOIN target g ON g.id = t.target_id
LEFT JOIN sketch k ON k.id = t.sketch_id
WHERE s.uuid = :session AND t.id > :after
ORDER BY t.id"""

_PARENTS = """
SELECT p.child_id, p.trace_hash, p.how, COALESCE(w.key, '')
FROM trial t
JOIN session s ON s.id = t.session_id
JOIN parent p ON p.child_id = t.id
LEFT JOIN workload w ON w.id = p.workload_id
WHERE s.uuid = :session
ORDER BY p.child_id, p.number"""


@dataclass(frozen=True, slots=True)
class Tried:
    """One trial. The fields have the same names as in `TrialRecord`. `decisions` is JSON text."""

    id: int
    workload: str
    target: str
    status: Status
    median_s: float | None
    verified: bool
    predicted: float | None
    made_by: str
    trace_hash: str
    sketch_hash: str
    decisions: str
    residency: str  # residency of its samples; "" without samples
    spread: float | None  # (slowest - fastest) / median of its samples; None for fewer than two
    reference_s: float | None  # median of the reference's times next to the samples
    conditions: str
    signature: str  # signature of its error


def tried(store: TrialStore, session: str, after: int = 0) -> tuple[Tried, ...]:
    """Trials of the session with this uuid; only those with an id above `after`, to read new trials."""
    asked = {"session": session, "after": after}
    return tuple(_tried(row) for rows in store.rows(_TRIED, asked, ROWS) for row in rows)


def parents(store: TrialStore, session: str) -> Mapping[int, tuple[Parent, ...]]:
    """The parents of a session's trials, by trial id; trials without parents are left out."""
    made: dict[int, tuple[Parent, ...]] = {}
    for rows in store.rows(_PARENTS, {"session": session}, ROWS):
        for child, trace_hash, how, workload in rows:
            made[child] = (*made.get(child, ()), Parent(trace_hash, how, workload))
    return made


def _tried(row: Sequence[Any]) -> Tried:
    id, workload, target, status, median_s, verdict, predicted, made_by, trace, sketch, decisions = row[:11]
    residency, samples, conditions, signature = row[11:]
    pairs = json.loads(samples) if samples else []
    seconds = [pair[0] for pair in pairs]
    references = [pair[1] for pair in pairs if pair[1] is not None]
    return Tried(
        id, workload, target, Status(status), median_s, status == Status.OK and bool(verdict), predicted,
        made_by, trace, sketch, decisions, residency or "",
        (max(seconds) - min(seconds)) / median_s if median_s and len(seconds) > 1 else None,
        median(references) if references else None,
        conditions, signature,
    )  # fmt: skip


__all__ = ["Tried", "parents", "tried"]
