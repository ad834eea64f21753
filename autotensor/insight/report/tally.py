"""Totals of a run's trials: outcomes by maker, failures by signature, noise.

               new best   OK   REJECTED   WRONG_RESULT
    drafted           6   40          9              1      one Cell for each number that is not 0
    descent          12   31          2

Failures are grouped by status and error signature. Noise is measured from the samples and from the reference
kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median, quantiles

from autotensor.insight.search_history import UNNAMED
from tuning_db.exchange.tried import Tried
from tuning_db.records import Status

NEW_BEST = "new best"  # faster than all earlier trials of its task, and not the first one
GONE = "no rule of today"
OUTCOMES = (NEW_BEST, *(s.value for s in Status))  # in the order in which they are shown
# upper ends of the classes of spreads; one more class has no upper end
SPREADS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
STRETCHES = 60  # the run is divided into this many parts; the reference's times are summarised for each part


@dataclass(frozen=True, slots=True)
class Cell:
    """The number of trials of one maker with one outcome."""

    kind: str
    outcome: str  # a status, or NEW_BEST in place of OK
    count: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Trials without a time that share a status and an error signature."""

    status: str
    signature: str
    count: int
    example: int  # the first such trial
    tasks: tuple[str, ...]  # names of the tasks, the most affected one first


@dataclass(frozen=True, slots=True)
class Drift:
    """Times of the reference kernel in a part of the run, as multiples of its median."""

    first: int  # the first trial of the part; `last` is the last one
    last: int
    low: float  # a tenth of the times is below this
    middle: float
    high: float  # a tenth of the times is above this


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of the run's measurements."""

    spread: float | None  # median over trials of (slowest - fastest) / median of a trial's samples
    spreads: tuple[int, ...]  # number of trials in each class of spread; the classes end at SPREADS
    drift: tuple[Drift, ...]
    conditions: Mapping[str, int]  # number of trials that were not rejected, by the machine's other load


def outcomes(rows: Sequence[Tried], kind: Callable[[Tried], str]) -> tuple[Cell, ...]:
    """Outcomes of the trials of every kind. Kinds are in order of appearance."""
    best: dict[str, float] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for t in rows:
        outcome = t.status.value
        if t.verified and t.median_s is not None and t.median_s < best.get(t.workload, inf):
            outcome = NEW_BEST if t.workload in best else outcome
            best[t.workload] = t.median_s
        counts[kind(t), outcome] += 1
    return tuple(Cell(*key, n) for key, n in counts.items())


def maker(t: Tried) -> str:
    return t.made_by or UNNAMED


def failures(rows: Sequence[Tried], names: Mapping[str, str]) -> tuple[Failure, ...]:
    """Failures, the most frequent first. Trials that were rejected without a run are included."""
    groups: dict[tuple[str, str], list[Tried]] = {}
    for t in rows:
        if t.status is not Status.OK:
            groups.setdefault((t.status.value, t.signature), []).append(t)
    found = [
        Failure(status, signature, len(group), group[0].id, _most(names[t.workload] for t in group))
        for (status, signature), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda f: (-f.count, f.example)))


def _most(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name, _ in Counter(names).most_common())


def noise(rows: Sequence[Tried]) -> Noise:
    spreads = [t.spread for t in rows if t.spread is not None]
    classes = [0] * (len(SPREADS) + 1)
    for s in spreads:
        classes[sum(s >= end for end in SPREADS)] += 1
    met = (t for t in rows if t.status is not Status.REJECTED)
    conditions = Counter(t.conditions or "not recorded" for t in met)
    return Noise(median(spreads) if spreads else None, tuple(classes), _drift(rows), dict(conditions))


def _drift(rows: Sequence[Tried]) -> tuple[Drift, ...]:
    """The reference's drift. Each task has its own reference, so times are divided by the task's median."""
    timed = [t for t in rows if t.reference_s]
    of_task: dict[str, list[float]] = {}
    for t in timed:
        of_task.setdefault(t.workload, []).append(t.reference_s or 0.0)
    usual = {workload: median(seconds) for workload, seconds in of_task.items()}
    size = max(2, -(-len(timed) // STRETCHES))
    found = []
    for n in range(0, len(timed) - 1, size):
        stretch = timed[n : n + size]
        ratios = [(t.reference_s or 0.0) / usual[t.workload] for t in stretch]
        tenths = quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else ratios
        found.append(Drift(stretch[0].id, stretch[-1].id, tenths[0], median(ratios), tenths[-1]))
    return tuple(found)
