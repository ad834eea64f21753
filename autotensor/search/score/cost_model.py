"""Cost models: predicted seconds of candidates and their uncertainty, from features and the prior.

    PriorModel    the prior itself: it learns nothing and can rank at once
    XGBModel      the prior times exp(trees), learned across workloads: `xgb_model.py`
    RandomModel   random: the baseline for the other models

All models predict logarithms of seconds, so an error by a factor has the same weight for fast and slow
candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from autotensor.base.doors import inside, name_of
from autotensor.base.errors import InputError
from autotensor.base.target import Target

Floats = npt.NDArray[np.float64]

# standard deviation of log(measured / prior) within a task, for networks that are new to the prior
# (benchmarks/cost_model.py)
PRIOR_SPREAD = 0.35
FIELDS = ("mean", "spread", "valid")  # of a prediction


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """A model's prediction for some candidates, each field an array over them."""

    mean: Floats  # mean of the logarithm of seconds
    spread: Floats  # standard deviation of this logarithm: 90 % of measurements are within 1.64 times this
    valid: Floats  # probability that the candidate builds, runs and is right

    @property
    def seconds(self) -> Floats:
        return np.asarray(np.exp(self.mean))

    def __len__(self) -> int:
        return len(self.mean)

    def of(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Prediction:
        """The prediction for some of the candidates."""
        return Prediction(self.mean[rows], self.spread[rows], self.valid[rows])

    @staticmethod
    def joined(parts: Sequence[Prediction]) -> Prediction:
        """The prediction for the candidates of all parts, in order."""
        if not parts:
            return Prediction(np.zeros(0), np.zeros(0), np.zeros(0))
        return Prediction(
            np.concatenate([p.mean for p in parts]),
            np.concatenate([p.spread for p in parts]),
            np.concatenate([p.valid for p in parts]),
        )


@runtime_checkable
class CostModel(Protocol):
    """Predicts and learns. `group` is the workload's key: rows of one workload are comparable.

    If a model has the attribute `rows_in_flight`, the run sets it to the number of rows that arrive between a
    batch and its results. A read-only array of features never changes, so a model may keep its prediction.
    """

    learns: bool  # False: the model does not get the log's trials, and these suggest no candidates

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        """features: [candidates, features], in the order of `features.NAMES`. prior: [candidates],
        seconds."""
        ...

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Takes measured seconds [candidates]; NaN means a failure."""
        ...


def predicted(model: CostModel, features: Floats, prior: Floats, group: str) -> Prediction:
    """A model's prediction. Raises InputError unless there are three finite numbers for each candidate."""
    with inside("cost model", type(model), "in predict"):
        found = model.predict(features, prior, group)
    wrong = _wrong(found, len(prior))
    if wrong:
        raise InputError(
            f"cost model {name_of(type(model))!r} predicts {wrong}.",
            fix=f"It must give a Prediction of three arrays, each of {len(prior)} finite numbers "
            "(docs/extend.md).",
        )
    return Prediction(*(np.asarray(getattr(found, n), dtype=np.float64) for n in FIELDS))


def tell_model(model: CostModel, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
    """Gives measured candidates to a model. Raises InputError if a model from outside fails."""
    with inside("cost model", type(model), "in learn"):
        model.learn(features, prior, seconds, group)


def _wrong(found: object, count: int) -> str:
    """The first fault of a prediction for `count` candidates; "" if it has none."""
    if not isinstance(found, Prediction):
        return f"{type(found).__name__} instead of a Prediction"
    for name in FIELDS:
        try:
            values = np.asarray(getattr(found, name))
        except ValueError:  # rows of different lengths
            return f"{name} that is not an array"
        if values.dtype.kind not in "fiu":
            return f"{name} of type {values.dtype}, not of real numbers"
        if values.shape != (count,):
            return f"{name} of shape {values.shape} for {count} candidates"
        if not np.isfinite(values).all():
            return f"{name} that is not finite for {int((~np.isfinite(values)).sum())} of {count} candidates"
    if (np.asarray(found.spread) < 0.0).any():
        return "a negative spread"
    valid = np.asarray(found.valid)
    if ((valid < 0.0) | (valid > 1.0)).any():
        return "valid outside 0 to 1"
    return ""


class PriorModel:
    """The analytic prior, which data do not change."""

    learns = False

    def __init__(self, seed: int = 0, target: Target | None = None) -> None:
        """Both arguments are ignored. All model factories have them."""

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        ones = np.ones(len(prior))
        return Prediction(np.log(prior), PRIOR_SPREAD * ones, ones)

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Learns nothing."""


class RandomModel:
    """A random ranking, from a seed."""

    learns = False

    def __init__(self, seed: int = 0, target: Target | None = None) -> None:
        self.rng = np.random.default_rng(seed)

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        ones = np.ones(len(prior))
        return Prediction(self.rng.standard_normal(len(prior)), ones, ones)

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        """Learns nothing."""
