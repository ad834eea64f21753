"""Trust: the weight of trees, fitted to some workloads, for a workload without rows.

    rows ──PARTS, whole workloads each──▶ trees of the others predict each part ──▶ their weight,
                                                                                    and the remaining error

Does the prior's error in one computation predict its error in the next one? A log of a hundred workloads can
show this, but a log of five hardly can. So trees predict the workloads that they were not fitted to. The
weight is the factor on these predictions that gives the least squared error. This factor is computed for all
workloads but one, with each workload left out in turn. The smallest of these factors is the weight, so no
single workload can raise it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotensor.search.score.cost_model import PRIOR_SPREAD, Floats

PARTS = 4  # each part needs a fit of one booster; all fits together take as long as an ensemble

Rows = npt.NDArray[np.bool_]  # which of all rows


@dataclass(frozen=True, slots=True)
class Trust:
    """How far trees can be trusted for a workload without rows."""

    weight: float = 0.0  # 0 to 1: factor on the trees' predictions
    spread: float = PRIOR_SPREAD  # standard deviation of the remaining error of log(seconds)


def learned(
    y: Floats, weights: Floats, groups: npt.NDArray[np.str_], say: Callable[[Rows, Rows], Floats]
) -> Trust:
    """The trust in predictions of the residuals y. The weight is 0 if fewer than two groups have two rows.

    Only differences within a group count, and every group has the same weight.
    say: fits trees to the first rows, and predicts the second rows.
    """
    names, number, rows = np.unique(groups, return_inverse=True, return_counts=True)
    if np.count_nonzero(rows > 1) < 2:  # a single row has no difference to others
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
    """right / square, clipped to 0 … 1; 0 if all predictions are 0."""
    return min(1.0, max(0.0, right / square)) if square > 0.0 else 0.0
