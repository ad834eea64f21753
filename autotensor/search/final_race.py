"""The final race: a task's best candidates and its default are measured again together before use.

    trials of this run ──top 5──┐
    the log's best ─────────────┼──▶ one batch, more samples, side by side ──▶ a session of the log
    the default ────────────────┘

The smallest of a hundred noisy medians was lucky as well as fast. Only times of one race may be compared. The
winner is chosen when it is needed (`resolve.race_order`), by the latest race, which may be a race inside a
model. If every contestant has already been in a race, nothing is measured. A fleet repeats the race on
another machine of its class. Both races are kept, and a warning says if their winners differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from autotensor.base import log
from autotensor.base.errors import MeasureError
from autotensor.resolve import Metric, best_by, decide, last_race, median_s, race_order
from autotensor.schedule.trace import Trace
from autotensor.search.journal import Journal
from autotensor.search.measuring.measure_request import Measurer, MeasureResult
from autotensor.search.measuring.race_rule import FINAL_SAMPLES
from autotensor.search.races import contestants
from autotensor.search.task import Task
from tuning_db import RACES, TrialStore
from tuning_db.answers import distinct_traces
from tuning_db.records import TrialRecord

# contestants besides the default: of 200 trials, about a dozen are as fast as the best within the noise
CHALLENGERS = 5
TIMING_S = 1.0  # seconds of timing in one race; building and checking take about as long
LEAST_SAMPLE_S = 0.002


@dataclass(frozen=True, slots=True)
class Final:
    """The outcome of a race. The winner is the default, unless a challenger was faster beyond the noise."""

    winner: TrialRecord
    seconds: float
    default_s: float | None  # None: the default does not work
    contestants: tuple[TrialRecord, ...]


def final_race(
    task: Task,
    default_hash: str,
    journal: Journal,
    measurer: Measurer,
    timing_s: float = TIMING_S,
    metric: Metric = median_s,
) -> Final | None:
    """Races a task's best candidates, unless they have been raced before. Returns None if there is only one
    candidate to choose."""
    place = (task.workload.key, task.target.key(), journal.session.machine)
    mine = journal.store.trials(*place[:2], session=journal.session.id)
    known = known_best(journal.store, place, default_hash, metric)
    entered = entrants(mine, default_hash, known, metric)
    if len(entered) < 2:
        return None
    raced = last_race(metric, journal.store, place)
    hashes = {c.trace_hash for c in entered}
    if not hashes <= met(raced, hashes, *place, journal.store, metric):
        longest = sum(max(LEAST_SAMPLE_S, c.median_s or 0.0) for c in entered)
        repeat = max(FINAL_SAMPLES[0], min(FINAL_SAMPLES[1], int(timing_s / longest)))
        traces = [Trace.from_json(c.trace) for c in entered]
        results = measurer.submit(task.workload, traces, repeat).result()
        raced = journal.race(entered, results)
        decide(journal.store, place, default_hash)
        again = repeated(task, traces, repeat, measurer)
        if again is not None:
            first, raced = raced, journal.race(entered, again, repeated=True)
            decide(journal.store, place, default_hash)
            warn_if_differing(
                task, race_order(first, default_hash, metric), race_order(raced, default_hash, metric)
            )
    order = race_order(raced, default_hash, metric)
    if not order:
        return None
    default_s = next((metric(r) for r in order if r.trace_hash == default_hash), None)
    return Final(order[0], metric(order[0]), default_s, tuple(order))


def repeated(
    task: Task, traces: Sequence[Trace], repeat: int, measurer: Measurer
) -> Sequence[MeasureResult] | None:
    """The results of the same race on another machine, if the measurer has one; else None."""
    ask = getattr(measurer, "elsewhere", None)
    asked = None if ask is None else ask(task.workload, traces, repeat)
    try:
        return None if asked is None else asked.result()
    except MeasureError as error:  # the first race remains valid
        log.warn(f"the final race of {task.label} was not repeated: {error.what}")
        return None


def warn_if_differing(task: Task, first: Sequence[TrialRecord], again: Sequence[TrialRecord]) -> None:
    """Warns if two machines of a class have different winners."""
    if first and again and first[0].trace_hash != again[0].trace_hash:
        log.warn(
            f"two machines of a class disagree about {task.label}: trace {first[0].trace_hash[:8]} won on "
            f"host {first[0].host}, {again[0].trace_hash[:8]} on host {again[0].host}; both races are kept."
        )


def met(
    last: Sequence[TrialRecord],
    asked: Collection[str],
    workload_key: str,
    target_key: str,
    machine: str,
    store: TrialStore,
    metric: Metric,
) -> frozenset[str]:
    """The given traces that need not race again: those of the task's last race on a machine. If the
    metric is the median, those of any race count, because a trace that is missing from the last race had lost
    an earlier one."""
    if metric is not median_s:
        return frozenset(r.trace_hash for r in last)
    return store.met(workload_key, target_key, machine, asked, RACES)


def known_best(
    store: TrialStore, place: tuple[str, str, str], default_hash: str, metric: Metric
) -> Sequence[TrialRecord]:
    """The log's best trials. If the metric is not the median, the winner of the last race is added, because
    that race was decided by medians."""
    best = best_by(metric, store, place)
    if metric is median_s:
        return best
    return (*best, *race_order(store.last_race(*place), default_hash)[:1])


def entrants(
    run: Iterable[TrialRecord],
    default_hash: str,
    known: Sequence[TrialRecord],
    metric: Metric = median_s,
) -> tuple[TrialRecord, ...]:
    """The verified trials that are raced: the best of a run's trials of a task, the task's default, and the
    best trials of the log."""
    mine = sorted((t for t in run if t.verified), key=lambda t: (metric(t), t.id or 0))
    return distinct_traces(
        (*contestants(mine, default_hash, CHALLENGERS + 1), *known), CHALLENGERS + 1 + len(known)
    )
