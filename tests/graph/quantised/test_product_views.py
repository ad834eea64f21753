"""Views and transpositions next to products of bytes cost no kernel, and change no bit."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.graph.build import input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.rules import optimize
from autotensor.graph.rules.quantised.product_views import views_behind

F = np.float32
RNG = np.random.default_rng(0)
N, K, M = 24, 32, 20


def real(q, scale=0.05, zero=120):
    return ops.dequantize(q, np.asarray(scale, F), np.asarray(zero, "uint8"))


def back(y, scale=0.02, zero=20):
    return ops.quantize(y, np.asarray(scale, F), np.asarray(zero, "uint8"))


def rounded(y):
    """As files have it: a byte behind every operator."""
    return real(back(y))


def product(q, shape=(1, M, N)):
    w = RNG.integers(-128, 128, (N, K)).astype("int8")
    return ops.reshape(rounded(ops.dense(real(q), ops.dequantize(w, np.asarray(0.003, F)))), shape=shape)


def _with_bias(q, r):
    return rounded(ops.add(product(q), RNG.standard_normal(N).astype(F)))


def _with_shortcut(q, r):
    return rounded(ops.add(_with_bias(q, r), real(r)))


def _with_function(q, r):
    return rounded(ops.gelu(product(q)))


def _in_heads(q, r):
    return rounded(ops.add(product(q, (1, M, 4, N // 4)), F(0.3)))


@pytest.mark.parametrize("function", [_with_bias, _with_shortcut, _with_function, _in_heads])
def test_one_kernel_is_left(function):
    q, r = input((M, K), "uint8", name="q"), input((1, M, N), "uint8", name="r")
    y = back(function(q, r), 0.03)
    graph = Graph((q, r), (y,), "m")
    assert len(at.plan_model(graph).tasks) == 1
    x = [RNG.integers(0, 256, i.shape).astype("uint8") for i in (q, r)]
    assert np.array_equal(at.compile_model(graph)(*x), evaluate(optimize(graph), *x)[0])


def test_views_that_others_read_and_columns_that_are_cut_stay():
    q = input((M, K), "uint8", name="q")
    y = product(q)
    halves = ops.reshape(y, shape=(1, M, 2, N // 2))
    for out in (
        (ops.add(y, F(1)), ops.multiply(y, F(2))),
        (ops.add(halves, RNG.standard_normal(N // 2).astype(F)),),
        (ops.add(ops.reshape(real(q), shape=(1, M, K)), F(1)),),
    ):
        assert "reshape" not in [o.op for o in views_behind(Graph((q,), out, "m")).outputs]


# -- transpositions --------------------------------------------------------------------------------------

HEADS, ROWS, KEYS, DEPTH = 3, 9, 20, 16


def scores(axes, shape):
    """Products of two activations; the second one is transposed."""
    q, k = input((1, HEADS, ROWS, DEPTH), "uint8", name="q"), input(shape, "uint8", name="k")
    y = ops.batch_matmul(real(q, zero=130), ops.transpose(real(k, zero=117), axes=axes))
    return Graph((q, k), (ops.quantize(y, F(0.2), np.uint8(99)),), "m")


def check(graph, left):
    ran = optimize(graph)
    assert [n.op for n in ran.applies if n.op == "transpose"] == left
    x = [RNG.integers(0, 256, i.shape).astype("uint8") for i in graph.inputs]
    got = at.compile_model(graph)(*x)
    assert np.array_equal(got, evaluate(ran, *x)[0])
    assert np.abs(got.astype(int) - evaluate(graph, *x)[0]).max() <= 1
    return ran


@pytest.mark.parametrize(
    ("axes", "shape", "left"),
    [
        ((0, 2, 3, 1), (1, KEYS, HEADS, DEPTH), ["transpose"]),  # heads are still apart
        ((0, 1, 3, 2), (1, HEADS, KEYS, DEPTH), []),
    ],
)
def test_keys_are_read_as_they_lie(axes, shape, left):
    (product,) = (n for n in check(scores(axes, shape), left).applies if n.op == "batch_matmul")
    assert product.attr("transpose_b")


def test_a_transposition_that_does_not_turn_rows_stays():
    (product,) = (
        n
        for n in check(scores((0, 2, 1, 3), (1, DEPTH, HEADS, KEYS)), ["transpose"]).applies
        if n.op == "batch_matmul"
    )
    assert not product.attr("transpose_b")
