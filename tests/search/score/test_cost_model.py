"""The models that learn nothing."""

from __future__ import annotations

import numpy as np
from tables import table

from autotensor.search.score.cost_model import PRIOR_SPREAD, PriorModel, RandomModel


def test_the_baselines_learn_nothing() -> None:
    matrix, prior, seconds = table(20)
    for model in (PriorModel(), RandomModel(0)):
        model.learn(matrix, prior, seconds, "w")
        assert len(model.predict(matrix, prior, "w")) == 20
    found = PriorModel().predict(matrix, prior, "w")
    np.testing.assert_allclose(found.seconds, prior)
    assert set(found.spread) == {PRIOR_SPREAD}
    assert set(found.valid) == {1.0}


def test_chance_is_seeded() -> None:
    matrix, prior, _ = table(20)
    means = [RandomModel(1).predict(matrix, prior, "w").mean.tolist() for _ in range(2)]
    assert means[0] == means[1]
