"""Cost models: predicted seconds of candidates, from their features and the prior.

    PriorModel    the prior itself: knows nothing and ranks at once
    XGBModel      the prior times exp(trees): XGBoost on log(measured / prior), across workloads
    RandomModel   noise: the baseline that the others must beat

With no data the XGBoost model is the prior. Only the stable API of xgboost is used; the import is lazy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from autotensor.search.features import NAMES, SCHEMA

Floats = npt.NDArray[np.float64]

MIN_ROWS = 16  # fewer samples say nothing that the prior does not
REFIT = 16  # new rows until the next fit: two batches
MAX_ROWS = 20_000  # newest kept: a refit stays below a second
PARAMETERS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "max_depth": 6,
    "eta": 0.15,
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "min_child_weight": 1,
    "lambda": 1.0,
    "tree_method": "hist",
    "nthread": 1,  # the cores are busy measuring; one is enough for some thousand rows
    "verbosity": 0,
}
ROUNDS = 80
LEAST_WEIGHT = 0.1  # of a row, however slow


class CostModel(Protocol):
    """Predicts and learns. `group` is the workload's key: rows of one workload are comparable."""

    def predict(self, features: Floats, prior: Floats, group: str) -> Floats:
        """Seconds per candidate."""
        ...

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Measured candidates (failed ones are left out by the caller)."""
        ...


class PriorModel:
    """The analytic prior, unchanged by data."""

    def predict(self, features: Floats, prior: Floats, group: str) -> Floats:
        return prior

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Learns nothing."""


class RandomModel:
    """Ranks by chance; seeded."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def predict(self, features: Floats, prior: Floats, group: str) -> Floats:
        return self.rng.random(len(prior)) + 1.0

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Learns nothing."""


class XGBModel:
    """Learns what the prior gets wrong.

    It is fitted lazily to the first n rows, n being a multiple of REFIT: what it predicts depends on the rows
    and their order, never on when it was asked.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._rows: list[tuple[Floats, Floats, Floats, str]] = []  # features, prior, seconds, group
        self._count = 0
        self._fitted = 0  # rows that the booster knows
        self._booster: Any = None
        self._levels: dict[str, float] = {}  # by group: by how much the prior is off there, as a logarithm

    @property
    def rows(self) -> int:
        return self._count

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        if len(seconds):
            self._rows.append((features.astype(np.float32), prior, seconds, group))
            self._count += len(seconds)

    def predict(self, features: Floats, prior: Floats, group: str) -> Floats:
        self._refit()
        if self._booster is None:
            return prior
        residual = self._booster.inplace_predict(features.astype(np.float32))
        return prior * np.exp(
            np.asarray(residual, dtype=np.float64) + self._levels.get(group, self._levels[""])
        )

    def _refit(self) -> None:
        wanted = self._count - self._count % REFIT
        if wanted < MIN_ROWS or wanted == self._fitted:
            return
        import xgboost as xgb

        first = max(0, wanted - MAX_ROWS)
        x = np.concatenate([f for f, _, _, _ in self._rows])[first:wanted]
        prior = np.concatenate([p for _, p, _, _ in self._rows])[first:wanted]
        seconds = np.concatenate([s for _, _, s, _ in self._rows])[first:wanted]
        groups = np.concatenate([np.full(len(s), g) for _, _, s, g in self._rows])[first:wanted]
        y, weights, self._levels = centred(prior, seconds, groups)
        data = xgb.DMatrix(x, label=y, weight=weights, nthread=1)
        self._booster = xgb.train({**PARAMETERS, "seed": self.seed}, data, num_boost_round=ROUNDS)
        self._fitted = wanted

    def save(self, path: Path) -> None:
        """The trees as JSON, with names and version of the features; nothing before there are enough rows."""
        self._refit()
        if self._booster is not None:
            self._booster.feature_names = list(NAMES)
            self._booster.set_attr(autotensor_schema=str(SCHEMA))
            self._booster.save_model(path)
            self._booster.feature_names = None


def centred(
    prior: Floats, seconds: Floats, groups: npt.NDArray[np.str_]
) -> tuple[Floats, Floats, dict[str, float]]:
    """Labels, row weights, and by how much the prior is off in each group ("": in an unknown one).

    The label is log(measured / prior) less its median in the group: what counts is the order within a
    workload, and by how much the prior misses the whole of it is a number of its own. Fast candidates count
    more: the ranking matters at the top.
    """
    y = np.log(seconds / prior)
    weights, levels = np.ones(len(y)), {}
    for group in np.unique(groups):
        mine = groups == group
        levels[str(group)] = float(np.median(y[mine]))
        weights[mine] = np.maximum(LEAST_WEIGHT, seconds[mine].min() / seconds[mine])
    levels[""] = float(np.median(list(levels.values())))
    return y - np.asarray([levels[str(g)] for g in groups]), weights, levels
