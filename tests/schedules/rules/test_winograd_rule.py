"""The sketch rule of Winograd's method applies where numerics allow it, and all its decisions give right
results."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.operators import OPERATORS
from autotensor.runtime.module import Module
from autotensor.schedule.primitives.algorithm import UseAlgorithm, algorithm_tolerance
from autotensor.schedule.primitives.mark import Parallel
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from schedules.generate import generate

FAST = "llvm"  # fast numerics are the default


def bare(height, width, channels, filters):
    """A convolution that is the output: nothing after it."""
    x = te.placeholder((1, height, width, channels), name="x")
    w = te.placeholder((filters, channels, 3, 3), name="w", constant=True)
    return ComputeDAG.of([x, w, OPERATORS.get("conv2d").compute(x, w, padding=1, layout="NHWC")])


def conv(height, width, channels, filters):
    x = te.placeholder((1, height, width, channels), name="x")
    w = te.placeholder((filters, channels, 3, 3), name="w", constant=True)
    b = te.placeholder((filters,), name="b", constant=True)
    y = OPERATORS.get("conv2d").compute(x, w, b, padding=1, layout="NHWC")
    return ComputeDAG.of([x, w, b, OPERATORS.get("relu").compute(y)])


def transformed(dag, target):
    return [s for s in generate(dag, parse(target)) if any(isinstance(x, UseAlgorithm) for x in s.steps)]


def test_strict_numerics_forbid_it():
    assert not transformed(conv(14, 14, 32, 32), "llvm -numerics=strict")


@pytest.mark.parametrize(
    ("arch", "size", "threads", "first"),
    [
        ("x86-64-v4", (56, 56, 64, 64), 2, "winograd_f4"),
        ("x86-64-v4", (14, 14, 256, 256), 2, "winograd_f4"),
        ("x86-64-v4", (7, 7, 512, 512), 1, "winograd_f4"),
        # 38 MB of transformed weights from memory, for 0.2 ms of work
        ("x86-64-v4", (7, 7, 512, 512), 8, None),
        ("x86-64-v4", (5, 5, 16, 16), 2, None),  # one tile and a row of pixels: mostly padding
        ("x86-64-v3", (56, 56, 64, 64), 2, "winograd_f4"),
        ("x86-64-v3", (14, 14, 256, 256), 2, "winograd_f4"),
        ("x86-64-v3", (7, 7, 512, 512), 2, None),
        ("x86-64-v3", (5, 5, 16, 16), 2, None),
    ],
)
def test_the_default_is_what_is_surely_faster(arch, size, threads, first):
    cpu = f"llvm -mcpu={arch} -threads={threads}"
    algorithms = [x.algorithm for x in generate(conv(*size), parse(cpu))[0].steps if hasattr(x, "algorithm")]
    assert algorithms == ([first] if first else [])


def test_log_rows_of_strict_numerics_bear_another_key():
    assert parse("llvm -numerics=strict").key() == f"{parse(FAST).key()}/strict"


def conv3d(depth, height, width, channels, filters):
    x = te.placeholder((1, depth, height, width, channels), name="x")
    w = te.placeholder((filters, channels, 3, 3, 3), name="w", constant=True)
    b = te.placeholder((filters,), name="b", constant=True)
    y = OPERATORS.get("conv3d").compute(x, w, b, padding=1, layout="NDHWC")
    return ComputeDAG.of([x, w, b, OPERATORS.get("relu").compute(y)])


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (conv, (8, 8, 16, 32)),
        (conv, (7, 9, 32, 16)),
        (conv, (13, 6, 48, 40)),
        (conv3d, (3, 6, 5, 16, 32)),
        (bare, (7, 8, 16, 40)),
    ],
)
def test_any_decision_gives_the_convolution(make, size):
    dag = make(*size)
    rng, draws = np.random.default_rng(0), random.Random(0)
    arrays = {b.name: rng.standard_normal(b.shape).astype("float32") for b in dag.inputs}
    expected = evaluate(dag, arrays, accumulate=np.float64)[dag.outputs[0].name]
    sketches = transformed(dag, FAST)
    assert len(sketches) == 4  # F(4, 3) and F(2, 3), each by blocks of tiles and by columns
    for sketch in sketches:
        for decisions in (sketch.defaults(), sketch.random(draws)):
            trace = sketch.fill(decisions)
            constants = {n: a for n, a in arrays.items() if n != "x"}
            f = Module(compile_trace(dag, trace, parse(FAST))).bind(**constants)
            error = np.abs(f(arrays["x"]) - expected).max() / np.abs(expected).max()
            assert error <= algorithm_tolerance(trace), trace.to_python()


def test_far_weights_are_read_once():
    """Weights that the last cache cannot keep are divided among the cores, not read again by every block."""
    narrow = parse("llvm -mcpu=x86-64-v3 -threads=2")
    near, far = (generate(conv(28, 28, n, n), narrow)[0] for n in (64, 512))

    def regions(sketch):
        return sum(isinstance(s, Parallel) for s in sketch.steps)

    assert regions(near) == 1  # by tiles
    assert regions(far) == 2  # transformed inputs first, then by columns
