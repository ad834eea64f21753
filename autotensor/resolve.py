"""Workload and target → the best trace that is known, and where it comes from.

Order: a trace given by hand, the tuning log (this machine's verified rows only), the rules' default. A row of another
machine is never taken; `Resolved.note` says when there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.base.errors import AutotensorError, ScheduleError
from autotensor.base.machine import host_machine
from autotensor.base.target import Target
from autotensor.schedule.trace import Trace
from autotensor.te.workload import Workload
from schedules.generate import default_trace
from tuning_db import TrialStore


@dataclass(frozen=True, slots=True)
class Resolved:
    """A trace and its origin: "given", "log" or "default"."""

    trace: Trace
    source: str
    seconds: float | None = None  # as measured, for source "log"
    trial: int | None = None
    note: str = ""


def resolve(workload: Workload, target: Target, store: TrialStore | None = None) -> Resolved:
    """The best verified trace for a workload on this machine, else the rules' default."""
    note = ""
    if store is not None:
        fingerprint = host_machine().fingerprint
        for row in store.best(workload.key, target.key(), fingerprint, k=3):
            try:
                trace = Trace.from_json(row.trace)
                trace.replay(workload.dag)
            except ScheduleError as e:
                note = f"trial {row.id} no longer applies: {e.what}"
                continue
            return Resolved(trace, "log", row.median_s, row.id)
        foreign = store.best_foreign(workload.key, target.key(), fingerprint, k=1)
        if foreign:
            note = f"the log has schedules for this from {foreign[0].machine.cpu_model}, which were not measured here"
    return Resolved(safe_default(workload, target), "default", note=note)


def safe_default(workload: Workload, target: Target) -> Trace:
    """The rules' default; the plain nest where they fail, for a default always runs."""
    try:
        trace = default_trace(workload.dag, target)
        trace.replay(workload.dag)
    except AutotensorError:
        return Trace()
    return trace
