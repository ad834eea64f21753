"""Rounded sums are clamped as integers where their scales say that they fit, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.graph.build import input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.rules import optimize
from autotensor.graph.rules.quantised.whole_numbers import sums_in_32_bits

F = np.float32
RNG = np.random.default_rng(0)


def fits(y, *inputs):
    (node,) = sums_in_32_bits(Graph(inputs, (y,), "m")).outputs
    return node.attr("in_32_bits")


@pytest.mark.parametrize("scale", [0.002, 0.499, -0.2, [0.1, 0.2, 0.3]])
def test_small_scales_leave_room(scale):
    x = input((4, 3), "int32", name="x")
    assert fits(ops.requantize(x, np.asarray(scale, F), zero=3), x)


@pytest.mark.parametrize("scale", [0.51, 7.0, [0.1, 0.2, 3.0]])
def test_large_scales_do_not(scale):
    x = input((4, 3), "int32", name="x")
    assert not fits(ops.requantize(x, np.asarray(scale, F), zero=3), x)


def test_shifts_count():
    x, b, f = input((4, 3), "int32"), input((4, 3), "uint8"), input((4, 3), "float32")
    scale = F(0.1)
    assert fits(ops.requantize(x, scale, b, shift_scale=0.5, shift_zero=9), x, b)
    assert not fits(ops.requantize(x, scale, b, shift_scale=1e8), x, b)
    assert fits(ops.requantize(x, scale, np.array([1, 2, -5e8], F)), x)
    assert not fits(ops.requantize(x, scale, np.array([1, 2, -2e9], F)), x)
    assert not fits(ops.requantize(x, scale, np.array([1, 2, np.nan], F)), x)
    assert not fits(ops.requantize(x, scale, f), x, f)
    assert not fits(ops.requantize(f, scale), f)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("scale", [0.002, 0.49, 1e-9])
def test_the_bits_are_those_of_the_formula(scale, centred, dtype):
    x = input((3, 70), "int32", name="x")
    y = ops.requantize(x, F(scale), zero=-9 if dtype == "int8" else 131, dtype=dtype, centred=centred)
    graph = sums_in_32_bits(Graph((x,), (y,), "m"))
    assert graph.outputs[0].attr("in_32_bits")
    ends = np.array([-(2**31), 2**31 - 1, 0, 1, -1, 250, 750], np.int32)
    given = np.concatenate([ends, RNG.integers(-(2**31), 2**31, 140, np.int32), np.arange(-32, 31)])
    given = given.astype(np.int32).reshape(3, 70)
    got, want = at.compile_model(graph)(given), evaluate(Graph((x,), (y,), "m"), given)[0]
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


def test_a_quantised_product_is_clamped_as_integers():
    q = input((20, 64), "uint8", name="q")
    w = RNG.integers(-128, 128, (40, 64)).astype("int8")
    y = ops.dense(ops.dequantize(q, F(0.05), np.uint8(7)), ops.dequantize(w, F(0.01)))
    y = ops.quantize(y, F(0.1), np.uint8(99))
    (node,) = (n for n in optimize(Graph((q,), (y,), "m")).applies if n.op == "requantize")
    assert node.attr("in_32_bits")
