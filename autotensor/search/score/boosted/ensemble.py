"""Ensemble: boosters fitted to differently weighted rows, and a classifier of candidates that work.

    fit(rows)                labels centred in each workload; BAGS boosters; a classifier if anything failed
    ensemble.predict(…)      mean of the boosters; their differences give the spread
    trust(rows)              how well the boosters predict a workload without rows
    ensemble.at(trust)       the same ensemble, with weaker predictions

Only the stable API of xgboost is used; the import is lazy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.search.score.boosted.tree_trust import Rows, Trust, learned
from autotensor.search.score.cost_model import Floats, Prediction

BAGS = 4
ROUNDS = 60
PARAMETERS: Mapping[str, Any] = {
    "objective": "reg:squarederror",
    "base_score": 0.0,
    "max_depth": 6,
    "eta": 0.15,
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "min_child_weight": 1,
    "lambda": 1.0,
    "tree_method": "hist",
    "max_bin": 64,
    "nthread": 1,  # the cores are busy measuring; one is enough for some thousand rows
    "verbosity": 0,
}
VALID_ROUNDS = 30
VALID_PARAMETERS: Mapping[str, Any] = {
    **PARAMETERS,
    "objective": "binary:logistic",
    "base_score": 0.9,
    "max_depth": 4,
}
LEAST_WEIGHT = 0.1  # of a row, however slow
APART = 1.5  # spread for each standard deviation between the boosters
TOLD = 16  # rows for which it counts that an ensemble held where it was fitted: two batches (chosen, 2026-11)
NOISE = 0.08  # spread that no booster explains, added to that


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """Fitted boosters. A booster's prediction is the sum of its trees and of the same booster in `start`."""

    boosters: tuple[Any, ...]
    levels: Mapping[str, float]  # workload → error of the prior, a logarithm; "": for an unknown workload
    rows: int  # number of rows that it was fitted to
    validity: Any = None  # the classifier; None: nothing failed
    start: Ensemble | None = field(default=None, repr=False)
    share: float = 1.0  # 0 to 1: factor on the predictions of `start`
    weight: float = 1.0  # 0 to 1: factor on all predictions
    noise: float = NOISE  # spread added to that between the boosters

    def at(self, trust: Trust) -> Ensemble:
        """The ensemble for workloads without rows: weaker predictions, larger spread."""
        return replace(self, weight=trust.weight, noise=trust.spread)

    def predict(
        self, features: Floats, prior: Floats, group: str, before: Floats | None = None
    ) -> Prediction:
        """before: the residuals of `start` for these features, if they are known."""
        x = features.astype(np.float32)
        found = self.residuals(x, before)
        level = self.levels.get(group, self.levels[""])
        spread = np.sqrt((APART * found.std(axis=0)) ** 2 + self.noise**2)
        return Prediction(np.log(prior) + level + found.mean(axis=0), spread, self.valid(x))

    def residuals(self, x: npt.NDArray[np.float32], before: Floats | None = None) -> Floats:
        """[boosters, candidates]: logarithm of the factor on the prior, without the level.

        before: the residuals of `start`, if they are known.
        """
        if self.start is not None and before is None:
            before = self.start.residuals(x)
        own = np.asarray([b.inplace_predict(x) for b in self.boosters], dtype=np.float64)
        if before is not None:  # added here: given to a booster as its margin, it costs as much as the trees
            own += self.share * before[np.arange(len(own)) % len(before)]
        return self.weight * own

    def contributions(self, features: Floats) -> Floats:
        """[candidates, features + 1]: what each feature adds to the mean (TreeSHAP); the last column is the
        constant. With the prior and the workload's level these add up to the prediction.
        """
        import xgboost as xgb

        data = xgb.DMatrix(features.astype(np.float32), nthread=1)
        found = np.asarray([b.predict(data, pred_contribs=True) for b in self.boosters], dtype=np.float64)
        mine: Floats = found.mean(axis=0)
        return self.weight * (
            mine if self.start is None else mine + self.share * self.start.contributions(features)
        )

    def valid(self, x: npt.NDArray[np.float32]) -> Floats:
        if self.validity is None:
            return np.ones(len(x)) if self.start is None else self.start.valid(x)
        return 1.0 - self.weight * (1.0 - np.asarray(self.validity.inplace_predict(x), dtype=np.float64))


def fit(
    x: npt.NDArray[np.float32],
    prior: Floats,
    seconds: Floats,
    groups: npt.NDArray[np.str_],
    seed: int,
    start: Ensemble | None = None,
) -> Ensemble | None:
    """An ensemble fitted to these rows; None when all of them failed."""
    import xgboost as xgb

    known = _labelled(x, prior, seconds, groups, start)
    if known is None:
        return None
    data = xgb.QuantileDMatrix(known.x, label=known.labels, max_bin=PARAMETERS["max_bin"], nthread=1)
    boosters = []
    for n in range(BAGS):
        rng = np.random.default_rng((seed, n))
        data.set_weight(known.weights * rng.exponential(size=len(known.y)))
        data.set_base_margin(known.before[n % len(known.before)])
        boosters.append(xgb.train({**PARAMETERS, "seed": seed + n}, data, num_boost_round=ROUNDS))
    validity, worked = None, np.isfinite(seconds)
    if not worked.all():
        data = xgb.QuantileDMatrix(x, label=worked, max_bin=PARAMETERS["max_bin"], nthread=1)
        validity = xgb.train({**VALID_PARAMETERS, "seed": seed}, data, num_boost_round=VALID_ROUNDS)
    return Ensemble(tuple(boosters), known.levels, len(x), validity, start, known.share)


def trust(
    x: npt.NDArray[np.float32],
    prior: Floats,
    seconds: Floats,
    groups: npt.NDArray[np.str_],
    seed: int,
    start: Ensemble | None = None,
) -> Trust:
    """How far an ensemble fitted to these rows can be trusted in a workload that is not among them."""
    import xgboost as xgb

    all_rows = _labelled(x, prior, seconds, groups, start)
    if all_rows is None:
        return Trust()
    x, labels, weights, before = all_rows.x, all_rows.labels, all_rows.weights, all_rows.before.mean(axis=0)

    def say(known: Rows, asked: Rows) -> Floats:
        data = xgb.DMatrix(
            x[known], labels[known], weight=weights[known], base_margin=before[known], nthread=1
        )
        booster = xgb.train({**PARAMETERS, "seed": seed}, data, num_boost_round=ROUNDS)
        return np.asarray(booster.inplace_predict(x[asked], base_margin=before[asked]), dtype=np.float64)

    return learned(all_rows.y, weights, all_rows.groups, say)


@dataclass(frozen=True)
class _Labelled:
    """Rows that worked, and the labels that boosters are fitted to."""

    x: npt.NDArray[np.float32]
    y: Floats  # logarithm of seconds over the prior's
    groups: npt.NDArray[np.str_]
    before: Floats  # [boosters of `start`, rows]: the share of their residuals that holds
    share: float
    labels: Floats
    weights: Floats
    levels: dict[str, float]


def _labelled(
    x: npt.NDArray[np.float32],
    prior: Floats,
    seconds: Floats,
    groups: npt.NDArray[np.str_],
    start: Ensemble | None,
) -> _Labelled | None:
    """None when all failed."""
    worked = np.isfinite(seconds)
    if not worked.any():
        return None
    x, y, groups = x[worked], np.log(seconds[worked] / prior[worked]), groups[worked]
    before, share = np.zeros((1, len(y))), 1.0
    if start is not None:
        before = start.residuals(x)
        share = holds(y, before.mean(axis=0), groups)
        before = share * before
    return _Labelled(x, y, groups, before, share, *centred(y, before.mean(axis=0), seconds[worked], groups))


def holds(y: Floats, said: Floats, groups: npt.NDArray[np.str_]) -> float:
    """The factor on an ensemble's predictions of these rows at which they are nearest to the residuals y in
    each workload, as if TOLD rows had agreed with them before: 0 to 1."""
    _, number = np.unique(groups, return_inverse=True)
    rows = np.bincount(number)[number]
    y, said = (a - np.bincount(number, a / rows)[number] for a in (y, said))
    square = float((said * said).sum())
    if not square:
        return 1.0
    told = TOLD / len(y)
    return min(1.0, max(0.0, (float((said * y).sum()) / square + told) / (1.0 + told)))


def centred(
    y: Floats, before: Floats, seconds: Floats, groups: npt.NDArray[np.str_]
) -> tuple[Floats, Floats, dict[str, float]]:
    """Labels, row weights, and the level of each group: the prior's error there ("": in an unknown group).

    The label is log(measured / prior) minus the level, which is its median in the group: trees learn the
    order within a workload only. Fast candidates weigh more, because the top of the ranking matters most.
    """
    weights, levels = np.ones(len(y)), {}
    for group in np.unique(groups):
        mine = groups == group
        levels[str(group)] = float(np.median(y[mine] - before[mine]))
        weights[mine] = np.maximum(LEAST_WEIGHT, seconds[mine].min() / seconds[mine])
    levels[""] = float(np.median(list(levels.values())))
    return y - np.asarray([levels[str(g)] for g in groups]), weights, levels
