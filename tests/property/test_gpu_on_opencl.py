"""Random legal GPU traces, compiled and run through OpenCL, give the results of the unscheduled loops. The
interpreter checks races and barriers (test_gpu_schedules.py), but not the printed source; this test does.
Calls of the mathematical library may differ in their last bits.

PoCL 3.0 crashes while it compiles a few kernels (seeds 111 and 279), and never finishes others (1373). So the
long runs are in child processes (opencl_traces.py). Such a seed is counted, and the interpreter checks it; it
is never counted as right.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from comparison import blaming, expected
from gpu_cases import ANYWHERE, CASES
from gpu_comparison import check_gpu
from opencl_traces import Result, drawn, outcomes, read

from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import random_inputs

pytestmark = [pytest.mark.opencl, pytest.mark.timeout(900)]

SHORT, LONG, CHUNK = 100, 2000, 100
NEAR = 1e-4  # of the largest answer
MOST_CRASHED = 2  # of CHUNK seeds, that PoCL may die of


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


@pytest.mark.parametrize("name", ANYWHERE)
def test_the_cases(name: str) -> None:
    s = CASES[name]()
    check_on_device(s.dag, s.trace)


@pytest.mark.parametrize("first", range(0, SHORT, 10))
def test_known_seeds(first: int) -> None:
    for n in range(first, first + 10):
        _random(n)


@pytest.mark.parametrize("seed", [617, 800])
def test_shared_boxes_under_part_of_a_threads_tile(seed: int) -> None:
    """The box of all threads is wider than the rest of the tensor. Two seeds were wrong."""
    _random(seed)


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("first", range(SHORT, LONG, CHUNK))
def test_at_length(first: int, record_property: Callable[[str, object], None]) -> None:
    found = list(outcomes(first, first + CHUNK))
    wrong = [str(o) for o in found if o.result is Result.WRONG]
    crashed = [o for o in found if o.result is Result.CRASHED]
    record_property("pocl_crashed", [o.seed for o in crashed])
    assert not wrong, "\n\n".join(wrong)
    for o in crashed:
        check_gpu(*drawn(o.seed), seed=o.seed)
    assert len(crashed) <= MOST_CRASHED, "PoCL crashed:\n" + "\n".join(map(str, crashed))
    assert [o.seed for o in found] == list(range(first, first + CHUNK))


def test_children_tell_what_became_of_each_seed() -> None:
    assert [o.result for o in outcomes(3, 5)] == [Result.RIGHT] * 2


DYING = """
import os, sys
alone = int(sys.argv[2]) == int(sys.argv[1]) + 1
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print("begin", seed, flush=True)
    if seed == 3 or (seed == 5 and not alone):
        os.abort()
    if seed == 7:
        print("wrong 7", '"said"', flush=True)
    else:
        print("right", seed, flush=True)
"""


def test_who_dies_is_run_alone_and_the_others_go_on(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(DYING)
    found = list(outcomes(0, 9, child))
    assert [o.seed for o in found] == list(range(9))
    assert {o.seed: o.result for o in found if o.result is not Result.RIGHT} == {
        3: Result.CRASHED,
        7: Result.WRONG,
    }


def test_a_child_that_says_nothing_is_no_result(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text("raise SystemExit(3)")
    with pytest.raises(RuntimeError, match="seeds 0 … 1: exit code 3"):
        list(outcomes(0, 2, child))


def test_the_lines_of_a_child_that_died() -> None:
    found, begun = read('begin 7\nright 7\nbegin 8\nwrong 8 "a b"\nsome noise\nbegin 9\n')
    assert [(o.seed, o.result, o.said) for o in found] == [(7, Result.RIGHT, ""), (8, Result.WRONG, "a b")]
    assert begun == 9


def _random(seed: int) -> None:
    check_on_device(*drawn(seed), seed)
