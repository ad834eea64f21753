"""Cost models that the benchmarks put in XGBoost's place take part in a search."""

from __future__ import annotations

import numpy as np
from replays.model_variants import Ridge
from search_arms import ridge

from autotensor.search.loop import made_model
from autotensor.search.score.cost_model import PriorModel


def test_ridge_is_the_prior_before_it_learns_and_mends_it_afterwards():
    model, rng = made_model(ridge, 0, None), np.random.default_rng(0)
    assert isinstance(model, Ridge)
    features, prior = rng.random((64, 5)), rng.random(64) + 1.0
    before = model.predict(features, prior, "task")
    np.testing.assert_array_equal(before.mean, PriorModel().predict(features, prior, "task").mean)
    seconds = prior * np.exp(features[:, 0])  # what the prior does not see
    model.learn(features, prior, seconds, "task")
    after = model.predict(features, prior, "task")

    def error(p):
        return np.std(p.mean - np.log(seconds))

    assert error(after) < 0.3 * error(before)
