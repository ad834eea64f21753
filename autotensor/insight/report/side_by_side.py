"""Two runs beside each other: the tasks that both have, and which run is surely faster.

    a  ├──●──┤                  the intervals are those of each winner's time, as its race gave them
    b          ├──●──┤   ──▶    apart, and by more than LEAST_GAIN_APART: slower

The runs were not measured side by side, so a difference below `LEAST_GAIN_APART` says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.insight.report.figures import Figures
from autotensor.insight.report.task_figures import TaskFigures
from autotensor.resolve import LEAST_GAIN_APART

FASTER, SLOWER, ALIKE = "faster", "slower", "no difference shown"


@dataclass(frozen=True, slots=True)
class Pair:
    """A task in both runs: seconds of its winners, once; the ratio is b / a."""

    task: str
    workload: str
    a_s: float
    b_s: float
    ratio: float
    verdict: str  # of the second run


def pairs(a: Figures, b: Figures) -> tuple[Pair, ...]:
    """In the order of the first run's tasks."""
    theirs = {t.workload: t for t in b.tasks}
    found = []
    for mine in a.tasks:
        other = theirs.get(mine.workload)
        if other is not None and mine.result is not None and other.result is not None:
            x, y = mine.result.winner_s, other.result.winner_s
            found.append(Pair(mine.name, mine.workload, x, y, y / max(x, 1e-12), _verdict(mine, other)))
    return tuple(found)


def _verdict(a: TaskFigures, b: TaskFigures) -> str:
    """What the second is."""
    (a_low, a_high), (b_low, b_high) = interval(a), interval(b)
    if b_high < a_low / (1 + LEAST_GAIN_APART):
        return FASTER
    if b_low > a_high * (1 + LEAST_GAIN_APART):
        return SLOWER
    return ALIKE


def interval(t: TaskFigures) -> tuple[float, float]:
    """Bounds of the winner's seconds. Raises ValueError for a task without a result."""
    r = t.result
    if r is None:
        raise ValueError(f"{t.name} has no time")
    if r.default_s is None or r.lower is None or r.upper is None:
        return r.winner_s, r.winner_s
    return min(r.winner_s, r.default_s * r.lower), max(r.winner_s, r.default_s * r.upper)


__all__ = ["Pair", "pairs"]
