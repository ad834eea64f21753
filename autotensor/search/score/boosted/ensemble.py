"""Ensemble: boosters fitted to differently weighted rows, and a classifier for candidates that work.

    fit(rows)                labels centred in each workload; BAGS boosters; a classifier if some failed
    ensemble.predict(…)      mean of the boosters; their differences give the spread
    trust(rows)              how well the boosters predict a workload without rows
    ensemble.at(trust)       the same ensemble, with weaker predictions

Only the stable API of xgboost is used. xgboost is imported when it is first needed.
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
    "nthread": 1,  # the other cores are busy with measuring; one is enough for some thousand rows
    "verbosity": 0,
}
VALID_ROUNDS = 30
VALID_PARAMETERS: Mapping[str, Any] = {
    **PARAMETERS,
    "objective": "binary:logistic",
    "base_score": 0.9,
    "max_depth": 4,
}
LEAST_WEIGHT = 0.1  # least weight of a row, however slow it is
APART = 1.5  # factor on the standard deviation between the boosters, for the spread
# `holds` judges an older ensemble by new rows. It adds this many imagined rows for which the ensemble is
# exactly right: two batches (chosen, 2026-11)
TOLD = 16
NOISE = 0.08  # spread that no booster explains; it is added to the other spread


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """Fitted boosters. Each booster predicts the sum of its trees. If there is a `start`, the prediction of
    the booster at the same position in `start` is added.
    """

    boosters: tuple[Any, ...]
    levels: Mapping[str, float]  # workload → error of the prior, as a logarithm; "": for an unknown workload
    rows: int  # number of rows that the boosters were fitted to
    validity: Any = None  # the classifier; None: no candidate failed
    start: Ensemble | None = field(default=None, repr=False)
    share: float = 1.0  # 0 to 1: factor on the predictions of `start`
    weight: float = 1.0  # 0 to 1: factor on all predictions
    noise: float = NOISE  # spread that is added to the spread between the boosters

    def at(self, trust: Trust) -> Ensemble:
        """The ensemble for workloads without rows: its predictions are weaker, and its spread is larger."""
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
        """[boosters, candidates]: logarithm of the factor on the prior, without the workload's level.

        before: the residuals of `start`, if they are known.
        """
        if self.start is not None and before is None:
            before = self.start.residuals(x)
        own = np.asarray([b.inplace_predict(x) for b in self.boosters], dtype=np.float64)
        # The residuals of `start` are added here. Giving them to the boosters as base margins would take as
        # long as computing the trees.
        if before is not None:
            own += self.share * before[np.arange(len(own)) % len(before)]
        return self.weight * own

    def contributions(self, features: Floats) -> Floats:
        """[candidates, features + 1]: the amount that each feature adds to the mean (TreeSHAP). The last
        column is the constant. The sum of these, the prior and the workload's level is the prediction.
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
    """An ensemble fitted to these rows; None if all of them failed."""
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
    """How far an ensemble fitted to these rows can be trusted for a workload without rows."""
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
    y: Floats  # logarithm of measured seconds / the prior's seconds
    groups: npt.NDArray[np.str_]
    before: Floats  # [boosters of `start`, rows]: the part of their residuals that holds here
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
    """The labels of the rows that worked; None if all rows failed."""
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
    """The best factor, 0 to 1, on an ensemble's predictions of these rows: with it, they are nearest to the
    residuals y within each workload. TOLD imagined rows that agree with the ensemble are added."""
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

    The label is log(measured / prior) minus the level, which is the median in the group. So trees learn only
    the order within a workload. Fast candidates have larger weights, because the top of the ranking matters
    most.
    """
    weights, levels = np.ones(len(y)), {}
    for group in np.unique(groups):
        mine = groups == group
        levels[str(group)] = float(np.median(y[mine] - before[mine]))
        weights[mine] = np.maximum(LEAST_WEIGHT, seconds[mine].min() / seconds[mine])
    levels[""] = float(np.median(list(levels.values())))
    return y - np.asarray([levels[str(g)] for g in groups]), weights, levels
