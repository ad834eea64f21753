"""Recorded formulas give exactly the numbers that picture, prior and features compute from arrays."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from random_dags import random_dag
from zoo import SMALL, gemm

from autotensor.base.target import Target, host, parse
from autotensor.schedule.loop_picture import appearance, looks
from autotensor.search.propose.population import Population, sample
from autotensor.search.score.features import features
from autotensor.search.score.scoring import Scoring
from autotensor.te.dag import ComputeDAG
from schedules.generate import generate, structure
from schedules.prior.predict import predict
from schedules.prior.rates import MicroKernels, Rates

TARGETS = tuple(map(parse, ("llvm -mcpu=x86-64-v3 -threads=2", "llvm -mcpu=x86-64-v4", "cuda -arch=sm_80")))
MEASURED = MicroKernels(16, {(2, 1): (2.0, 3.0, 4.0), (6, 1): (6.0, 6.5, 8.0), (6, 4): (24.0, 26.0, 40.0)})
SKETCHES = 3  # of a computation


def check(dag: ComputeDAG, target: Target, rates: Rates, seed: int) -> None:
    for n, sketch in enumerate(generate(dag, target)[:SKETCHES]):
        state = structure(sketch, dag)
        scoring = Scoring(sketch, state, target, rates)
        rng = np.random.default_rng((seed, n))
        whole = sample(sketch, state, 200, rng).choices
        picked = rng.integers(0, len(whole), 3)
        for choices in (whole, whole[picked], np.repeat(whole[:1], 2, axis=0)):
            check_alike(scoring, Population(sketch, state, choices))


def check_alike(scoring: Scoring, pop: Population) -> None:
    prior, terms = predict(pop.picture, scoring.target, scoring.rates)
    matrix = features(pop.picture, terms, prior, scoring.target)
    found, seconds = scoring.described(pop.choices)
    assert np.array_equal(seconds, prior)
    assert np.array_equal(found, matrix, equal_nan=True)
    assert np.array_equal(scoring.prior(pop.choices), prior)
    assert scoring.looks(pop.choices) == looks(appearance(pop.picture), len(pop))


@pytest.mark.parametrize("target", TARGETS, ids=Target.key)
@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_sketches_of_small_workloads(workload, target: Target) -> None:
    check(workload.dag, target, Rates.guess(target), 0)


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 80))]
)
def test_sketches_of_drawn_programs(seed: int) -> None:
    dag = random_dag(random.Random(seed))
    target = TARGETS[seed % 2]
    check(dag, target, Rates.guess(target), seed)


def test_measured_kernels_and_warm_weights() -> None:
    target = host()
    rates = replace(Rates.guess(target), kernels=MEASURED, warm_weights=True)
    check(gemm(48, 64, 40).dag, target, rates, 1)


def test_what_is_said_of_a_population_depends_on_it() -> None:
    """Whether a loop's vectors move along an axis is computed for all candidates together."""
    dag, target = gemm(32, 32, 32).dag, TARGETS[0]
    sketch = generate(dag, target)[0]
    state = structure(sketch, dag)
    scoring = Scoring(sketch, state, target, Rates.guess(target))
    whole = sample(sketch, state, 500, np.random.default_rng(0)).choices
    for first in range(0, len(whole) - 2, 50):
        check_alike(scoring, Population(sketch, state, whole[first : first + 2]))
    check_alike(scoring, Population(sketch, state, whole))
