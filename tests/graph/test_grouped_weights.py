"""Weights with scales by groups stay in 4 or 8 bits where few rows read them."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.graph.build import constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.rules.grouped_weights import grouped_weights

F = np.float32
RNG = np.random.default_rng(0)
N, K = 6, 96


def weights(dtype="int8", low=-8, high=8, group=32, zeros=False, k=K):
    """[n, k], as DequantizeLinear writes them."""
    places = np.arange(k) // group
    scale = (RNG.random((N, places[-1] + 1)) + 0.2).astype(F)
    more = [scale, *([RNG.integers(low, high, scale.shape).astype(dtype)] if zeros else [])]
    spread = [ops.take(constant(t), constant(places), axis=1) for t in more]
    return ops.dequantize(constant(RNG.integers(low, high, (N, k)).astype(dtype)), *spread)


def turned(w):
    return ops.transpose(w, axes=(1, 0))


@pytest.mark.parametrize(
    ("product", "given", "bits"),
    [
        (ops.dense, {}, 4),
        (ops.dense, {"dtype": "uint8", "low": 0, "high": 16}, 4),
        (ops.dense, {"zeros": True}, 4),
        (ops.dense, {"dtype": "uint8", "low": 0, "high": 16, "zeros": True}, 4),
        (ops.dense, {"high": 9}, 8),
        (ops.dense, {"dtype": "uint8", "low": 0, "high": 256, "zeros": True}, 8),
        (ops.dense, {"low": -128, "high": 128, "zeros": True}, 8),
        (ops.dense, {"group": 64}, 4),
        (ops.dense, {"group": 48}, 4),  # three of 16
        (ops.dense, {"k": 91}, 4),
        (lambda x, w: ops.dense(x, w, np.arange(N, dtype=F)), {}, 4),
        (lambda x, w: ops.matmul(x, turned(w)), {"zeros": True}, 4),
        (lambda x, w: ops.matmul(x, w, transpose_b=True), {}, 4),
    ],
)
def test_they_mean_the_same(product, given, bits):
    w = weights(**given)
    x = input((3, w.shape[1]))
    graph = Graph((x,), (product(x, w),), "m")
    form = grouped_weights(graph)
    (found,) = [n for n in form.applies if n.op == "dense_nbits"]
    assert found.attr("bits") == bits
    a = RNG.standard_normal(x.shape).astype(F)
    np.testing.assert_allclose(evaluate(form, a)[0], evaluate(graph, a)[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("rows", "given"),
    [(17, {}), (3, {"group": 1 << 20}), (3, {"group": 8}), (3, {"group": 24})],
    ids=["many rows", "one scale a row", "small groups", "groups of no power of two"],
)
def test_others_become_floats(rows, given):
    x = input((rows, K))
    graph = Graph((x,), (ops.dense(x, weights(**given)),), "m")
    assert grouped_weights(graph).outputs == graph.outputs


def test_a_scale_that_a_run_brings():
    x, s = input((3, K)), input((N, K), name="s")
    q = constant(RNG.integers(-8, 8, (N, K)).astype(np.int8))
    graph = Graph((x, s), (ops.dense(x, ops.dequantize(q, s)),), "m")
    assert grouped_weights(graph).outputs == graph.outputs
