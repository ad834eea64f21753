"""The subject of an explanation: one schedule of one task, with its facts from the log.

    of_trial(store, row)                  the schedule that a trial measured, on the machine that measured it
    of_schedule(workload, target, …)      the schedule that this machine uses for a task, or the default

The search scores a sketch's loops without lowering them. `seen` gives the same view of a subject. If today's
rules do not make the schedule's sketch, `seen` shows the loops that the trace gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autotensor.base.errors import InputError, ScheduleError
from autotensor.base.target import Target
from autotensor.resolve import resolve, safe_default
from autotensor.runtime.place import here
from autotensor.schedule.loop_picture import LoopPicture, picture
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.sketch import Option, Sketch
from autotensor.schedule.trace import Trace
from autotensor.search.journal import decisions_of
from autotensor.search.machine.calibration import known_rates
from autotensor.search.measuring.measure_request import Residency
from autotensor.search.propose.population import Population, encode
from autotensor.search.shipped_knowledge import with_shipped
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.generate import generate, structure
from schedules.prior.rates import Rates
from tuning_db import TrialStore
from tuning_db.records import TrialRecord


@dataclass(frozen=True)
class Subject:
    """One schedule of a task."""

    workload: Workload
    target: Target
    trace: Trace
    origin: str  # a description for people: "trial 17", "the default schedule"
    machine: str  # fingerprint of the machine that has these rates and this time
    rates: Rates
    sketches: tuple[Sketch, ...]  # the task's sketches, by today's rules, and the shipped ones
    sketch: Sketch | None = None  # the sketch that gives the trace; None: today's rules do not make it
    decisions: Mapping[str, Option] = field(default_factory=dict)
    trial: TrialRecord | None = None  # the trial that measured the schedule

    @property
    def here(self) -> bool:
        """Whether the subject is about this machine."""
        return self.machine == here(self.target).fingerprint

    @property
    def seconds(self) -> float | None:
        return None if self.trial is None else self.trial.median_s

    @property
    def residency(self) -> Residency:
        """State of the caches during the measurement: weights come from memory, unless everything was hot."""
        return "hot" if self.rates.warm_weights else "graph"


def of_trial(store: TrialStore, row: TrialRecord, workload: Workload) -> Subject:
    """The subject of a trial. Raises InputError when today's version cannot apply the trial's trace."""
    target = _target_of(store, row.target)
    try:
        trace = Trace.from_json(row.trace)
        trace.replay(workload.dag)
    except ScheduleError as e:
        raise InputError(f"the schedule of trial {row.id} no longer applies: {e.what}") from e
    sketches = sketches_of(workload, target)
    decisions = decisions_of(row)
    sketch = next((s for s in sketches if s.hash == row.sketch_hash), None)
    if sketch is not None and not _fits(sketch, decisions):
        sketch = None
    rates = known_rates(store, row.machine, target)
    rates = replace(rates, warm_weights=_warm(row, workload, rates))
    return Subject(
        workload, target, trace, f"trial {row.id}", row.machine, rates, sketches, sketch,
        decisions, row,
    )  # fmt: skip


def of_schedule(
    workload: Workload, target: Target, store: TrialStore | None, *, default: bool = False
) -> Subject:
    """The best known schedule of a task on this machine, or its default, with its trial if it has one."""
    place = here(target)
    found = resolve(workload, target, None if default else store)
    if store is not None and found.trial is not None:
        return of_trial(store, store.trial(found.trial), workload)
    trace = safe_default(workload, target) if default else found.trace
    sketches = sketches_of(workload, target)
    decisions = sketches[0].defaults()
    usual = trace == sketches[0].fill(decisions)
    trial = None if store is None else _measured(store, workload, target, trace)
    what = "the default schedule" if usual or default else f"the {found.source} schedule"
    rates = known_rates(store, place.fingerprint, target)
    if trial is not None:
        rates = replace(rates, warm_weights=_warm(trial, workload, rates))
    what = what if trial is None else f"{what}, trial {trial.id}"
    return Subject(
        workload, target, trace, what, place.fingerprint, rates, sketches,
        sketches[0] if usual else None, decisions if usual else {}, trial,
    )  # fmt: skip


def _warm(row: TrialRecord, workload: Workload, rates: Rates) -> bool:
    """Whether a trial found its weights in the caches: all was hot, or the model's kernels left them there.

    The log does not record this. But a run that takes less time than reading the weights from memory did not
    read them from memory.
    """
    residency = row.samples[0].residency if row.samples else "graph"
    weights = sum(b.bytes for b in workload.dag.inputs if b.name in workload.dag.constants)
    fast = row.median_s is not None and row.median_s < weights / rates.memory_bandwidth
    return residency == "hot" or (residency == "model" and fast)


def sketches_of(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """The sketches that the search would have: those of today's rules, and the shipped ones."""
    return with_shipped(Task(workload, target), generate(workload.dag, target))[0]


def _measured(store: TrialStore, workload: Workload, target: Target, trace: Trace) -> TrialRecord | None:
    """The fastest trial of a trace on this machine."""
    rows = store.trials(*here(target).task(workload.key), trace_hash=trace.hash)
    mine = [r for r in rows if r.median_s is not None]
    return min(mine, key=lambda r: r.median_s or 0.0, default=None)


def seen(s: Subject) -> LoopPicture:
    """The subject's loops as the search sees them."""
    if s.sketch is not None:
        state = structure(s.sketch, s.workload.dag)
        return Population(s.sketch, state, encode(s.sketch, s.decisions)[None]).picture
    return picture(_unpacked(s.trace, s.workload).replay(s.workload.dag), {})


def _target_of(store: TrialStore, key: str) -> Target:
    text = next((t.text for t in store.targets() if t.key == key), "")
    try:
        return Target.from_json(text)
    except (ValueError, KeyError, TypeError) as e:
        raise InputError(f"this version cannot read target {key!r} of the log: {e}.") from e


def _fits(sketch: Sketch, decisions: Mapping[str, Option]) -> bool:
    return len(decisions) == len(sketch.holes) and all(
        decisions.get(h.name) in h.options for h in sketch.holes
    )


def _unpacked(trace: Trace, workload: Workload) -> Trace:
    """The trace without its repackings, if the other steps work without them: sketches are seen like this,
    too.
    """
    plain = Trace(tuple(s for s in trace.steps if not isinstance(s, Layout)))
    try:
        plain.replay(workload.dag)
    except ScheduleError:
        return trace
    return plain
