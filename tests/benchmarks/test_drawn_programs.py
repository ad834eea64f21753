"""Programs drawn from a grammar: defaults, and schedules from their spaces, against NumPy in float64."""

from __future__ import annotations

import random

import numpy as np
import pytest
from suite.programs import PROGRAMS
from suite.programs.drawn import CLASSES, drawn
from suite.programs.program import Program, is_input

import autotensor as at
from autotensor import te
from autotensor.base.target import Target, parse
from autotensor.te.dag import ComputeDAG
from schedules.generate import generate, preferred

TARGETS = tuple(parse(f"llvm -mcpu={cpu} -threads={n}") for cpu, n in (("native", 2), ("haswell", 3)))
RELATIVE = 2e-5  # of the largest element; sums of a thousand terms, chained, in float32


def compare(p: Program, outputs: object, reference: list[np.ndarray]) -> None:  # type: ignore[type-arg]
    got = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    for a, b in zip(got, reference, strict=True):
        largest = max(float(np.abs(b).max()), 1e-6)
        error = float(np.abs(np.asarray(a, np.float64) - b).max())
        assert error <= RELATIVE * largest, (p.name, error / largest)


def schedules(p: Program, target: Target, draws: int, rng: random.Random) -> None:
    tensors = list(p.te())
    outputs = [t for t in tensors if not is_input(t)]
    dag, inputs, reference = ComputeDAG.of(tensors), p.inputs(), p.reference()
    found = generate(dag, target)
    assert found[0] == preferred(dag, target)
    for sketch in (found[0], *(rng.choice(found) for _ in range(draws))):
        s = te.create_schedule(outputs)
        chosen = sketch.defaults() if sketch is found[0] else sketch.random(rng)
        for step in sketch.fill(chosen).steps:
            s.do(step)
        try:
            compare(p, at.build(s, tensors, target)(*inputs), reference)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{s.trace}") from None


def check(number: int) -> None:
    p = drawn(number, small=True)
    schedules(p, TARGETS[number % 2], 1, random.Random(number))


@pytest.mark.parametrize("number", range(24))
@pytest.mark.sample(5)
def test_drawn(number: int) -> None:
    check(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(24, 1600))
def test_many_drawn(number: int) -> None:
    check(number)


@pytest.mark.parametrize("kind", CLASSES)
def test_the_same_number_is_the_same_program(kind: str) -> None:
    a, b = drawn(3, kind), drawn(3, kind)
    assert ComputeDAG.of(list(a.te())).canonical()[0] == ComputeDAG.of(list(b.te())).canonical()[0]
    assert a.name == f"{kind} 3"


@pytest.mark.parametrize(
    "p", [p for p in PROGRAMS if p.suite in ("images", "stencils")], ids=lambda p: p.name
)
@pytest.mark.sample(4)
def test_defaults_of_the_suites(p: Program) -> None:
    compare(p, at.build(list(p.te()))(*p.inputs()), p.reference())


@pytest.mark.slow
@pytest.mark.parametrize("p", PROGRAMS, ids=lambda p: p.name)
def test_schedules_of_the_suites(p: Program) -> None:
    schedules(p, TARGETS[0], 3, random.Random(p.name))
