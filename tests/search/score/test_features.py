"""Features are finite and have names, and depend on one candidate alone."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import TARGET
from tables import RATES, described
from zoo import SMALL

from autotensor.search.propose.population import Population, sample
from autotensor.search.score.features import NAMES, features
from autotensor.te.workload import Workload
from schedules.generate import generate, structure
from schedules.prior.predict import predict


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_features_are_finite_and_named(workload: Workload) -> None:
    matrix, prior = described(workload, 50)
    assert matrix.shape == (len(prior), len(NAMES))
    assert np.isfinite(matrix).all()
    assert (prior > 0).all()
    assert np.isfinite(prior).all()
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_features_of_a_row_do_not_depend_on_its_company(workload: Workload) -> None:
    sketch = generate(workload.dag, TARGET)[0]
    pop = sample(sketch, structure(sketch, workload.dag), 100, np.random.default_rng(0))
    picked = sorted({0, len(pop) // 3, len(pop) - 1})
    some = Population(pop.sketch, pop.state, pop.choices[picked])
    whole_prior, whole_terms = predict(pop.picture, TARGET, RATES)
    part_prior, part_terms = predict(some.picture, TARGET, RATES)
    assert whole_prior[picked].tolist() == part_prior.tolist()
    whole = features(pop.picture, whole_terms, whole_prior, TARGET)
    part = features(some.picture, part_terms, part_prior, TARGET)
    assert np.array_equal(whole[picked], part)
