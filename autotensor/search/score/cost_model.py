"""Cost models: predicted seconds of candidates with how sure that is, from their features and the prior.

    PriorModel    the prior itself: knows nothing and ranks at once
    XGBModel      the prior times exp(trees), learned across workloads: `xgb_model.py`
    RandomModel   noise: the baseline that the others must beat

All speak of logarithms of seconds: being wrong by a factor is equally bad for fast and for slow candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target

Floats = npt.NDArray[np.float64]

# of log(measured / prior) within a task, on models that nobody had tuned (see benchmarks/cost_model.py)
PRIOR_SPREAD = 0.35


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What a model expects of candidates, each an array over them."""

    mean: Floats  # of the logarithm of seconds
    spread: Floats  # its standard deviation: 90 % of measurements are within 1.64 of them
    valid: Floats  # probability that it builds, runs and is right

    @property
    def seconds(self) -> Floats:
        return np.asarray(np.exp(self.mean))

    def __len__(self) -> int:
        return len(self.mean)

    def of(self, rows: npt.NDArray[np.bool_]) -> Prediction:
        """That of some of the candidates."""
        return Prediction(self.mean[rows], self.spread[rows], self.valid[rows])

    @staticmethod
    def joined(parts: Sequence[Prediction]) -> Prediction:
        """That of the candidates of all parts, in order."""
        return Prediction(
            np.concatenate([p.mean for p in parts]),
            np.concatenate([p.spread for p in parts]),
            np.concatenate([p.valid for p in parts]),
        )


@runtime_checkable
class CostModel(Protocol):
    """Predicts and learns. `group` is the workload's key: rows of one workload are comparable.

    One that has `rows_in_flight` gets the number of rows that a run learns between a batch and its
    answer. Features that cannot be written to are the same whenever the same array comes again.
    """

    learns: bool  # False: what the log knows need not be told, and suggests nothing

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        """features: [candidates, features], as `features.NAMES` orders them; prior: [candidates], seconds."""
        ...

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """What was measured: seconds [candidates], NaN for failures."""
        ...


class PriorModel:
    """The analytic prior, unchanged by data."""

    learns = False

    def __init__(self, seed: int = 0, target: Target | None = None) -> None:
        """Of nothing."""

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        ones = np.ones(len(prior))
        return Prediction(np.log(prior), PRIOR_SPREAD * ones, ones)

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Learns nothing."""


class RandomModel:
    """Ranks by chance; seeded."""

    learns = False

    def __init__(self, seed: int = 0, target: Target | None = None) -> None:
        self.rng = np.random.default_rng(seed)

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        ones = np.ones(len(prior))
        return Prediction(self.rng.standard_normal(len(prior)), ones, ones)

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Learns nothing."""
