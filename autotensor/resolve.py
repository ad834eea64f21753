"""Workload and target → the best trace that is known, and where it comes from.

Order: the tuning log (this machine's verified rows only), the schedules that come with the package for this
class of machines (`schedules/shipped.py`), the rules' default. The log gives the winner of the task's last
race: the fastest of many noisy medians was lucky as well as fast. A challenger must beat the default beyond
the noise of their race; on a tie the default stays, so that tuned is never slower than untuned. A row of
another machine is never taken; `Resolved.note` says when there is one. A workload with run-time extents takes
what is known of its greatest extents, as far as that can be lowered with symbols.

Rows are compared by the median of their samples, or by another metric. The log keeps the samples, and the
reader chooses the metric. Races inside a model are kept as ratios, of which only the median means something;
other metrics leave them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotensor.base import log
from autotensor.base.errors import AutotensorError, ScheduleError
from autotensor.base.paired_times import Paired, paired
from autotensor.base.target import Target
from autotensor.lowering.lowered_before import fits, obstacle
from autotensor.runtime.place import TaskKey, here
from autotensor.schedule.trace import Trace
from autotensor.te.workload import Workload
from schedules.generate import default_trace, generate, rules
from schedules.shipped import untuned
from tuning_db import RACES, TrialStore
from tuning_db.records import Standing, TrialRecord, distinct_traces

LEAST_GAIN = 0.005  # of the default's time, in a race: the same code timed twice differs by so much (A/A)
LEAST_GAIN_APART = 0.03  # the same between times that were not measured side by side
IN_MODEL = "model"  # residency of samples of a race in a model: as its other kernels leave the caches


DEFAULT = "default"  # `made_by` of the trace that rules make without measuring
FIRST_TRIALS = 32  # of a task, with its default, which is proposed first

Metric = Callable[[TrialRecord], float]  # of a trial that works: the figure to minimise, above zero


def median_s(row: TrialRecord) -> float:
    """Seconds: the middle of the samples."""
    return float("inf") if row.median_s is None else row.median_s


@dataclass(frozen=True, slots=True)
class Resolved:
    """A trace and its origin: "log", "shipped" or "default"."""

    trace: Trace
    source: str
    seconds: float | None = None  # as measured, here for source "log", elsewhere for "shipped"
    trial: int | None = None
    note: str = ""
    default: Trace | None = None  # the rules' own trace, with which this one was compared


def resolve(
    workload: Workload, target: Target, store: TrialStore | None = None, metric: Metric = median_s
) -> Resolved:
    """The best verified trace for a workload on this machine, else the rules' default."""
    default = safe_default(workload, target)
    measured = workload.at_greatest
    shipped = untuned(measured, target, default.hash)
    note = ""
    if shipped is not None and measured is not workload and not fits(shipped[1], workload, target):
        shipped = None
    if store is not None:
        task = here(target).task(measured.key)
        if shipped is not None and store.met(*task, (shipped[1].hash,)):
            shipped = None  # how it did here is in the log
        for row in ranked(store, task, default.hash, metric):
            if shipped is not None and row.trace_hash == default.hash:
                break  # that the default won here says nothing about what was not among the trials
            try:
                trace = Trace.from_json(row.trace)
                trace.replay(workload.dag)
                if measured is not workload and not fits(trace, workload, target):
                    note = f"the schedule of trial {row.id} takes extents that are numbers"
                    continue
            except ScheduleError as e:
                note = f"trial {row.id} no longer applies: {e.what}"
                continue
            return Resolved(trace, "log", row.median_s, row.id, default=default)
        foreign = store.best_foreign(*task, k=1)
        if foreign and shipped is None:
            cpu = foreign[0].machine.cpu_model
            note = f"the log has schedules for this from {cpu}, which were not measured here"
    if shipped is not None:
        offer, trace = shipped
        return Resolved(trace, "shipped", offer.record.seconds, note=note, default=default)
    return Resolved(default, "default", note=note, default=default)


def ranked(
    store: TrialStore, task: TaskKey, default_hash: str | None = None, metric: Metric = median_s
) -> list[TrialRecord]:
    """Verified trials of a task in the order in which they should be used; may be empty.

    First those newer than the last race and surely faster, then the race's winner. default_hash: of the
    rules' trace today; None: the trace measured as the default, for callers that print and do not plan.
    """
    raced = _raced(store, task, default_hash, metric)
    best = best_by(metric, store, task, 3)
    if raced:
        if metric is median_s:  # by which every race has the best; by another, they may have been left out
            since = max(r.created for r in raced)
            best = [r for r in best if r.created > since]
        known, enough = {r.trace_hash for r in raced}, (1 - LEAST_GAIN_APART) * metric(raced[0])
        newer = [r for r in best if r.trace_hash not in known and metric(r) < enough]
        return [*newer, *raced]
    known_default = default_hash or _default_of(store.trials(*task, limit=FIRST_TRIALS))
    defaults = [r for r in _counted(metric, store, task, known_default) if r.verified]
    default = min(defaults, key=metric, default=None)
    if default is None:
        return list(best)
    sure = [r for r in best if metric(r) < (1 - LEAST_GAIN_APART) * metric(default)]
    return [*sure, default]


def in_use(store: TrialStore, task: TaskKey) -> TrialRecord | None:
    """The trial whose schedule `resolve` takes while the rules make the same default as when it was measured;
    None without measurements. `db best`, `tasks` and `explain` name it."""
    return next(iter(ranked(store, task)), None)


def all_in_use(store: TrialStore, machine: str) -> list[TrialRecord]:
    """`in_use` of every task of a machine: the winners of races at once, the few others one by one."""
    overtaken = store.overtaken(machine, 1 - LEAST_GAIN_APART)
    won = {
        (s.workload, s.target): s.trial
        for s in store.standings(machine)
        if s.trial is not None and (s.workload, s.target) not in overtaken
    }
    others = [
        in_use(store, (leader.workload, leader.target, machine))
        for leader in store.leaders(machine)
        if (leader.workload, leader.target) not in won
    ]
    found = (*store.trials_of(won.values()), *filter(None, others))
    return sorted(found, key=lambda r: r.id or 0)


def decide(store: TrialStore, task: TaskKey, default_hash: str) -> None:
    """Notes in the log who won the last race of a task. Raises StoreError."""
    order = race_order(store.last_race(*task), default_hash)
    if order:
        default_s = next((r.median_s for r in order if r.trace_hash == default_hash), None)
        first = order[0]
        store.put_standing(Standing(*task, first.session, first.id, first.median_s, default_s))


def _raced(
    store: TrialStore, task: TaskKey, default_hash: str | None, metric: Metric
) -> Sequence[TrialRecord]:
    """Who met in the last race, the winner first."""
    rows = last_race(metric, store, task)
    order = race_order(rows, default_hash or _default_of(rows), metric)
    standing = store.standing(*task) if order and metric is median_s else None
    if standing is None or standing.trial is None:
        return order
    return sorted(order, key=lambda r: r.id != standing.trial)  # as it was decided then


def _default_of(rows: Iterable[TrialRecord]) -> str:
    """The trace that was measured as the default; "" if none of these was."""
    return next((r.trace_hash for r in rows if r.made_by == DEFAULT), "")


def best_by(metric: Metric, store: TrialStore, task: TaskKey, k: int = 1) -> Sequence[TrialRecord]:
    """The best verified trials of different traces of a workload, target and machine."""
    if metric is median_s:
        return store.best(*task, k=k)
    return distinct_traces(sorted((r for r in _counted(metric, store, task) if r.verified), key=metric), k)


def last_race(metric: Metric, store: TrialStore, task: TaskKey) -> Sequence[TrialRecord]:
    """The contestants of the last race of a workload, target and machine; may be empty."""
    if metric is median_s:
        return store.last_race(*task)
    races: dict[str, list[TrialRecord]] = {s.id: [] for s in store.sessions(RACES)}
    for row in _counted(metric, store, task):
        if row.session in races:
            races[row.session].append(row)
    return next((rows for rows in reversed(races.values()) if rows), ())


def _counted(
    metric: Metric, store: TrialStore, task: TaskKey, trace_hash: str | None = None
) -> Sequence[TrialRecord]:
    """Trials, of one trace or of all, of which the metric makes something."""
    rows = store.trials(*task, trace_hash=trace_hash)
    if metric is median_s:
        return rows
    return [r for r in rows if all(s.residency != IN_MODEL for s in r.samples)]


def race_order(
    contestants: Sequence[TrialRecord], default_hash: str, metric: Metric = median_s
) -> list[TrialRecord]:
    """Verified contestants of one race, the winner first.

    Samples of equal number were taken side by side, so it is their ratios that are compared.
    """
    rows = sorted((r for r in contestants if r.verified), key=metric)
    default = next((r for r in rows if r.trace_hash == default_hash), None)
    if default is None:
        return rows
    gains = [(relative_time(r, default, metric), r) for r in rows if r is not default]
    faster = sorted((g for g in gains if g[0].faster_than(1 - LEAST_GAIN)), key=lambda g: g[0].middle)
    won = [r for _, r in faster]
    return [*won, default, *(r for r in rows if r is not default and r not in won)]


def relative_time(challenger: TrialRecord, default: TrialRecord, metric: Metric = median_s) -> Paired:
    """How their samples compare, round by round. Where there are none, and by another metric than the median:
    how the two figures compare, with bounds apart."""
    mine, theirs = ([s.seconds for s in r.samples] for r in (challenger, default))
    if metric is median_s and mine and theirs:
        return paired(mine, theirs)
    ratio = metric(challenger) / max(metric(default), 1e-12)
    return Paired(ratio, ratio / (1 + LEAST_GAIN_APART), ratio * (1 + LEAST_GAIN_APART))


def gain(default_s: float, tuned_s: float, default: str = "") -> str:
    """How two times that were taken side by side compare, in words; `default` names what the first is of.

    >>> gain(2.0, 1.0), gain(1.0, 0.998), gain(1.0, 1.1), gain(3.0, 2.0, "the default")
    ('2.00 times as fast', 'as fast, within the noise', '10.0 % slower', '1.50 times as fast as the default')
    """
    what, than = (f" as {default}", f" than {default}") if default else ("", "")
    slower = tuned_s / default_s - 1.0
    if abs(slower) <= LEAST_GAIN:
        return f"as fast{what}, within the noise"
    return (
        f"{slower * 100:.1f} % slower{than}"
        if slower > 0
        else f"{default_s / tuned_s:.2f} times as fast{what}"
    )


def safe_default(workload: Workload, target: Target) -> Trace:
    """The rules' default; with run-time extents the first of their sketches that takes these; the plain nest
    where there is none, since a default always runs, with a warning.

    Raises ScheduleError for errors of rules from outside: plain loops would hide them.
    """
    rules()
    try:
        trace = default_trace(workload.dag, target)
        trace.replay(workload.dag)
    except AutotensorError as error:
        _plain_loops(workload.name, f"{type(error).__name__}: {error.what}")
        return Trace()
    why = "" if workload.at_greatest is workload else obstacle(trace, workload, target)
    if not why:
        return trace
    for sketch in generate(workload.dag, target):
        other = sketch.fill(sketch.defaults())
        if not obstacle(other, workload, target):
            return other
    _plain_loops(workload.name, why)
    return Trace()


@lru_cache(maxsize=256)  # one warning for each kernel and reason
def _plain_loops(name: str, why: str) -> None:
    log.warn(
        f"The default schedule of {name!r} cannot be used ({why}); the kernel gets plain loops, which are "
        "right, and slower. Please report this."
    )
