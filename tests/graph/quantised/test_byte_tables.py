"""Functions of one byte become tables, with the bits of the formula that the graph writes."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.graph.build import input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.rules import optimize
from autotensor.graph.rules.quantised.byte_tables import byte_tables

F = np.float32
RNG = np.random.default_rng(0)


def real(q, scale=0.05, zero=120, dtype="uint8"):
    return ops.dequantize(q, np.asarray(scale, F), np.asarray(zero, dtype))


def back(y, scale=0.02, zero=20, dtype="uint8"):
    return ops.quantize(y, np.asarray(scale, F), np.asarray(zero, dtype), dtype=dtype)


def silu_in_parts(q, dtype):
    """x * sigmoid(x), rounded in between as files have it."""
    x = real(q, dtype=dtype, zero=3)
    return back(ops.multiply(x, real(back(ops.sigmoid(x), 1 / 255, 0), 1 / 255, 0)), dtype=dtype)


def gelu_in_parts(q, dtype):
    x = real(q, dtype=dtype, zero=-3 if dtype == "int8" else 130)
    half = real(back(ops.multiply(x, F(0.5)), 0.025, 128), 0.025, 128)
    rest = real(back(ops.add(ops.erf(ops.divide(x, F(2**0.5))), F(1)), 0.008, 0), 0.008, 0)
    return back(ops.multiply(half, rest), 0.03, 9, dtype)


FUNCTIONS = {
    "gelu": lambda q, dtype: back(ops.gelu(real(q, zero=0, dtype=dtype)), dtype=dtype),
    "hardswish": lambda q, dtype: back(ops.hardswish(real(q, zero=0, dtype=dtype)), dtype=dtype),
    "logarithm of negatives": lambda q, dtype: back(ops.log(real(q, zero=7, dtype=dtype)), dtype=dtype),
    "silu in parts": silu_in_parts,
    "gelu in parts": gelu_in_parts,
}


def every(dtype, shape):
    """Every byte, and some bytes twice."""
    return np.resize(np.arange(256, dtype=np.uint8).view(dtype), shape)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.sample(8)
def test_a_function_of_a_byte_is_one_table(function, dtype, target):
    for shape in ((7, 91), (1, 5, 9, 24), (300,)):
        q = input(shape, dtype, name="q")
        graph = Graph((q,), (FUNCTIONS[function](q, dtype),), "m")
        assert [n.op for n in optimize(graph).applies] == ["byte_table"]
        x = every(dtype, shape)
        assert np.array_equal(at.compile_model(graph, target=target)(x), evaluate(graph, x)[0])


def test_a_table_is_part_of_the_kernel_of_a_product():
    q = input((20, 64), "uint8", name="q")
    w = RNG.integers(-128, 128, (40, 64)).astype("int8")
    product = ops.dense(real(q), ops.dequantize(w, np.asarray(0.01, F)))
    y = back(ops.gelu(real(back(product, 0.1, 100), 0.1, 100)))
    graph = Graph((q,), (y,), "m")
    assert [n.op for n in optimize(graph).applies] == ["dense", "requantize", "byte_table"]
    assert len(at.plan_model(graph).tasks) == 1
    x = RNG.integers(0, 256, q.shape).astype("uint8")
    assert np.array_equal(at.compile_model(graph)(x), evaluate(optimize(graph), x)[0])


def test_a_table_keeps_its_elements_where_channels_come_last():
    q = input((1, 4, 6, 6), "uint8", name="q")
    w = RNG.integers(-128, 128, (8, 4, 3, 3)).astype("int8")
    product = ops.conv2d(real(q), ops.dequantize(w, np.asarray(0.01, F)), padding=1)
    turned = ops.dequantize(w.swapaxes(0, 1), F(1))
    y = ops.conv2d(real(silu_in_parts(back(product, 0.05, 3), "uint8")), turned)
    graph = Graph((q,), (back(y, 2.0),), "m")
    assert "byte_table" in [n.op for n in optimize(graph).applies]
    x = RNG.integers(0, 256, q.shape).astype("uint8")
    assert np.array_equal(at.compile_model(graph)(x), evaluate(optimize(graph), x)[0])


def _of_two(q, r):
    return back(ops.multiply(real(q), ops.sigmoid(real(r))))


def _of_channels(q, r):
    return back(ops.sigmoid(ops.dequantize(q, RNG.random(9).astype(F) + 1)))


def _next_to_channels(q, r):
    return back(ops.sigmoid(ops.add(real(q), RNG.random(9).astype(F))))


def _clipped(q, r):
    return back(ops.clip(real(q), min=-1.0, max=2.0))


@pytest.mark.parametrize("function", [_of_two, _of_channels, _next_to_channels, _clipped])
def test_other_functions_stay(function):
    q, r = (input((5, 9), "uint8", name=n) for n in "qr")
    graph = Graph((q, r), (function(q, r),), "m")
    assert byte_tables(graph).outputs == graph.outputs


def test_long_chains_of_two_bytes_end():
    """Without memory of what was seen, 200 nested steps of two uses each would never end."""
    q, r = (input((5, 9), "uint8", name=n) for n in "qr")
    y, z = q, r
    for n in range(200):
        y, z = back(ops.add(real(y), ops.sigmoid(real(z))), 0.02 + n / 1e4), y
    graph = byte_tables(Graph((q, r), (y,), "m"))
    assert not any(n.op == "byte_table" for n in graph.applies)


def test_what_a_byte_is_made_of_comes_together_again():
    """Bytes of several steps, each made of others and of the first one."""
    q = input((5, 90), "uint8", name="q")
    a = back(ops.tanh(real(q)), 0.01, 128)
    b = back(ops.add(real(a, 0.01, 128), real(q)), 0.06, 90)
    c = back(ops.multiply(real(b, 0.06, 90), real(a, 0.01, 128)), 0.07, 120)
    y = back(ops.add(ops.add(real(c, 0.07, 120), real(q)), real(b, 0.06, 90)), 0.2, 100)
    graph = Graph((q,), (y,), "m")
    assert [n.op for n in optimize(graph).applies] == ["byte_table"]
    x = every("uint8", q.shape)
    assert np.array_equal(at.compile_model(graph)(x), evaluate(graph, x)[0])
