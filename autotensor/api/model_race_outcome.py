"""The outcome of a whole model's last race, kept in the log: the same schedules need not race again.

    tuned model, default model ──race──▶ Outcome ──session of kind "end"──▶ the same command: nothing is timed

An outcome is found by the schedules of both models, this machine, and the versions that affect the code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from autotensor.base.machine import environment_versions
from autotensor.base.target import Target
from autotensor.runtime.place import here
from autotensor.schedule.trace import Trace
from autotensor.search.machine.machine_entry import know_machine, session_here
from tuning_db import SessionKind, TrialStore

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


def _key(target: Target, tuned: Traces, default: Traces) -> str:
    schedules = sorted((k, tuned[k].hash, default[k].hash) for k in tuned)
    text = json.dumps([target.key(), target.num_cores, schedules])
    return f"end:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


__all__ = ["Outcome", "outcome_of", "remember"]
