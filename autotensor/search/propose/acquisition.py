"""Chooses candidates to measure: they may well be faster than the best so far, and differ from one another.

    prediction ──expected improvement × P(valid)──▶ order ──diverse──▶ batch

The expected improvement is the decrease of log(seconds), compared with the best candidate so far. So a
candidate with a slightly slower but very uncertain prediction may come before a candidate that is surely as
fast as the best.
Source: Jones, Schonlau, Welch: Efficient global optimization of expensive black-box functions, 1998.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from math import erf, inf, log, pi, sqrt
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from autotensor.search.score.cost_model import Floats, Prediction

FAMILY_SHARE = 3  # at most one in three candidates of a batch belongs to the same family

T = TypeVar("T")
_erf = np.frompyfunc(erf, 1, 1)


def expected_improvement(p: Prediction, best_seconds: float) -> Floats:
    """The expected decrease of log(best time) by each candidate. A candidate that is slower counts as 0.

    Before the first result (the best is infinite), the best of the model's predictions is used as the best.
    """
    if not len(p):
        return np.zeros(0)
    best = log(best_seconds) if best_seconds < inf else float(p.mean.min())
    z = (best - p.mean) / p.spread
    density = np.exp(-0.5 * z * z) / sqrt(2.0 * pi)
    expected = np.maximum(z * below(best, p.mean, p.spread) + density, 0.0)
    return np.asarray(p.valid * p.spread * expected, dtype=np.float64)


def below(goal: float | Floats, mean: Floats, spread: Floats) -> Floats:
    """Probability that a normal variable with this mean and spread is below the goal."""
    z = (goal - mean) / spread
    return 0.5 * (1.0 + np.asarray(_erf(z / sqrt(2.0)), dtype=np.float64))


def order(p: Prediction, best_seconds: float) -> npt.NDArray[np.int64]:
    """Indices of candidates: the most promising first, then those without promise, the fastest first."""
    return np.lexsort((p.mean, -expected_improvement(p, best_seconds))).astype(np.int64)


def diverse(
    ranking: Sequence[T],
    new: Callable[[T], bool],
    family: Callable[[T], Hashable],
    kind: Callable[[T], Hashable],
    owed: Collection[Hashable],
    count: int,
) -> Iterator[T]:
    """New candidates in the order of the ranking, at most a third of `count` from the same family.

    Before these comes one candidate of each kind in `owed`, in at most half of the batch. `new` is called
    when it is a candidate's turn, so its result may depend on earlier candidates.
    """
    limit = max(1, count // FAMILY_SHARE)
    families: Counter[Hashable] = Counter()
    first = _firsts(ranking, kind, set(owed))[: count // 2]
    for n in (*first, *(n for n in ranking if n not in first)):
        if families[family(n)] < limit and new(n):
            families[family(n)] += 1
            yield n


def _firsts(ranking: Sequence[T], kind: Callable[[T], Hashable], owed: set[Hashable]) -> list[T]:
    """The first candidate of each kind in `owed`."""
    found: dict[Hashable, T] = {}
    for n in ranking:
        if len(found) == len(owed):
            break
        if kind(n) in owed:
            found.setdefault(kind(n), n)
    return list(found.values())
