"""Random legal GPU traces, compiled and run through OpenCL, give what the unscheduled loops give.

What the interpreter proves about races and barriers (test_gpu_schedules.py) says nothing about the text that
is printed of it; this does. Calls of the mathematical library may differ in their last bits.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from comparison import blaming, expected
from gpu_cases import CASES
from gpu_traces import gpu_trace
from random_dags import random_dag

from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.runtime.opening import open_artifact
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import random_inputs

pytestmark = [pytest.mark.opencl, pytest.mark.timeout(900)]

SHORT, LONG, CHUNK = 100, 2000, 100
NEAR = 1e-4  # of the largest answer


def check_on_device(dag: ComputeDAG, trace: Trace, seed: int = 0, target: str = "opencl") -> None:
    inputs = random_inputs(dag, seed, "integer")
    wanted = expected(dag, inputs)
    with blaming("the OpenCL backend", dag, trace):
        f = open_artifact(compile_trace(dag, trace, parse(target), "k"))
    found = f(*(inputs[a.name] for a in f.args if a.role != "output"))
    outputs = found if isinstance(found, tuple) else (found,)
    for spec, got in zip((a for a in f.args if a.role == "output"), outputs, strict=True):
        with blaming(f"output {spec.name}", dag, trace):
            _near(got, wanted[spec.name])


def _near(got: np.ndarray, wanted: np.ndarray) -> None:
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted)
        return
    finite = np.abs(wanted[np.isfinite(wanted)])
    np.testing.assert_allclose(got, wanted, rtol=NEAR, atol=NEAR * float(finite.max(initial=1.0)))


@pytest.mark.parametrize("name", CASES)
def test_the_cases(name: str) -> None:
    s = CASES[name]()
    check_on_device(s.dag, s.trace)


@pytest.mark.parametrize("first", range(0, SHORT, 10))
def test_known_seeds(first: int) -> None:
    for n in range(first, first + 10):
        _random(n)


@pytest.mark.parametrize("seed", [617, 800])
def test_shared_boxes_under_part_of_a_threads_tile(seed: int) -> None:
    """The box of all threads is wider than what is left of the tensor says: two seeds that were wrong."""
    _random(seed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(SHORT, LONG, CHUNK))
def test_at_length(first: int) -> None:
    for n in range(first, first + CHUNK):
        _random(n)


def _random(seed: int) -> None:
    rng = random.Random(seed)
    dag = random_dag(rng, 3)
    check_on_device(dag, gpu_trace(rng, dag), seed)
