"""Cost models that were tried besides autotensor's: one booster, ranking objectives with the prior as margin,
ridge.

All models use the same rows, and boosters the same parameters for trees (`ensemble.PARAMETERS`). Only the
objective differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.search.score.boosted.ensemble import PARAMETERS, centred
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.score.cost_model import CostModel, Floats, Prediction, PriorModel

ROUNDS = 80
GRADES = 15  # grades of relevance, from the slowest to the fastest
SPREAD = 0.1  # the predicted spread, because these models predict none


class TriedModel:
    """A booster that is fitted to all rows at the first prediction."""

    learns = True

    def __init__(self) -> None:
        self._rows: list[tuple[Floats, Floats, Floats, str]] = []
        self._booster: Any = None

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        works = np.isfinite(seconds)
        if works.any():
            self._rows.append((features[works], prior[works], seconds[works], group))
            self._booster = None

    def _columns(self) -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
        """The rows, sorted by group, as ranking objectives require."""
        rows = sorted(self._rows, key=lambda r: r[3])
        x, prior, seconds = (np.concatenate([r[n] for r in rows]) for n in range(3))
        return x, prior, seconds, np.concatenate([np.full(len(r[2]), r[3]) for r in rows])


class Regression(TriedModel):
    """Trees that predict log(measured / prior) minus its median in the workload."""

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        import xgboost as xgb

        if self._booster is None:
            x, p, s, g = self._columns()
            labels, weights, _ = centred(np.log(s / p), np.zeros(len(s)), s, g)
            data = xgb.QuantileDMatrix(
                x, label=labels, weight=weights, max_bin=PARAMETERS["max_bin"], nthread=1
            )
            self._booster = xgb.train(dict(PARAMETERS), data, num_boost_round=ROUNDS)
        ones = np.ones(len(prior))
        return Prediction(np.log(prior) + self._booster.inplace_predict(features), SPREAD * ones, ones)


class Ridge(TriedModel):
    """A linear model that predicts log(measured / prior) minus its median in the workload."""

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        if not self._rows:
            return PriorModel().predict(features, prior, group)
        from sklearn.linear_model import Ridge as Linear
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if self._booster is None:
            x, p, s, g = self._columns()
            labels, weights, _ = centred(np.log(s / p), np.zeros(len(s)), s, g)
            self._booster = make_pipeline(StandardScaler(), Linear(10.0))
            self._booster.fit(x, labels, ridge__sample_weight=weights)
        ones = np.ones(len(prior))
        return Prediction(np.log(prior) + self._booster.predict(features), SPREAD * ones, ones)


class Ranking(TriedModel):
    """A ranking objective within each workload; margin: minus the logarithm of the prior."""

    def __init__(self, objective: str) -> None:
        super().__init__()
        self.parameters: Mapping[str, Any] = {
            **{k: v for k, v in PARAMETERS.items() if k != "base_score"},
            "objective": objective,
            "lambdarank_pair_method": "mean",
            "lambdarank_num_pair_per_sample": 8,
            "ndcg_exp_gain": False,
        }

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        import xgboost as xgb

        if self._booster is None:
            x, p, s, g = self._columns()
            _, query = np.unique(g, return_inverse=True)
            fastest = np.asarray([s[query == q].min() for q in range(query.max() + 1)])
            grades = np.round(GRADES * fastest[query] / s)
            data = xgb.DMatrix(x, label=grades, qid=query, base_margin=-np.log(p), nthread=1)
            self._booster = xgb.train(dict(self.parameters), data, num_boost_round=ROUNDS)
        margin = -np.log(prior)
        ones = np.ones(len(prior))
        score = self._booster.inplace_predict(features, base_margin=margin)
        return Prediction(-np.asarray(score, dtype=np.float64), SPREAD * ones, ones)


VARIANTS: Mapping[str, Callable[[], CostModel]] = {
    "prior": PriorModel,
    "ridge": Ridge,
    "regression": Regression,
    "rank:pairwise": lambda: Ranking("rank:pairwise"),
    "rank:ndcg": lambda: Ranking("rank:ndcg"),
    "ours": XGBModel,
}
