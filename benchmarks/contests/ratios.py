"""Ratios of times, with bounds that say how certain they are.

    ratio([peer's seconds, one per process], [ours]) ──▶ Ratio(value=1.21, lower=1.17, upper=1.25)

Processes are paired: the n-th processes of both ran in turns in the same minutes. The bounds are one-sided 95
% bounds of the mean of log(peer / ours), by Student's t over processes. Samples inside a process are not
independent, because they share its memory. With one process there are no bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import fmean, stdev

# one-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom; above 30 the value for 30 is used
T95 = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
)  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """peer's time / ours: above 1, ours is faster."""

    value: float
    lower: float
    upper: float

    @property
    def verdict(self) -> str:
        """ "won" or "lost" if the bounds allow no other answer, else "even"."""
        return "won" if self.lower > 1 else "lost" if self.upper < 1 else "even"


def ratio(peer: Sequence[float], mine: Sequence[float]) -> Ratio:
    """The geometric mean of the paired ratios, with its bounds.

    >>> ratio([2.0], [1.0])
    Ratio(value=2.0, lower=0.0, upper=inf)
    """
    logs = [log(p / m) for p, m in zip(peer, mine, strict=True)]
    middle, n = fmean(logs), len(logs)
    if n < 2:
        return Ratio(exp(middle), 0.0, inf)
    reach = T95[min(n - 1, len(T95)) - 1] * stdev(logs) / sqrt(n)
    return Ratio(exp(middle), exp(middle - reach), exp(middle + reach))


def geometric_mean(values: Iterable[float]) -> float:
    """
    >>> round(geometric_mean([1.0, 4.0]), 6)
    2.0
    """
    return exp(fmean(log(v) for v in values))
