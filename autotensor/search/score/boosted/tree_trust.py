"""Trust: the weight of trees that were fitted to some workloads in another one, without rows of it.

    rows ──PARTS, whole workloads each──▶ trees of the others predict each part ──▶ their weight,
                                                                                    and the error that is left

The prior's error in one computation may be that in the next, or not: a log of a hundred of them shows it, one
of five shows little. So trees predict workloads that they were not fitted to. The weight is the one with the
least squared error, and the least of those that leave out one workload more: none decides it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotensor.search.score.cost_model import PRIOR_SPREAD, Floats

PARTS = 4  # each takes a fit of one booster: together as long as an ensemble

Rows = npt.NDArray[np.bool_]  # which of all


@dataclass(frozen=True, slots=True)
class Trust:
    """In trees, about a workload that they do not know."""

    weight: float = 0.0  # 0 to 1: by which what they say is multiplied
    spread: float = PRIOR_SPREAD  # of the logarithm of seconds around that, within the workload


def learned(
    y: Floats, weights: Floats, groups: npt.NDArray[np.str_], say: Callable[[Rows, Rows], Floats]
) -> Trust:
    """The trust in predictions of the residuals y; none where there is nothing to learn it from.

    Only differences within a group count, and each group as much as another.
    say: predictions of a fit to the first rows for the second
    """
    names, number, rows = np.unique(groups, return_inverse=True, return_counts=True)
    if np.count_nonzero(rows > 1) < 2:  # a row alone differs from nothing
        return Trust()
    said = np.zeros(len(y))
    for part in range(min(PARTS, len(names))):
        mine = number % PARTS == part
        said[mine] = say(~mine, mine)
    share = weights / np.bincount(number, weights)[number]
    y, said = (a - np.bincount(number, share * a)[number] for a in (y, said))
    right, square, wrong = (np.bincount(number, share * a) for a in (said * y, said * said, y * y))
    weight = min(_ratio(right.sum() - right[n], square.sum() - square[n]) for n in range(len(names)))
    missed = wrong - 2.0 * weight * right + weight * weight * square
    return Trust(weight, float(np.sqrt(missed[rows > 1].mean())))


def _ratio(right: float, square: float) -> float:
    """Between 0 and 1; 0 where nothing was said."""
    return min(1.0, max(0.0, right / square)) if square > 0.0 else 0.0
