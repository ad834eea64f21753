"""How good the predictions for one task's candidates are: their order, the top candidates, and the predicted
errors.

scores(prediction, seconds)      for candidates that were all measured
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

EQUAL = 0.02  # relative difference of times below which the order does not count: a trial's noise
TOP = 0.01  # the share of a pool that counts as its top
LOOKED_AT = 16  # the top should be among this many first candidates, ordered by prediction
LARGE = 32  # least size of a pool for this score
INTERVAL = 1.645  # the interval of 90 % has this many standard deviations on either side


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one task; NaN if a score is not defined."""

    spearman: float
    pairs: float  # share of pairs in the right order
    recall: float  # share of the top 1 % that is among the first 16
    regret_1: float  # how much slower than the pool's best the first predicted candidate is
    regret_4: float
    regret_8: float
    regret_16: float
    error: float  # median of |log(measured / predicted)|, after the task's level is subtracted
    inside: float  # share of measurements inside their 90 % interval, after the task's level is subtracted


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
    """Spearman's rank correlation; NaN if one side is constant."""
    found = spearman(predicted.tolist(), seconds.tolist())
    return nan if found is None else found


def pairs_in_order(predicted: Floats, seconds: Floats) -> float:
    """The share of pairs in the right order, among the pairs that differ by more than noise."""
    a, b = np.triu_indices(len(seconds), 1)
    differ = np.abs(np.log(seconds[a] / seconds[b])) > EQUAL
    right = (predicted[a] < predicted[b]) == (seconds[a] < seconds[b])
    return float(right[differ].mean()) if differ.any() else nan


def recall(predicted: Floats, seconds: Floats) -> float:
    """The share of the fastest 1 % (at least one candidate) that is among the first 16 predicted."""
    top = np.argsort(seconds, kind="stable")[: max(1, ceil(TOP * len(seconds)))]
    return float(np.isin(top, np.argsort(predicted, kind="stable")[:LOOKED_AT]).mean())


def regret(predicted: Floats, seconds: Floats, count: int) -> float:
    """How much slower than the best, relatively, the best of the first `count` predicted candidates is.

    >>> round(regret(np.array([1.0, 2.0, 3.0]), np.array([5.0, 4.0, 3.0]), 2), 3)
    0.333
    """
    return float(seconds[np.argsort(predicted, kind="stable")[:count]].min() / seconds.min() - 1.0)


def mean_scores(found: Sequence[Scores]) -> dict[str, float]:
    """The means over tasks. A task for which a score is NaN does not count in this score's mean."""
    out = {}
    for f in fields(Scores):
        values = np.asarray([getattr(s, f.name) for s in found])
        known = values[np.isfinite(values)]
        out[f.name] = float(known.mean()) if len(known) else nan
    return out
