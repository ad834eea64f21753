"""Finds the best known trace for a workload and a target, and says where it comes from.

Order: the tuning log (this machine's verified rows only), the schedules that come with the package for this
class of machines (`schedules/shipped.py`), the rules' default. The log gives the winner of the task's last
race, not the trial with the smallest median: of many noisy medians, the smallest is partly luck. A challenger
must be faster than the default by more than the noise of their race. On a tie the default stays, so that a
tuned kernel is never slower than an untuned one. A row of another machine is never taken; `Resolved.note`
says when the log has one, or one for another number of threads. A workload with run-time extents takes the
best trace for its greatest extents, if this trace can be lowered with symbols.

Rows are compared by the median of their samples, or by another metric. The log keeps the samples, and the
reader chooses the metric. Races inside a model are kept as ratios. Only the median of ratios is meaningful,
so other metrics leave these races out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotensor.base import log, switches
from autotensor.base.counted import counted
from autotensor.base.errors import AutotensorError, ScheduleError
from autotensor.base.paired_times import Paired, paired
from autotensor.base.target import Target
from autotensor.compiler import kept_obstacle
from autotensor.runtime.files.object_cache import default_cache
from autotensor.runtime.place import TaskKey, here
from autotensor.schedule.trace import Trace
from autotensor.te.workload import Workload
from schedules.generate import default_trace, described, generate, outside_rules, rules
from schedules.over_range import trace_over_range
from schedules.shipped import untuned
from tuning_db import RACES, TrialStore
from tuning_db.answers import distinct_traces
from tuning_db.records import Standing, Status, TrialRecord

LEAST_GAIN = 0.005  # share of the default's time, in a race; two timings of the same code differ by this much
LEAST_GAIN_APART = 0.03  # the same share for times that were not measured side by side
IN_MODEL = "model"  # residency of a race in a model: the caches hold what its other kernels left


DEFAULT = "default"  # `made_by` of the trace that rules make without measuring
FIRST_TRIALS = 32  # this many first trials of a task include its default, which is proposed first

Metric = Callable[[TrialRecord], float]  # gives the figure of a working trial that is minimised; above zero


def median_s(row: TrialRecord) -> float:
    """The median of the samples in seconds; infinity if there is none."""
    return float("inf") if row.median_s is None else row.median_s


@dataclass(frozen=True, slots=True)
class Resolved:
    """A trace and its origin: "log", "shipped" or "default"."""

    trace: Trace
    source: str
    seconds: float | None = None  # measured on this machine for source "log", on another one for "shipped"
    trial: int | None = None
    note: str = ""
    default: Trace | None = None  # the rules' own trace, with which `trace` was compared


def resolve(
    workload: Workload, target: Target, store: TrialStore | None = None, metric: Metric = median_s
) -> Resolved:
    """The best verified trace for a workload on this machine, else the rules' default."""
    default = safe_default(workload, target)
    measured = workload.at_greatest
    shipped = untuned(measured, target, default.hash)
    note = ""
    if shipped is not None and measured is not workload and obstacle(shipped[1], workload, target):
        shipped = None
    if store is not None:
        task = here(target).task(measured.key)
        if shipped is not None and store.met(*task, (shipped[1].hash,)):
            shipped = None  # its result on this machine is in the log
        for row in ranked(store, task, default.hash, metric):
            if shipped is not None and row.trace_hash == default.hash:
                break  # the default won, but the shipped trace was not among the trials
            try:
                trace = Trace.from_json(row.trace)
                trace.replay(workload.dag)
                if measured is not workload and obstacle(trace, workload, target):
                    note = f"the schedule of trial {row.id} takes extents that are numbers"
                    continue
            except ScheduleError as e:
                note = f"trial {row.id} no longer applies: {e.what}"
                continue
            return Resolved(trace, "log", row.median_s, row.id, default=default)
        note = note or tuned_for_others(store, task)
        foreign = () if note else store.best_foreign(*task, k=1)
        if foreign and shipped is None:
            cpu = foreign[0].machine.cpu_model
            note = f"the log has schedules for this from {cpu}, which were not measured here"
    if shipped is not None:
        offer, trace = shipped
        return Resolved(trace, "shipped", offer.record.seconds, note=note, default=default)
    return Resolved(default, "default", note=note, default=default)


def tuned_for_others(store: TrialStore, task: TaskKey) -> str:
    """A note on trials of this machine for other targets, such as another number of threads; "" if the log
    has none, or if it has trials for this target."""
    workload, target, machine = task
    counts = store.task_counts(workload, machine=machine)
    have = sorted({c.target for c in counts if c.status is Status.OK})
    if target in have or not have:
        return ""
    alike = [key for key in have if _THREADS.sub("", key) == _THREADS.sub("", target)]
    if alike and (mine := _THREADS.search(target)):
        others = sorted(int(n) for key in alike for n in _THREADS.findall(key))
        there = (
            counted(others[0], "thread") if len(others) == 1 else f"{' and '.join(map(str, others))} threads"
        )
        return f"the log has schedules for {there}, not for {mine[1]}; --threads N chooses the number"
    return f"the log has schedules for the target {' and '.join(have)}, not for {target}"


_THREADS = re.compile(r"/t(\d+)(?=/|$)")  # the number of threads in a target's key


def ranked(
    store: TrialStore, task: TaskKey, default_hash: str | None = None, metric: Metric = median_s
) -> list[TrialRecord]:
    """Verified trials of a task in the order in which they should be used; may be empty.

    First come trials that are newer than the last race and surely faster than its winner. Then come the
    contestants of the race, its winner first. default_hash: the hash of the trace that the rules make today.
    None takes the trace that was measured as the default; this is for callers that print and do not plan.
    """
    raced = _raced(store, task, default_hash, metric)
    best = best_by(metric, store, task, 3)
    if raced:
        if metric is median_s:  # races include the best by the median; by another metric they may not
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
    """The trial whose schedule `resolve` takes, if the rules still make the default that was measured. None
    without measurements. `db best`, `tasks` and `explain` show this trial."""
    return next(iter(ranked(store, task)), None)


def all_in_use(store: TrialStore, machine: str) -> list[TrialRecord]:
    """The results of `in_use` for all tasks of a machine. One query finds the winners of races; the few other
    trials are found one by one."""
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
    """Writes to the log which trial won the last race of a task. Raises StoreError."""
    order = race_order(store.last_race(*task), default_hash)
    if order:
        default_s = next((r.median_s for r in order if r.trace_hash == default_hash), None)
        first = order[0]
        store.put_standing(Standing(*task, first.session, first.id, first.median_s, default_s))


def _raced(
    store: TrialStore, task: TaskKey, default_hash: str | None, metric: Metric
) -> Sequence[TrialRecord]:
    """The contestants of the last race, the winner first."""
    rows = last_race(metric, store, task)
    order = race_order(rows, default_hash or _default_of(rows), metric)
    standing = store.standing(*task) if order and metric is median_s else None
    if standing is None or standing.trial is None:
        return order
    return sorted(order, key=lambda r: r.id != standing.trial)  # the recorded winner comes first


def _default_of(rows: Iterable[TrialRecord]) -> str:
    """The hash of the trace that was measured as the default; "" if none of these rows was."""
    return next((r.trace_hash for r in rows if r.made_by == DEFAULT), "")


def best_by(metric: Metric, store: TrialStore, task: TaskKey, k: int = 1) -> Sequence[TrialRecord]:
    """The best verified trials of a workload, target and machine: at most `k`, each of another trace."""
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
    """The trials, of one trace or of all, for which the metric is meaningful."""
    rows = store.trials(*task, trace_hash=trace_hash)
    if metric is median_s:
        return rows
    return [r for r in rows if all(s.residency != IN_MODEL for s in r.samples)]


def race_order(
    contestants: Sequence[TrialRecord], default_hash: str, metric: Metric = median_s
) -> list[TrialRecord]:
    """Verified contestants of one race, the winner first.

    Samples with the same index were taken side by side, so their ratios are compared.
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
    """The ratio of the challenger's time to the default's, from their samples round by round. Without
    samples, or by a metric other than the median, it is the ratio of the two figures. Its bounds are then
    those of times that were not measured side by side."""
    mine, theirs = ([s.seconds for s in r.samples] for r in (challenger, default))
    if metric is median_s and mine and theirs:
        return paired(mine, theirs)
    ratio = metric(challenger) / max(metric(default), 1e-12)
    return Paired(ratio, ratio / (1 + LEAST_GAIN_APART), ratio * (1 + LEAST_GAIN_APART))


def gain(default_s: float, tuned_s: float, default: str = "") -> str:
    """Compares two times that were taken side by side, in words. default: a name for the first of the two.

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
    """The rules' default trace. With run-time extents, it is the first of the rules' sketches that takes such
    extents. If there is none, it is the plain loop nest, with a warning, because a default must always run.

    Raises ScheduleError for rules from outside this package that have no place among the others, because
    plain loops would hide them. If such a rule wrote loops that cannot be lowered, it is left out, with a
    warning.
    """
    rules()
    try:
        trace = default_trace(workload.dag, target)
        trace.replay(workload.dag)
        foreign = () if switches.strict() else outside_rules(workload.dag, target)
        if foreign and (why := obstacle(trace, workload, target)):
            _left_out(", ".join(map(described, foreign)), workload.name, why)
            trace = default_trace(workload.dag, target, frozenset(r.name for r in foreign))
    except AutotensorError as error:
        _plain_loops(workload.name, f"{type(error).__name__}: {error.what}")
        return Trace()
    if workload.at_greatest is workload:
        return trace
    over_range = trace if foreign else trace_over_range(workload.dag, target)
    if not obstacle(over_range, workload, target):
        return over_range
    why = obstacle(trace, workload, target)
    if not why:
        return trace
    for sketch in generate(workload.dag, target):
        other = sketch.fill(sketch.defaults())
        if not obstacle(other, workload, target):
            return other
    _plain_loops(workload.name, why)
    return Trace()


def obstacle(trace: Trace, workload: Workload, target: Target) -> str:
    """Why a trace cannot be lowered with the symbols of a workload; "" if it can."""
    return kept_obstacle(trace, workload, target, default_cache())


@lru_cache(maxsize=256)
def _left_out(rule: str, name: str, why: str) -> None:
    log.warn(
        f"Sketch rule {rule} writes a schedule of {name!r} that cannot be lowered ({why}); it is left out."
    )


@lru_cache(maxsize=256)  # one warning for each kernel and reason
def _plain_loops(name: str, why: str) -> None:
    log.warn(
        f"The default schedule of {name!r} cannot be used ({why}); the kernel gets plain loops, which are "
        "right, and slower. Please report this."
    )
