"""Attention in transformers: heads are read where they were made, and three projections are one product."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.graph.build import input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.rules import optimize

BATCH, TOKENS, HEADS, DEPTH = 2, 5, 3, 4
HIDDEN = HEADS * DEPTH


def heads(x):
    return ops.transpose(ops.reshape(x, (BATCH, TOKENS, HEADS, DEPTH)), (0, 2, 1, 3))


def rows(x):
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (BATCH * TOKENS, HIDDEN))


def same(graph, left):
    """The optimised graph has these operators, and the same values."""
    after = optimize(graph)
    assert {name: after.count(name) for name in left} == left
    rng = np.random.default_rng(0)
    arrays = {
        n: rng.standard_normal(x.shape).astype(np.float32) if x.dtype.is_float else rng.random(x.shape) < 0.7
        for n, x in zip(graph.input_names, graph.inputs, strict=True)
    }
    for a, b in zip(evaluate(graph, **arrays), evaluate(after, **arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return after


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("attrs", [{}, {"causal": True, "scale": 0.3}], ids=["plain", "causal"])
def test_three_projections_become_one(array, biased, attrs):
    x = input((BATCH * TOKENS, 7))
    bias = [(array(HIDDEN),) if biased else () for _ in range(3)]
    q, k, v = (heads(ops.dense(x, array(HIDDEN, 7), *b)) for b in bias)
    graph = Graph(x, rows(ops.attention(q, k, v, **attrs)))
    same(graph, {"dense": 1, "self_attention": 1, "attention": 0, "transpose": 0, "slice": 0})


def test_parts_of_one_product_are_read_where_they_are(array):
    x = input((BATCH * TOKENS, 7))
    y = ops.matmul(x, array(7, 3 * HIDDEN)) + array(3 * HIDDEN)
    q, k, v = (heads(ops.slice(y, (n * HIDDEN,), ((n + 1) * HIDDEN,), axes=(1,))) for n in range(3))
    graph = Graph(x, rows(ops.attention(q, k, v, causal=True)))
    same(graph, {"dense": 1, "matmul": 0, "self_attention": 1, "slice": 0, "transpose": 0})


def test_a_mask_stays(array):
    x, mask = input((BATCH * TOKENS, 7)), input((BATCH, 1, 1, TOKENS), "bool", "mask")
    q, k, v = (heads(ops.dense(x, array(HIDDEN, 7))) for _ in range(3))
    graph = Graph((x, mask), rows(ops.attention(q, k, v, mask)))
    same(graph, {"dense": 1, "self_attention": 1})


def test_parts_in_another_order_stay_slices(array):
    x = input((BATCH * TOKENS, 7))
    y = ops.dense(x, array(3 * HIDDEN, 7))
    q, k, v = (heads(ops.slice(y, (n * HIDDEN,), ((n + 1) * HIDDEN,), axes=(1,))) for n in (1, 0, 2))
    same(Graph(x, rows(ops.attention(q, k, v))), {"self_attention": 0, "attention": 1, "slice": 3})


def test_a_projection_that_others_read_stays(array):
    x = input((BATCH * TOKENS, 7))
    projected = [ops.dense(x, array(HIDDEN, 7)) for _ in range(3)]
    y = rows(ops.attention(*(heads(p) for p in projected)))
    same(Graph(x, (y, ops.relu(projected[0]))), {"dense": 3, "attention": 1, "self_attention": 0})


def test_projections_of_two_inputs_stay(array):
    x, z = input((BATCH * TOKENS, 7), name="x"), input((BATCH * TOKENS, 7), name="z")
    q, k, v = (heads(ops.dense(s, array(HIDDEN, 7))) for s in (x, z, z))
    same(Graph((x, z), rows(ops.attention(q, k, v))), {"dense": 3, "attention": 1, "transpose": 0})


def test_attention_of_inputs_stays_as_written():
    q, k, v = (input((BATCH, HEADS, TOKENS, DEPTH), name=n) for n in "qkv")
    same(Graph((q, k, v), ops.attention(q, k, v)), {"attention": 1, "transpose": 0})
