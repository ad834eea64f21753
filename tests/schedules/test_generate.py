"""The default is the first sketch, whether the other sketches are made or not."""

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
from autotensor.resolve import safe_default
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Ref
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules import generate as generation
from schedules.generate import generate, preferred
from schedules.registry import OUTSIDE, Extension, SketchRule

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
    """A sum is not computed inside its reader's loops if the sum is needed as a whole."""
    x, w = te.placeholder((1, 14, 14, 32), name="x"), te.placeholder((32, 32, kernel, kernel), name="w")
    y = OPERATORS.get("conv2d").compute(x, w, padding=kernel // 2, layout="NHWC")
    z = te.compute(y.shape, lambda *i: te.maximum(y[i], 0.0), name="z")
    check(ComputeDAG.of([x, w, y, z]))


def test_where_not_all_sketches_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MAX_SKETCHES", 2)
    generation._generated.cache_clear()
    for seed in range(30):
        check(random_dag(random.Random(seed)))
    generation._generated.cache_clear()  # so that no other test gets the shortened lists


@pytest.fixture
def rule(monkeypatch):
    """Adds a sketch rule before all others."""

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


def mentions_no_hole(state, stage, target):
    return [Extension((SplitStep(stage.name, stage.leaves[0].name, (Ref("g"),)),), done=(stage.name,))]


def test_a_hole_is_declared_and_its_options_are_tuples(rule, caplog):
    dag = elementwise()
    rule(mentions_no_hole)
    with override(strict=False):
        assert generate(dag, parse(TARGETS[0]))
    assert "rule 'broken': SplitStep mentions the undeclared hole 'g'. Give the Hole" in caplog.text
    with pytest.raises(ScheduleError, match=r"hole 'g': 2 is not a tuple; an option is a tuple of ints"):
        Hole("g", (2, 4), 2)


def elementwise():
    x = te.placeholder((40,), name="x")
    return ComputeDAG.of([x, te.compute((40,), lambda i: x[i] + 1, name="y")])


@pytest.fixture
def own(monkeypatch):
    """Adds a rule of another package."""

    def add(expand):
        monkeypatch.setitem(OUTSIDE, "mine", SketchRule("mine", expand, before="pointwise"))

    return add


def test_a_rule_of_another_package_is_named_once_with_its_file_and_line(own, caplog):
    own(raises)
    with override(strict=False):
        workload = Workload.of(elementwise())
        safe_default(workload, parse(TARGETS[0]))
        generate(workload.dag, parse(TARGETS[0]))
    line = raises.__code__.co_firstlineno + 1
    assert caplog.text.count("Sketch rule mine") == 1
    assert f"Sketch rule mine ({__file__}:{line}) fails on stage" in caplog.text
    assert "Please report" not in caplog.text


def in_order(state, stage, target):
    return [Extension((Reorder(stage.name, tuple(a.name for a in stage.leaves)),), done=(stage.name,))]


def test_a_rule_that_leaves_nothing_to_search_says_so_once(own, caplog):
    x = te.placeholder((48,), name="x")
    dag = ComputeDAG.of([x, te.compute((48,), lambda i: x[i] + 2, name="y")])
    free = sum(s.size for s in generate(dag, parse(TARGETS[0])))
    assert free > 1
    own(in_order)
    for _ in range(2):
        assert sum(s.size for s in generate(dag, parse(TARGETS[0]))) == 1
    line = in_order.__code__.co_firstlineno
    assert caplog.text.count("nothing can be searched") == 1
    assert f"Sketch rule mine ({__file__}:{line}) leaves one schedule of y, so" in caplog.text
    assert f"the other rules have {free:,}." in caplog.text


def vectors_of_vectors(state, stage, target):
    name, axis = stage.name, stage.leaves[0].name
    steps = (SplitStep(name, axis, (4,)), Vectorize(name, f"{axis}.0"), Vectorize(name, f"{axis}.1"))
    return [Extension(steps, done=(name,))]


def test_a_rule_whose_loops_cannot_be_lowered_is_left_out_with_its_name(own, caplog):
    workload, target = Workload.of(elementwise()), parse(TARGETS[0])
    want = safe_default(workload, target)
    own(vectors_of_vectors)
    with override(strict=False):
        assert safe_default(workload, target) == want
    assert "Sketch rule mine (" in caplog.text
    assert re.search(r"that cannot be lowered \(.*both vectorized.*\); it is left out", caplog.text)


def test_nothing_to_compute_needs_no_rule():
    x, w = te.placeholder((0, 4), name="x"), te.placeholder((3, 4), name="w", constant=True)
    dag = ComputeDAG.of([x, w, OPERATORS.get("dense").compute(x, w)])
    assert [s.made_by for s in generate(dag, parse(TARGETS[0]))] == [()]
