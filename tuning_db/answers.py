"""Answers of a tuning log about its records: the best of them, counts, histories, progress, damage.

Queries compute them. They are not stored; `records.py` has the records that are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tuning_db.records import Machine, Session, Status, TrialRecord


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to a claim on a run: the current `session`; `mine` is True if the claim was granted."""

    session: Session
    mine: bool
    ended_before: str = ""  # why the session had ended, if it had ended


@dataclass(frozen=True, slots=True)
class ForeignTrial:
    """A trial of another machine. Its time says nothing about this machine, but its trace may be worth
    measuring."""

    machine: Machine
    trial: TrialRecord


@dataclass(frozen=True, slots=True)
class Leader:
    """The fastest verified trial of a task on a machine, as a short record."""

    workload: str
    target: str
    machine: str
    trial: int
    seconds: float
    created: datetime
    made_by: str


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many trials a task has on a machine, by status and signature of failure."""

    workload: str
    target: str
    machine: str
    status: Status
    signature: str
    count: int


class By(StrEnum):
    """The fields by which trials of a task are grouped."""

    SESSION = "session"
    DAY = "day"
    COMMIT = "commit"  # `Code.label`
    MACHINE = "machine"
    MAKER = "maker"
    CONDITIONS = "conditions"


@dataclass(frozen=True, slots=True)
class Chapter:
    """The best of one group of a task's verified trials, for example of one commit.

    A group never holds trials of different machines, targets or residencies.
    """

    of: str  # the value of the field by which trials are grouped
    since: datetime  # when the first of them was measured
    machine: str  # fingerprint
    target: str  # key
    residency: str
    trials: int
    best_s: float
    trial: int  # id of the fastest trial


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many trials of a workload were deleted when a log was pruned."""

    workload: str
    name: str
    trials: int  # their number before pruning
    gone: int


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures that share a status and an error signature."""

    status: Status
    signature: str  # first line of the error, with # instead of numbers
    count: int
    example: int  # id of the first such trial


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a session got on one task."""

    workload: str
    target: str
    trials: int
    ok: int
    failed: int
    best_s: float | None  # best verified median
    curve: tuple[tuple[int, float], ...]  # (number of the trial within the task from 1, new best)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `TrialStore.check`; a healthy log has no problems."""

    schema_version: int
    trials: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def summarise(points: Sequence[tuple[str, str, Status, float | None]]) -> tuple[Progress, ...]:
    """Progress per task from `(workload, target, status, verified median | None)` in order of storing."""
    tasks: dict[tuple[str, str], list[tuple[Status, float | None]]] = {}
    for workload, target, status, verified_s in points:
        tasks.setdefault((workload, target), []).append((status, verified_s))
    result = []
    for (workload, target), done in tasks.items():
        curve: list[tuple[int, float]] = []
        for number, (_, seconds) in enumerate(done, start=1):
            if seconds is not None and (not curve or seconds < curve[-1][1]):
                curve.append((number, seconds))
        ok = sum(status is Status.OK for status, _ in done)
        best_s = curve[-1][1] if curve else None
        result.append(Progress(workload, target, len(done), ok, len(done) - ok, best_s, tuple(curve)))
    return tuple(result)


def distinct_traces(trials: Iterable[TrialRecord], k: int) -> tuple[TrialRecord, ...]:
    """The first `k` trials with different traces (one trace may have been measured by several sessions)."""
    found: dict[str, TrialRecord] = {}
    for trial in trials:
        if len(found) >= k:
            break
        found.setdefault(trial.trace_hash, trial)
    return tuple(found.values())
