"""The models that do not learn."""

from __future__ import annotations

import numpy as np
import pytest
from tables import table

from autotensor.base.errors import InputError
from autotensor.search.score.cost_model import PRIOR_SPREAD, Prediction, PriorModel, RandomModel, predicted


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


def test_a_prediction_that_is_none_is_one_sentence() -> None:
    """Models come from outside, too."""
    features, prior = np.zeros((4, 3)), np.full(4, 1e-3)

    class Faulty:
        learns = False

        def __init__(self, gives: object) -> None:
            self.gives = gives

        def predict(self, *what: object) -> object:
            return self.gives

        def learn(self, *what: object) -> None: ...

    ones = np.ones(4)
    good = Prediction(ones, ones, ones)
    assert predicted(Faulty(good), features, prior, "key").mean.tolist() == ones.tolist()  # type: ignore[arg-type]
    for gives in (
        prior,
        None,
        Prediction(ones[:1], ones[:1], ones[:1]),
        Prediction(ones * np.nan, ones, ones),
        Prediction(1.0, 1.0, 1.0),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            InputError, match=r"cost model '.*Faulty' predicts .* It must give a Prediction of"
        ):
            predicted(Faulty(gives), features, prior, "key")  # type: ignore[arg-type]
