"""Which candidates are worth a measurement: those that may well be better than the best, and differ from one
another.

    prediction ──expected improvement × P(valid)──▶ order ──diverse──▶ batch

Expected improvement is that of the logarithm of seconds over the best told: a candidate that is predicted a
little slower but very uncertain may come before one that is surely as fast as what is known.
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

FAMILY_SHARE = 3  # one of so many in a batch at most is of one family

T = TypeVar("T")
_erf = np.frompyfunc(erf, 1, 1)


def expected_improvement(p: Prediction, best_seconds: float) -> Floats:
    """By how much each candidate is expected to lower the logarithm of the best time; what is slower, by 0.

    With nothing told yet (an infinite best) the best is the model's own prediction.
    """
    if not len(p):
        return np.zeros(0)
    best = log(best_seconds) if best_seconds < inf else float(p.mean.min())
    z = (best - p.mean) / p.spread
    density = np.exp(-0.5 * z * z) / sqrt(2.0 * pi)
    expected = np.maximum(z * below(best, p.mean, p.spread) + density, 0.0)
    return np.asarray(p.valid * p.spread * expected, dtype=np.float64)


def below(goal: float | Floats, mean: Floats, spread: Floats) -> Floats:
    """Probability that what is normal with this mean and spread is below the goal."""
    z = (goal - mean) / spread
    return 0.5 * (1.0 + np.asarray(_erf(z / sqrt(2.0)), dtype=np.float64))


def order(p: Prediction, best_seconds: float) -> npt.NDArray[np.int64]:
    """Numbers of candidates, most promising first; of those that promise nothing, the fastest first."""
    return np.lexsort((p.mean, -expected_improvement(p, best_seconds))).astype(np.int64)


def diverse(
    ranking: Sequence[T],
    new: Callable[[T], bool],
    family: Callable[[T], Hashable],
    kind: Callable[[T], Hashable],
    owed: Collection[Hashable],
    count: int,
) -> Iterator[T]:
    """Candidates in the order of the ranking that are new, of one family a third of `count` at most.

    Before them, one of each kind that is owed a place, while these take no more than half. `new` is asked
    when a candidate's turn comes, so that it may depend on those before.
    """
    limit = max(1, count // FAMILY_SHARE)
    families: Counter[Hashable] = Counter()
    first = _firsts(ranking, kind, set(owed))[: count // 2]
    for n in (*first, *(n for n in ranking if n not in first)):
        if families[family(n)] < limit and new(n):
            families[family(n)] += 1
            yield n


def _firsts(ranking: Sequence[T], kind: Callable[[T], Hashable], owed: set[Hashable]) -> list[T]:
    """The first of every kind."""
    found: dict[Hashable, T] = {}
    for n in ranking:
        if len(found) == len(owed):
            break
        if kind(n) in owed:
            found.setdefault(kind(n), n)
    return list(found.values())
