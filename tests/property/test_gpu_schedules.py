"""No legal GPU schedule races, misses a barrier, leaves its buffers, or changes what is computed."""

from __future__ import annotations

import random

import pytest
from gpu_cases import CASES
from gpu_comparison import check_gpu
from gpu_traces import gpu_trace
from random_dags import random_dag

LONG = 2000
CHUNK = 100


@pytest.mark.parametrize("name", CASES)
def test_the_cases(name: str) -> None:
    s = CASES[name]()
    check_gpu(s.dag, s.trace)


@pytest.mark.parametrize("seed", range(0, 48, 12))
def test_known_seeds(seed: int) -> None:
    for n in range(seed, seed + 12):
        _check(n)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, LONG, CHUNK))
def test_at_length(first: int) -> None:
    for n in range(first, first + CHUNK):
        _check(n)


def _check(seed: int) -> None:
    rng = random.Random(seed)
    dag = random_dag(rng, 3)
    check_gpu(dag, gpu_trace(rng, dag), seed=seed)
