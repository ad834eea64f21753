"""The cost models: the prior when nothing is known, quick to fit, the same whenever asked."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from fakes import TARGET
from zoo import SMALL, gemm

from autotensor.search.features import NAMES, SCHEMA, features
from autotensor.search.model import MIN_ROWS, REFIT, Floats, PriorModel, RandomModel, XGBModel, centred
from autotensor.search.population import Population, sample
from autotensor.search.prior import Rates, predict
from autotensor.te.workload import Workload
from schedules.generate import generate, structure

RATES = Rates.guess(TARGET)


def described(workload: Workload, count: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Features and prior of random candidates of the first sketch."""
    sketch = generate(workload.dag, TARGET)[0]
    pop = sample(sketch, structure(sketch, workload.dag), count, np.random.default_rng(seed))
    prior, terms = predict(pop.picture, TARGET, RATES)
    return features(pop.picture, terms, prior, TARGET), prior


def table(count: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Features, prior and times of made-up candidates: the prior misses that column 3 doubles the time."""
    rng = np.random.default_rng(seed)
    matrix = rng.random((count, len(NAMES)))
    prior = np.exp(rng.standard_normal(count) * 0.3) * 1e-3
    return matrix, prior, prior * 5.0 * (1.0 + (matrix[:, 3] > 0.5))


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


def test_without_data_the_model_is_the_prior() -> None:
    matrix, prior = described(gemm(40, 64, 32), 30)
    assert XGBModel().predict(matrix, prior, "w").tolist() == prior.tolist()
    few = XGBModel()
    few.learn(*table(MIN_ROWS - 1), "w")
    assert few.predict(matrix, prior, "w").tolist() == prior.tolist()


def test_it_learns_what_the_prior_misses() -> None:
    model = XGBModel()
    model.learn(*table(400), "w")
    matrix, prior, seconds = table(200, seed=1)
    predicted = model.predict(matrix, prior, "w")
    assert np.median(np.abs(predicted / seconds - 1.0)) < 0.1
    elsewhere = model.predict(matrix, prior, "another workload")  # the level of known ones is the best guess
    assert elsewhere.tolist() == predicted.tolist()


def test_levels_of_workloads_are_kept_apart() -> None:
    matrix, prior, seconds = table(64)
    model = XGBModel()
    model.learn(matrix, prior, seconds, "a")
    model.learn(matrix, prior, seconds * 100.0, "b")
    a, b = model.predict(matrix, prior, "a"), model.predict(matrix, prior, "b")
    np.testing.assert_allclose(b / a, 100.0, rtol=1e-6)


def test_fast_rows_weigh_more() -> None:
    prior, seconds = np.ones(4), np.asarray([1.0, 2.0, 50.0, 3.0])
    groups = np.asarray(["a", "a", "a", "b"])
    labels, weights, levels = centred(prior, seconds, groups)
    assert weights.tolist() == [1.0, 0.5, 0.1, 1.0]
    assert labels[1] == labels[3] == 0.0
    assert levels["b"] == pytest.approx(np.log(3.0))


def test_predictions_do_not_depend_on_when_they_were_asked_for() -> None:
    patient, curious = XGBModel(3), XGBModel(3)
    probe, prior, _ = table(50, seed=9)
    for n in range(9):
        rows = table(7, seed=n)
        patient.learn(*rows, "w")
        curious.learn(*rows, "w")
        curious.predict(probe, prior, "w")
    assert patient.rows == 63 > 3 * REFIT
    assert patient.predict(probe, prior, "w").tolist() == curious.predict(probe, prior, "w").tolist()


def test_a_refit_on_4000_rows_takes_less_than_a_second() -> None:
    model = XGBModel()
    model.learn(*table(4000), "w")
    probe, prior, _ = table(8)
    began = time.process_time()  # one thread; the machine may be busy
    model.predict(probe, prior, "w")
    assert time.process_time() - began < 1.0


def test_saved_trees_name_their_features_and_schema(tmp_path: Path) -> None:
    model = XGBModel()
    model.save(tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()
    model.learn(*table(64), "w")
    model.save(tmp_path / "model.json")
    data = json.loads((tmp_path / "model.json").read_text())
    assert data["learner"]["feature_names"] == list(NAMES)
    assert data["learner"]["attributes"]["autotensor_schema"] == str(SCHEMA)
    probe, prior, _ = table(8)
    model.predict(probe, prior, "w")  # still works


def test_the_baselines_learn_nothing() -> None:
    matrix, prior, seconds = table(20)
    for model in (PriorModel(), RandomModel(0)):
        model.learn(matrix, prior, seconds, "w")
        assert len(model.predict(matrix, prior, "w")) == 20
    assert PriorModel().predict(matrix, prior, "w") is prior
    assert (
        RandomModel(1).predict(matrix, prior, "w").tolist()
        == RandomModel(1).predict(matrix, prior, "w").tolist()
    )
