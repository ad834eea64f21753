"""Queries, keys and values that are views of one product are read in place, in whatever way the views were
made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotensor.graph.build import input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.rules import optimize

HEADS, DEPTH = 2, 3
HIDDEN = HEADS * DEPTH


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def torch_heads(y, batch, tokens, thirds=(0, 1, 2)):
    """Queries, keys and values as torch takes them from rows [tokens * batch, 3 * hidden]."""
    y = ops.unsqueeze(ops.reshape(y, (tokens, batch, 3, HIDDEN)), axes=(0,))
    y = ops.reshape(ops.transpose(y, (3, 1, 2, 0, 4)), (3, tokens, batch, HIDDEN))
    parts = [ops.reshape(ops.slice(y, (n,), (n + 1,), axes=(0,)), (tokens, batch, HIDDEN)) for n in thirds]
    turned = [ops.transpose(ops.reshape(p, (tokens, batch * HEADS, DEPTH)), (1, 0, 2)) for p in parts]
    return [ops.reshape(p, (batch, HEADS, tokens, DEPTH)) for p in turned]


def same(graph, left):
    """The optimised graph has these operators, and the same values."""
    after = optimize(graph)
    assert {name: after.count(name) for name in left} == left
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(x.shape).astype(np.float32) for x in graph.inputs]
    for a, b in zip(evaluate(graph, *arrays), evaluate(after, *arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("biased", [True, False])
def test_torch_s_attention_of_one_sequence_moves_nothing(biased):
    x = input((1, 5, 7))
    bias = (numbers(3 * HIDDEN),) if biased else ()
    y = ops.dense(ops.reshape(ops.transpose(x, (1, 0, 2)), (5, 7)), numbers(3 * HIDDEN, 7), *bias)
    z = ops.attention(*torch_heads(y, 1, 5), causal=True)
    graph = Graph(x, ops.reshape(ops.transpose(z, (2, 0, 1, 3)), (5, HIDDEN)))
    same(graph, {"self_attention": 1, "attention": 0, "slice": 0, "transpose": 0, "dense": 1})


def test_a_batch_behind_the_tokens_changes_places_once_before_the_product():
    x = input((2, 5, 7))
    y = ops.dense(
        ops.reshape(ops.transpose(x, (1, 0, 2)), (10, 7)), numbers(3 * HIDDEN, 7), numbers(3 * HIDDEN)
    )
    z = ops.attention(*torch_heads(y, 2, 5))
    graph = Graph(x, ops.reshape(ops.transpose(z, (0, 2, 1, 3)), (10, HIDDEN)))
    same(graph, {"self_attention": 1, "slice": 0, "transpose": 0})  # that of x went away with it


def test_a_mask_stays():
    x, mask = input((4, 7), name="x"), input((1, 1, 4, 4), name="mask")
    y = ops.dense(x, numbers(3 * HIDDEN, 7))
    same(Graph((x, mask), ops.attention(*torch_heads(y, 1, 4), mask)), {"self_attention": 1, "slice": 0})


@pytest.mark.parametrize("thirds", [(1, 0, 2), (0, 0, 2), (2, 2, 2)])
def test_thirds_in_another_order_stay(thirds):
    x = input((4, 7))
    y = ops.dense(x, numbers(3 * HIDDEN, 7))
    same(Graph(x, ops.attention(*torch_heads(y, 1, 4, thirds))), {"self_attention": 0, "attention": 1})


def test_another_reader_of_the_product_reads_it_still():
    x = input((4, 7))
    y = ops.dense(x, numbers(3 * HIDDEN, 7))
    graph = Graph(x, (ops.attention(*torch_heads(y, 1, 4)), ops.relu(y)))
    same(graph, {"self_attention": 1, "dense": 1})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_the_views_values_stay(data):
    """Random views from one product to three operands: the numbers are the same, merged or not."""
    batch, tokens = data.draw(st.sampled_from([(1, 3), (2, 2), (2, 3), (3, 1)]))
    x = input((batch * tokens, 4))
    y = ops.dense(x, numbers(3 * HIDDEN, 4))
    names = {"b": batch, "n": tokens, "3": 3, "h": HEADS, "d": DEPTH}
    order = data.draw(st.permutations("bn3hd"))
    apart = ops.reshape(y, tuple(names[a] for a in order))
    turned = data.draw(st.permutations("bn3hd"))
    moved = ops.transpose(apart, tuple(order.index(a) for a in turned))
    third = turned.index("3")
    operands = []
    for n in range(3):
        one = ops.squeeze(ops.slice(moved, (n,), (n + 1,), axes=(third,)), axes=(third,))
        left = [a for a in turned if a != "3"]
        operands.append(ops.transpose(one, tuple(left.index(a) for a in "bhnd")))
    after = optimize(graph := Graph(x, ops.attention(*operands)))
    in_place = order[2:] == list("3hd")
    assert after.count("self_attention") == 1 or not in_place
    array = np.random.default_rng(2).standard_normal(x.shape).astype(np.float32)
    np.testing.assert_allclose(evaluate(graph, array)[0], evaluate(after, array)[0], rtol=1e-4, atol=1e-5)
