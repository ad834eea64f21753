"""The default is the first sketch, whether or not the others are made."""

from __future__ import annotations

import random

import numpy as np
import pytest
from operator_tools import build
from random_dags import random_dag

from autotensor import te
from autotensor.base.target import parse
from autotensor.operators import OPERATORS
from autotensor.te.dag import ComputeDAG
from schedules import generate as generation
from schedules.generate import generate, preferred

TARGETS = (
    "llvm -mcpu=znver4 -threads=2",
    "llvm -mcpu=haswell -threads=8",
    "opencl -device=gpu",
    "cuda -arch=sm_80",
)


def check(dag: ComputeDAG) -> None:
    for text in TARGETS:
        target = parse(text)
        assert preferred(dag, target) == generate(dag, target)[0]


@pytest.mark.parametrize("name", OPERATORS.names())
def test_of_operators(name: str) -> None:
    op = OPERATORS.get(name)
    for case in op.cases[:2]:
        inputs, y = build(op, case.arrays(np.random.default_rng(0)), case.attrs)
        check(ComputeDAG.of([*inputs, y]))


@pytest.mark.parametrize("size", [14, 56])
def test_of_convolutions_by_winograd(size: int) -> None:
    x = te.placeholder((1, size, size, 64), name="x")
    w = te.placeholder((64, 64, 3, 3), name="w", constant=True)
    dag = ComputeDAG.of([x, w, OPERATORS.get("conv2d").compute(x, w, padding=1, layout="NHWC")])
    assert len(generate(dag, parse(TARGETS[0]))) > 4
    check(dag)


def test_of_random_computations() -> None:
    for seed in range(60):
        check(random_dag(random.Random(seed)))


@pytest.mark.parametrize("kernel", [1, 3])
def test_of_a_result_that_is_read_further(kernel: int) -> None:
    """Sums are not computed inside the loops of what reads them when they are wanted whole."""
    x, w = te.placeholder((1, 14, 14, 32), name="x"), te.placeholder((32, 32, kernel, kernel), name="w")
    y = OPERATORS.get("conv2d").compute(x, w, padding=kernel // 2, layout="NHWC")
    z = te.compute(y.shape, lambda *i: te.maximum(y[i], 0.0), name="z")
    check(ComputeDAG.of([x, w, y, z]))


def test_where_not_all_sketches_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MAX_SKETCHES", 2)
    generation._generated.cache_clear()
    for seed in range(30):
        check(random_dag(random.Random(seed)))
    generation._generated.cache_clear()  # what was cut short is nobody else's answer
