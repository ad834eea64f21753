"""The default is the first sketch, whether or not the others are made."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from operator_tools import build
from random_dags import random_dag

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.switches import override
from autotensor.base.target import parse
from autotensor.operators import OPERATORS
from autotensor.schedule.primitives.split import SplitStep
from autotensor.te.dag import ComputeDAG
from schedules import generate as generation
from schedules.generate import generate, preferred
from schedules.registry import Extension, SketchRule

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


@pytest.fixture
def rule(monkeypatch):
    """Adds a sketch rule that is asked first."""

    def add(expand):
        rules = (SketchRule("broken", expand), *generation.RULES)
        monkeypatch.setattr(generation, "RULES", rules)

    return add


def raises(state, stage, target):
    return [{}["i3"]]


def raises_later(state, stage, target):
    yield Extension()
    raise IndexError("list index out of range")


def writes_nonsense(state, stage, target):
    return [Extension((SplitStep(stage.name, "nowhere", (4,)),))]


@pytest.mark.parametrize(
    ("expand", "said"),
    [
        (raises, "KeyError: 'i3'"),
        (raises_later, "IndexError: list index out of range"),
        (writes_nonsense, "ScheduleError: .*nowhere"),
    ],
)
def test_a_rule_that_fails_is_left_out(expand, said, rule, caplog):
    dag = random_dag(random.Random(3))
    rule(expand)
    with override(strict=False):
        assert generate(dag, parse(TARGETS[0]))
    told = caplog.text
    assert re.search(rf"Sketch rule broken fails on stage '\w+' and is left out \({said}", told), told
    assert "Please report this." in told
    generation._generated.cache_clear()
    with override(strict=True), pytest.raises((KeyError, IndexError, ScheduleError)):
        generate(dag, parse(TARGETS[0]))


def test_nothing_to_compute_needs_no_rule():
    x, w = te.placeholder((0, 4), name="x"), te.placeholder((3, 4), name="w", constant=True)
    dag = ComputeDAG.of([x, w, OPERATORS.get("dense").compute(x, w)])
    assert [s.made_by for s in generate(dag, parse(TARGETS[0]))] == [()]
