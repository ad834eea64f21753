"""Cost models: predicted seconds of candidates, from their features and the prior.

    PriorModel    the prior itself: knows nothing and ranks at once
    XGBModel      the prior times exp(trees): XGBoost on log(measured / prior) of everything measured, across workloads
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
MAX_ROWS = 20_000  # newest kept: a refit stays below a second
PARAMETERS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "max_depth": 6,
    "eta": 0.15,
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "min_child_weight": 2,
    "lambda": 1.0,
    "tree_method": "hist",
    "nthread": 1,  # the cores are busy measuring; one is enough for some thousand rows
    "verbosity": 0,
}
ROUNDS = 80


class CostModel(Protocol):
    """Predicts and learns. `group` is the workload's key: rows of one workload are comparable."""

    def predict(self, features: Floats, prior: Floats) -> Floats:
        """Seconds per candidate."""
        ...

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Measured candidates (failed ones are left out by the caller)."""
        ...


class PriorModel:
    """The analytic prior, unchanged by data."""

    def predict(self, features: Floats, prior: Floats) -> Floats:
        return prior

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Learns nothing."""


class RandomModel:
    """Ranks by chance; seeded."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def predict(self, features: Floats, prior: Floats) -> Floats:
        return self.rng.random(len(prior)) + 1.0

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Learns nothing."""


class XGBModel:
    """Learns what the prior gets wrong. Refits lazily, before the first prediction after new data."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._rows: list[tuple[Floats, Floats, str]] = []  # features, log(measured / prior), group
        self._booster: Any = None
        self._stale = False

    @property
    def rows(self) -> int:
        return sum(len(y) for _, y, _ in self._rows)

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        if len(seconds):
            self._rows.append((features, np.log(seconds / prior), group))
            self._stale = True

    def predict(self, features: Floats, prior: Floats) -> Floats:
        self._refit()
        if self._booster is None:
            return prior
        import xgboost as xgb

        residual = self._booster.predict(xgb.DMatrix(features, feature_names=list(NAMES)))
        return prior * np.exp(np.asarray(residual, dtype=np.float64))

    def _refit(self) -> None:
        if not self._stale or self.rows < MIN_ROWS:
            return
        import xgboost as xgb

        x = np.concatenate([f for f, _, _ in self._rows])[-MAX_ROWS:]
        y = np.concatenate([r for _, r, _ in self._rows])[-MAX_ROWS:]
        groups = np.concatenate([np.full(len(r), hash_group(g)) for _, r, g in self._rows])[-MAX_ROWS:]
        data = xgb.DMatrix(x, label=y, weight=row_weights(y, groups), feature_names=list(NAMES))
        self._booster = xgb.train({**PARAMETERS, "seed": self.seed}, data, num_boost_round=ROUNDS)
        self._stale = False

    def save(self, path: Path) -> None:
        """The trees as JSON, with the feature schema's version inside."""
        self._refit()
        if self._booster is not None:
            self._booster.set_attr(autotensor_schema=str(SCHEMA))
            self._booster.save_model(path)


def hash_group(group: str) -> int:
    """A small stable number for a group's name."""
    return int(group[:12] or "0", 16) if all(c in "0123456789abcdef" for c in group[:12]) else sum(map(ord, group))


def row_weights(y: Floats, groups: npt.NDArray[Any]) -> Floats:
    """Fast candidates of each group count more: the ranking matters at the top."""
    weights = np.ones(len(y))
    for g in np.unique(groups):
        mine = groups == g
        weights[mine] = np.clip(np.exp(-(y[mine] - y[mine].min())), 0.1, 1.0)
    return weights
