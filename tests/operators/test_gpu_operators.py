"""Operators under default schedules, run through OpenCL, equal their NumPy references.

Schedules for cards take every third sample case of each operator, schedules for a processor its first one;
`-m slow` has the others.
"""

from __future__ import annotations

import numpy as np
import pytest
from operator_tools import CASES, assert_close, build, reduction_length

from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.operators import OPERATORS
from autotensor.runtime.open_artifact import open_artifact
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

CARD, CORES = "opencl -device=gpu", "opencl"
# one case in this many is not slow, and the first case of an operator never is
EVERY = {CARD: 3, CORES: 1000}
RUNS = [
    pytest.param(
        target, name, number, id=f"{name}-{number}-{'card' if target == CARD else 'cores'}",
        marks=[pytest.mark.slow] if number % EVERY[target] else [],
    )
    for target in (CARD, CORES)
    for name, number in CASES
]  # fmt: skip


@pytest.mark.opencl
@pytest.mark.parametrize(("text", "name", "number"), RUNS)
def test_default_schedule_equals_reference(text: str, name: str, number: int) -> None:
    op = OPERATORS.get(name)
    case = op.cases[number]
    arrays = case.arrays(np.random.default_rng(number))
    inputs, y = build(op, arrays, case.attrs)
    dag = ComputeDAG.of([*inputs, y])
    target = parse(text)
    run = open_artifact(compile_trace(dag, default_trace(dag, target), target, name))
    found = run(*(np.array(a, order="C") for a in arrays))
    assert_close(found, np.asarray(op.reference(*arrays, **case.attrs)), reduction_length(y))
