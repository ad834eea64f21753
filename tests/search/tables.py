"""Rows for cost models: rows of real candidates, and made-up rows with a known error of the prior."""

from __future__ import annotations

import numpy as np
from fakes import TARGET

from autotensor.search.propose.population import sample
from autotensor.search.score.cost_model import Floats
from autotensor.search.score.features import NAMES, features
from autotensor.te.workload import Workload
from schedules.generate import generate, structure
from schedules.prior.predict import predict
from schedules.prior.rates import Rates

RATES = Rates.guess(TARGET)


def described(workload: Workload, count: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Features and prior of random candidates of the first sketch."""
    sketch = generate(workload.dag, TARGET)[0]
    pop = sample(sketch, structure(sketch, workload.dag), count, np.random.default_rng(seed))
    prior, terms = predict(pop.picture, TARGET, RATES)
    return features(pop.picture, terms, prior, TARGET), prior


def table(count: int, seed: int = 0, failing: float = 0.0) -> tuple[Floats, Floats, Floats]:
    """Features, prior and times of made-up candidates: the prior misses that column 3 doubles the time."""
    rng = np.random.default_rng(seed)
    matrix = rng.random((count, len(NAMES)))
    prior = np.exp(rng.standard_normal(count) * 0.3) * 1e-3
    seconds = prior * 5.0 * (1.0 + (matrix[:, 3] > 0.5))
    return matrix, prior, np.where(rng.random(count) < failing, np.nan, seconds)
