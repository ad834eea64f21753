"""Windows over bytes that are summed in float32: the same whole numbers, and only if float32 can represent
all of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from comparison import interpreted

from autotensor import te
from autotensor.base.target import parse
from autotensor.lowering.pipeline import lower
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.float_sums import EXACT, NAME
from schedules.generate import default_trace, generate

TARGET = parse("llvm -mcpu=znver4 -threads=2")


def depthwise(h, channels, k, stride, zero, w_zero, types, reader=False) -> ComputeDAG:
    """NHWC with a border of zero points; reader: its sums are requantised."""
    p, size = k // 2, (h + 2 * (k // 2) - k) // stride + 1
    X = te.placeholder((h, h, channels), types[0], name="X")
    W = te.placeholder((channels, k, k), types[1], name="W", constant=True)

    def padded(y, x, c):
        inside = te.all(y >= p, y < h + p, x >= p, x < h + p)
        return te.if_then_else(inside, X[y - p, x - p, c], te.const(zero, types[0]))

    P = te.compute((h + 2 * p, h + 2 * p, channels), padded, name="P")
    kh, kw = te.reduce_axis(k, name="kh"), te.reduce_axis(k, name="kw")

    def term(y, x, c):
        data = P[y * stride + kh, x * stride + kw, c].astype("int32") - zero
        return te.sum(data * (W[c, kh, kw].astype("int32") - w_zero), axis=[kh, kw])

    C = te.compute((size, size, channels), term, name="C")
    if reader:
        C = te.compute(
            C.shape, lambda *i: te.requantize(C[i], te.const(0.01, "float32"), 3, "uint8"), name="Y"
        )
    return ComputeDAG.of([X, W, C])


def wanted(x, w, h, channels, k, stride, zero, w_zero):
    p, size = k // 2, (h + 2 * (k // 2) - k) // stride + 1
    x = np.pad(x.astype("i8") - zero, ((p, p), (p, p), (0, 0)))
    out = np.zeros((size, size, channels), "i8")
    for a, b in np.ndindex(k, k):
        out += x[a::stride, b::stride][:size, :size] * (w[:, a, b].astype("i8") - w_zero)
    return out.astype("i4")


def extremes(rng, dtype, shape):
    """Mostly the ends of the type, so that sums are as large as they can be."""
    limits = np.iinfo(dtype)
    return rng.choice([limits.min, limits.max, limits.max, limits.max], shape).astype(dtype)


CASES = [
    (6, 32, 3, 1, 7, 0, ("uint8", "int8")),
    (5, 16, 5, 2, -128, 0, ("int8", "int8")),
    (4, 20, 7, 1, 255, 100, ("uint8", "uint8")),
]


@pytest.mark.parametrize("case", CASES)
def test_windows_are_exact_in_every_schedule(case) -> None:
    numbers = case[:-1]
    dag, rng = depthwise(*case), np.random.default_rng(5)
    inputs = {b.name: extremes(rng, b.dtype.numpy, b.shape) for b in dag.inputs}
    want = wanted(inputs["X"], inputs["W"], *numbers)
    default, sketches = default_trace(dag, TARGET), generate(dag, TARGET)
    assert f'"{NAME}"' in str(default)
    whole = [s for s in sketches if not any(NAME in x.call() for x in s.steps)]
    assert whole  # integers, for the search to try
    for trace in (default, *(s.fill(s.random(random.Random(1))) for s in (sketches[-1], whole[0]))):
        program = lower(trace.replay(dag), TARGET)
        assert np.array_equal(interpreted(dag, program, inputs, 2)["C"], want)


def test_sums_with_a_reader_are_converted_by_it() -> None:
    dag = depthwise(*CASES[0], reader=True)
    trace = str(default_trace(dag, TARGET))
    assert f'"{NAME}"' in trace
    assert 's["C"].compute_inline()' in trace


def applies(depth: int, zero: int) -> bool:
    x, w = te.placeholder((depth,), "uint8", name="X"), te.placeholder((depth, 4), "int8", name="W")
    k = te.reduce_axis(depth, name="k")
    y = te.compute(
        (4,), lambda j: te.sum((x[k].astype("int32") - zero) * w[k, j].astype("int32"), axis=k), name="C"
    )
    state = State.initial(ComputeDAG.of([x, w, y]))
    return ALGORITHMS.get(NAME).stages(state, state.stage("C")) is not None


def test_sums_that_float32_may_not_hold_stay_integers() -> None:
    most = (EXACT - 1) // (255 * 128)
    assert applies(most, 0)
    assert applies(most, 255)
    assert not applies(most + 1, 0)
    assert not applies(most, 256)  # zero points that bytes do not hold make terms larger
