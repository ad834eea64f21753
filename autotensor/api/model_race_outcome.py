"""The outcome of a whole model's last race, kept in the log: the same schedules need not race again.

    tuned model, default model ──race──▶ Outcome ──session of kind "end"──▶ the same command: nothing is timed

An outcome is found by the schedules of both models, this machine, and the versions that affect the code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from autotensor.base.machine import environment_versions
from autotensor.base.target import Target
from autotensor.resolve import Metric, Resolved
from autotensor.runtime.place import here
from autotensor.schedule.trace import Trace
from autotensor.search.machine.machine_entry import know_machine, session_here
from autotensor.search.report import TaskReport
from tuning_db import SessionKind, TrialStore
from tuning_db.records import TrialRecord

Traces = Mapping[str, Trace]  # by workload key


@dataclass(frozen=True, slots=True)
class Outcome:
    """Median times in seconds, which were measured side by side."""

    default_s: float
    tuned_s: float
    inside: Mapping[str, float] = field(default_factory=dict)  # seconds of each workload's kernels


def outcome_of(store: TrialStore, target: Target, tuned: Traces, default: Traces) -> Outcome | None:
    """The stored result of a race between these schedules; None if there was no such race on this machine
    with the present versions."""
    session = store.find_session(_key(target, tuned, default), here(target).fingerprint, SessionKind.END)
    if session is None or session.environment != store.ensure_environment(environment_versions()):
        return None
    options = session.options
    inside = {str(k): float(v) for k, v in options["inside"].items()}
    return Outcome(float(options["default_s"]), float(options["tuned_s"]), inside)


def remember(store: TrialStore, target: Target, tuned: Traces, default: Traces, outcome: Outcome) -> None:
    """Stores the outcome of a race between these schedules."""
    machine = know_machine(store, here(target))
    key = _key(target, tuned, default)
    session = session_here(store, machine, key, asdict(outcome), kind=SessionKind.END)
    store.end_session(session.id, "raced as whole models")


def as_written(task: TaskReport, used: Resolved, race: Sequence[TrialRecord], metric: Metric) -> TaskReport:
    """The report with the time of the schedule that the file holds.

    used: that schedule. race: the contestants of the task's last race. This race may have run inside the
    model, after the search.

    If that race was lost or undecided, the file holds the default, and the task has gained nothing.
    """
    if used.default is None:
        return task
    rows = {r.trace_hash: r for r in race}
    default, mine = rows.get(used.default.hash), rows.get(used.trace.hash)
    if default is not None and mine is not None:
        return replace(task, default_s=metric(default), best_s=metric(mine))
    return replace(task, best_s=task.default_s) if used.trace.hash == used.default.hash else task


def _key(target: Target, tuned: Traces, default: Traces) -> str:
    schedules = sorted((k, tuned[k].hash, default[k].hash) for k in tuned)
    text = json.dumps([target.key(), target.num_cores, schedules])
    return f"end:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


__all__ = ["Outcome", "as_written", "outcome_of", "remember"]
