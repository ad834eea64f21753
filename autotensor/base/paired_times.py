"""Compares the times of two functions that were timed alternately, and says how certain the result is.

    mine    0.90 0.92 1.17 0.91 …          a disturbance in a round affects both times, so the ratio
    theirs  1.00 1.02 1.30 1.01 …          of each round counts
    ratios  0.90 0.90 0.90 0.90 …  ──▶  Paired(middle=0.90, lower=0.90, upper=0.90)

The bounds are those of Wilcoxon's signed-rank test on the logarithms of the ratios. They are right for any
noise whose effect would be reversed if the two functions changed places, outliers included.

Functions that were not timed alternately share no rounds: `apart` compares every time of one with every time
of the other. Its bounds are those of the rank-sum test, which are right for any noise that is the same for
both.
Source: Hodges and Lehmann, Estimates of Location Based on Rank Tests (1963).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import exp, floor, log
from statistics import median

# The risk that the true ratio is beyond one bound. With five challengers this happens in one of twenty races.
RISK = 0.01
# With fewer than seven pairs, no bound among the ratios has so little risk. Then the bound lies beyond the
# outermost ratio, by this many times the range of the ratios. For normal noise, Student's t gives the same.
_BEYOND = {2: 19.4, 3: 1.88, 4: 0.6, 5: 0.22, 6: 0.04}
_EXACT = 40  # up to this many pairs the test's distribution is counted; with more, it is almost normal
_NORMAL = 2.326  # standard deviations for RISK
_LEAST = 1e-12  # seconds; no clock measures less


@dataclass(frozen=True, slots=True)
class Paired:
    """mine / theirs: the middle of the ratios, and one-sided bounds."""

    middle: float
    lower: float
    upper: float

    def faster_than(self, share: float) -> bool:
        """Whether mine surely takes less time than theirs, and less than `share` of it in the middle."""
        return self.upper < 1.0 and self.middle < share


def paired(mine: Sequence[float], theirs: Sequence[float]) -> Paired:
    """Compares the times of two functions by round; surplus times of the longer sequence do not count.

    >>> paired([0.9, 1.8, 0.9], [1.0, 2.0, 1.0])
    Paired(middle=0.9, lower=0.9, upper=0.9)

    Raises ValueError if there is no pair.
    """
    logs = [log(max(m, _LEAST) / max(t, _LEAST)) for m, t in zip(mine, theirs, strict=False)]
    if not logs:
        raise ValueError("times that share no round cannot be compared")
    if len(logs) == 1:
        return Paired(_ratio(logs[0]), 0.0, float("inf"))
    means = sorted((a + b) / 2 for n, a in enumerate(logs) for b in logs[n:])  # Walsh's averages
    beyond = _BEYOND.get(len(logs), 0.0) * (means[-1] - means[0])
    rank = 0 if len(logs) in _BEYOND else _rank(len(logs))
    return Paired(_ratio(median(means)), _ratio(means[rank] - beyond), _ratio(means[-1 - rank] + beyond))


def apart(mine: Sequence[float], theirs: Sequence[float]) -> Paired:
    """Compares the times of two functions that were not timed alternately, by the ratios of all their pairs.

    With too few times (four and four, say) the bounds are 0 and infinity.

    >>> apart([1.03, 1.04, 1.03, 1.05, 1.03], [1.0, 1.0, 1.0, 1.0, 1.0])
    Paired(middle=1.03, lower=1.03, upper=1.05)

    Raises ValueError if one of them has no times.
    """
    if not mine or not theirs:
        raise ValueError("a kernel without times cannot be compared")
    ratios = sorted(max(m, _LEAST) / max(t, _LEAST) for m in mine for t in theirs)
    mean = len(ratios) / 2
    deviation = (len(ratios) * (len(mine) + len(theirs) + 1) / 12) ** 0.5
    rank = floor(mean - _NORMAL * deviation)
    lower, upper = (ratios[rank], ratios[-1 - rank]) if rank >= 0 else (0.0, float("inf"))
    return Paired(median(ratios), lower, upper)


@cache
def _rank(pairs: int) -> int:
    """Position of the lower bound among the averages: the test's critical value for RISK."""
    if pairs > _EXACT:
        mean, deviation = pairs * (pairs + 1) / 4, (pairs * (pairs + 1) * (2 * pairs + 1) / 24) ** 0.5
        return int(mean - _NORMAL * deviation)
    counts = [1]  # ways to choose among the ranks 1 … n, by their sum
    for n in range(1, pairs + 1):
        counts = [
            (counts[s] if s < len(counts) else 0) + (counts[s - n] if s >= n else 0)
            for s in range(len(counts) + n)
        ]
    return max(0, bisect_right(list(accumulate(counts)), RISK * 2**pairs) - 1)


def _ratio(logarithm: float) -> float:
    return float(f"{exp(logarithm):.12g}")


__all__ = ["RISK", "Paired", "apart", "paired"]
