"""How good predictions of one task's candidates are: in order, at the top, and in their own doubts.

scores(prediction, seconds)      of candidates that were all measured
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import ceil, nan

import numpy as np
import numpy.typing as npt

from autotensor.insight.search_history import spearman
from autotensor.search.score.cost_model import Prediction

Floats = npt.NDArray[np.float64]

EQUAL = 0.02  # relative difference of times below which no order is asked for: noise of a trial
TOP = 0.01  # share of a pool that is its top
LOOKED_AT = 16  # candidates in which the top should be
LARGE = 32  # smaller pools do not say whether it is
INTERVAL = 1.645  # standard deviations on either side that hold 90 %


@dataclass(frozen=True, slots=True)
class Scores:
    """Of one task; NaN where it cannot be said."""

    spearman: float
    pairs: float  # share of pairs in the right order
    recall: float  # of the top 1 %, among the first 16
    regret_1: float  # how much slower than the best of the pool the best of the first is
    regret_4: float
    regret_8: float
    regret_16: float
    error: float  # median of |log(measured / predicted)|, less the task's level
    inside: float  # share of measurements inside of their 90 % interval, less the task's level


def scores(p: Prediction, seconds: Floats) -> Scores:
    off = np.log(seconds) - p.mean
    off = off - np.median(off)
    return Scores(
        correlation(p.mean, seconds),
        pairs_in_order(p.mean, seconds),
        recall(p.mean, seconds) if len(seconds) >= LARGE else nan,
        *(regret(p.mean, seconds, k) for k in (1, 4, 8, 16)),
        float(np.median(np.abs(off))),
        float(np.mean(np.abs(off) <= INTERVAL * p.spread)),
    )


def correlation(predicted: Floats, seconds: Floats) -> float:
    """Spearman's; NaN where one of them is constant."""
    found = spearman(predicted.tolist(), seconds.tolist())
    return nan if found is None else found


def pairs_in_order(predicted: Floats, seconds: Floats) -> float:
    """Share of the pairs that differ by more than noise."""
    a, b = np.triu_indices(len(seconds), 1)
    differ = np.abs(np.log(seconds[a] / seconds[b])) > EQUAL
    right = (predicted[a] < predicted[b]) == (seconds[a] < seconds[b])
    return float(right[differ].mean()) if differ.any() else nan


def recall(predicted: Floats, seconds: Floats) -> float:
    """Share of the fastest 1 % (at least one) that are among the first 16 predicted."""
    top = np.argsort(seconds, kind="stable")[: max(1, ceil(TOP * len(seconds)))]
    return float(np.isin(top, np.argsort(predicted, kind="stable")[:LOOKED_AT]).mean())


def regret(predicted: Floats, seconds: Floats, count: int) -> float:
    """Relative to the best, how much slower the best of the first `count` predicted is.

    >>> round(regret(np.array([1.0, 2.0, 3.0]), np.array([5.0, 4.0, 3.0]), 2), 3)
    0.333
    """
    return float(seconds[np.argsort(predicted, kind="stable")[:count]].min() / seconds.min() - 1.0)


def mean_scores(found: Sequence[Scores]) -> dict[str, float]:
    """Means over tasks; tasks of which a score says nothing are left out of it."""
    out = {}
    for f in fields(Scores):
        values = np.asarray([getattr(s, f.name) for s in found])
        known = values[np.isfinite(values)]
        out[f.name] = float(known.mean()) if len(known) else nan
    return out
