"""Random te programs against finite differences: windows, gathers, views, reductions, chained."""

from __future__ import annotations

import random

import numpy as np
import pytest
import random_dags
from finite_differences import check_gradients

from autotensor.graph.build import call, input
from autotensor.graph.function import TeFunction
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload


def function_of(dag: ComputeDAG) -> TeFunction:
    return TeFunction("program", dag, tuple(b.name for b in dag.outputs), Workload.of(dag).key)


def compared(seed: int) -> int:
    """The number of gradients of a random program that were compared; 0 if it has no gradients."""
    dag = random_dags.random_dag(random.Random(seed))
    rng = np.random.default_rng(seed)
    inputs = [input(b.shape, b.dtype, b.name) for b in dag.inputs]
    arrays = [
        rng.standard_normal(b.shape)
        if b.dtype.is_float
        else rng.integers(0, 2, b.shape).astype(b.dtype.numpy)
        for b in dag.inputs
    ]
    made = call(function_of(dag), *inputs)
    outputs = [y for y in (made if isinstance(made, tuple) else (made,)) if str(y.dtype) == "float64"]
    if not outputs:
        return 0
    return check_gradients(inputs, outputs, arrays, rng, 1e-4)


def test_twenty_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_dags, "TYPES", ("float64",))
    assert sum(compared(seed) > 0 for seed in range(24)) >= 18


@pytest.mark.slow
def test_two_hundred_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_dags, "TYPES", ("float64",))
    assert sum(compared(seed) > 0 for seed in range(1000, 1260)) >= 200
