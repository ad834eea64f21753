"""Winograd's algorithm computes convolutions of any size, and refuses other stages."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.operators import OPERATORS
from autotensor.runtime.module import Module
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from schedules.algorithms.winograd import F2, F4, TOLERANCE, transform
from schedules.generate import generate


def conv(height, width, channels, filters, *, padding=1, stride=1):
    x = te.placeholder((1, height, width, channels), name="x")
    w = te.placeholder((filters, channels, 3, 3), name="w", constant=True)
    y = OPERATORS.get("conv2d").compute(x, w, padding=padding, stride=stride, layout="NHWC")
    return ComputeDAG.of([x, w, OPERATORS.get("relu").compute(y)])


@pytest.mark.parametrize("tf", [F2, F4, transform(4, (0, 1, -1, 2, -2)), transform(3, (0, 1, 2, 3))])
def test_the_matrices_give_the_filter_exactly(tf):
    d, g = [Fraction(n * n - 7, 3) for n in range(tf.t)], [Fraction(n, 2) - 1 for n in range(3)]
    product = [
        sum(x * y for x, y in zip(b, d, strict=True)) * sum(x * y for x, y in zip(a, g, strict=True))
        for b, a in zip(tf.bt, tf.g, strict=True)
    ]
    found = [sum(x * y for x, y in zip(row, product, strict=True)) for row in tf.at]
    assert found == [sum(d[i + k] * g[k] for k in range(3)) for i in range(tf.m)]


def test_many_channels_stay_well_within_the_gate():
    """With the usual points 0, ±1, ±2, the error of 512 channels reaches the limit."""
    dag = conv(8, 8, 512, 16)
    rng = np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal(b.shape).astype("float32") for b in dag.inputs}
    expected = evaluate(dag, arrays, accumulate=np.float64)[dag.outputs[0].name]
    trace = Trace((UseAlgorithm("conv", "winograd_f4"),))
    found = Module(compile_trace(dag, trace, parse("llvm"))).bind(w=arrays["w"])(arrays["x"])
    assert np.abs(found - expected).max() <= 0.5 * TOLERANCE * np.abs(expected).max()


def test_integers_are_refused():
    """Its fractions would be lost, because the program has a product of int32."""
    x = te.placeholder((1, 9, 9, 16), "int32", name="x")
    w = te.placeholder((16, 16, 3, 3), "int32", name="w", constant=True)
    dag = ComputeDAG.of([x, w, OPERATORS.get("conv2d").compute(x, w, padding=1, layout="NHWC")])
    with pytest.raises(ScheduleError):
        Trace((UseAlgorithm("conv", "winograd_f4"),)).replay(dag)
    for target in ("llvm -mcpu=haswell", "llvm -mcpu=x86-64-v4"):
        assert not any("winograd" in s.made_by for s in generate(dag, parse(target)))


@pytest.mark.parametrize("algorithm", ["winograd_f2", "winograd_f4"])
@pytest.mark.parametrize(
    "size", [(8, 8, 4, 16, 1), (7, 7, 16, 3, 1), (5, 9, 3, 17, 1), (3, 3, 1, 1, 0), (14, 6, 8, 8, 0)]
)
def test_equals_direct_convolution(algorithm, size):
    *shape, padding = size
    dag = conv(*shape, padding=padding)
    rng = np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal(b.shape).astype("float32") for b in dag.inputs}
    expected = evaluate(dag, arrays, accumulate=np.float64)[dag.outputs[0].name]
    trace = Trace((UseAlgorithm("conv", algorithm),))
    assert Trace.from_json(trace.to_json()) == trace
    f = Module(compile_trace(dag, trace, parse("llvm"))).bind(w=arrays["w"])
    assert np.abs(f(arrays["x"]) - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("algorithm", ["winograd_f2", "winograd_f4"])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 1, (0, 1, 1)), (2, 1, (0, 1, 1, 1, 0, 0))]
)
def test_planes_of_a_three_dimensional_convolution(algorithm, kernel, stride, padding):
    x = te.placeholder((2, 4, 7, 6, 5), name="x")
    w = te.placeholder((3, 5, kernel, 3, 3), name="w", constant=True)
    attrs = {"stride": (stride, 1, 1), "padding": padding, "layout": "NDHWC"}
    y = OPERATORS.get("conv3d").compute(x, w, **attrs)
    dag = ComputeDAG.of([x, w, OPERATORS.get("relu").compute(y)])
    rng = np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal(b.shape).astype("float32") for b in dag.inputs}
    expected = evaluate(dag, arrays, accumulate=np.float64)[dag.outputs[0].name]
    f = Module(compile_trace(dag, Trace((UseAlgorithm("conv", algorithm),)), parse("llvm")))
    found = f.bind(w=arrays["w"])(arrays["x"])
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_does_not_fit_a_strided_convolution():
    with pytest.raises(ScheduleError, match="'winograd_f4' does not fit stage 'conv'"):
        Trace((UseAlgorithm("conv", "winograd_f4"),)).replay(conv(8, 8, 4, 4, stride=2))


def test_unknown_algorithm_names_the_known_ones():
    with pytest.raises(
        ScheduleError, match=r"'fft' is unknown\. Known: .*late_choice, .*winograd_f2, winograd_f4"
    ):
        Trace((UseAlgorithm("conv", "fft"),)).replay(conv(8, 8, 4, 4))
