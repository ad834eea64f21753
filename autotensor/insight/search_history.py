"""The history of a search, from the log: how the best time fell, and how good the predictions were.

    history(store, workload, place) ──▶ points in the order of measurement
    best_so_far([3.0, None, 2.0]) ──▶ [3.0, 3.0, 2.0]

Two kinds of rows are left out: races, which measure known candidates again, and candidates that were rejected
without a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from autotensor.resolve import safe_default
from autotensor.runtime.place import Place
from autotensor.search.machine.calibration import known_rates
from autotensor.search.score.roofline import lower_bound
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.generate import generate
from tuning_db import RACES, TrialStore
from tuning_db.records import Status

Floats = npt.NDArray[np.float64]
UNNAMED = "unknown"
FEWEST = 5  # a rank correlation needs at least this many predicted trials of a task


@dataclass(frozen=True, slots=True)
class Point:
    """One trial."""

    trial: int  # the trial's number in the log
    seconds: float | None  # None: the trial failed
    predicted_s: float | None  # None: there was no prediction
    made_by: str


@dataclass(frozen=True, slots=True)
class History:
    """All trials of a task on one machine, in order."""

    name: str
    weight: float  # how often a model runs it
    points: tuple[Point, ...]
    default_s: float | None  # the default's time, if the default is among the trials
    bound_s: float | None  # the lower bound of all schedules' times; None: the machine was never calibrated
    last: datetime | None = None  # when the newest trial was measured

    @property
    def measured(self) -> tuple[Point, ...]:
        return tuple(p for p in self.points if p.seconds is not None)


def history(
    store: TrialStore, workload: Workload, place: Place, name: str = "", weight: float = 1.0
) -> History:
    """The history of a task from the log; it has no points if the log has no trials of the task."""
    races = {s.id for s in store.sessions(RACES)}
    rows = [
        r
        for r in store.trials(*place.task(workload.key))
        if r.session not in races and r.status is not Status.REJECTED
    ]
    target = place.target
    default = safe_default(workload, target).hash
    defaults = [r.median_s for r in rows if r.median_s is not None and r.trace_hash == default]
    rates = known_rates(store, place.fingerprint, target)
    cold = not any(s.residency == "hot" for r in rows for s in r.samples)
    bound = lower_bound(Task(workload, target), rates, cold=cold, sketches=generate(workload.dag, target))
    points = tuple(Point(r.id or 0, r.median_s, r.predicted, r.made_by or UNNAMED) for r in rows)
    default_s = defaults[0] if defaults else None
    last = max((r.created for r in rows), default=None)
    return History(name or workload.name, weight, points, default_s, None if rates.guessed else bound, last)


def best_so_far(seconds: Sequence[float | None]) -> list[float | None]:
    """For each position, the least of all times up to it.

    >>> best_so_far([None, 3.0, None, 2.0, 4.0])
    [None, 3.0, 3.0, 2.0, 2.0]
    """
    out: list[float | None] = []
    best: float | None = None
    for t in seconds:
        if t is not None and (best is None or t < best):
            best = t
        out.append(best)
    return out


@dataclass(frozen=True, slots=True)
class Fall:
    """How a model's time fell: the total time of its kernels after each trial that made the model faster."""

    trials: tuple[int, ...]  # numbers of these trials, counted over all tasks
    seconds: tuple[float, ...]
    made_by: tuple[str, ...]
    start_s: float  # the time without tuning
    bound_s: float | None
    count: int  # number of all trials


def fall(tasks: Sequence[History]) -> Fall | None:
    """The time of a model's kernels while its tasks were tuned; None unless every task has a first time.

    Until a task has a better time, it counts with the default's time, or with its first time if the default
    was never measured.
    """
    best = {n: _first(t) for n, t in enumerate(tasks)}
    start = sum(t.weight * (best[n] or 0.0) for n, t in enumerate(tasks))
    if not tasks or any(s is None for s in best.values()):
        return None
    order = sorted((p.trial, n, p) for n, t in enumerate(tasks) for p in t.points)
    trials, seconds, made_by, total = [], [], [], start
    for number, (_, n, p) in enumerate(order, start=1):
        known = best[n]
        if p.seconds is not None and known is not None and p.seconds < known:
            total -= tasks[n].weight * (known - p.seconds)
            best[n] = p.seconds
            trials.append(number)
            seconds.append(total)
            made_by.append(p.made_by)
    bounds = [t.bound_s for t in tasks]
    bound = None if None in bounds else sum(t.weight * (t.bound_s or 0.0) for t in tasks)
    return Fall(tuple(trials), tuple(seconds), tuple(made_by), start, bound, len(order))


def _first(t: History) -> float | None:
    if t.default_s is not None:
        return t.default_s
    return next((p.seconds for p in t.points if p.seconds is not None), None)


def rank_correlation(t: History) -> float | None:
    """Spearman's correlation of predicted and measured times of one task; None if the task has too few
    trials.
    """
    pairs = [(p.predicted_s, p.seconds) for p in t.measured if p.predicted_s is not None]
    if len(pairs) < FEWEST:
        return None
    return spearman([a for a, _ in pairs], [b for _, b in pairs if b is not None])


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's rank correlation; ties share their ranks. None if `a` or `b` is constant.

    >>> spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return round(float(x @ y) / scale, 12) if scale > 0.0 else None


def _ranks(values: Sequence[float]) -> Floats:
    _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts).astype(np.float64)
    return np.asarray((last - (counts - 1) / 2.0)[place.reshape(-1)], dtype=np.float64)
