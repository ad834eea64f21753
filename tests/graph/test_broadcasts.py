"""Broadcasts are moved behind the operators that read them; masks of attention stay in their small form."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.graph.build import constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.rules import optimize
from autotensor.graph.rules.broadcasts import broadcasts_last

LOW = np.float32(-3.4e38)


def test_what_is_computed_from_a_broadcast_is_small():
    keep = input((1, 1, 1, 6), "bool", name="keep")
    y = ops.where(ops.broadcast_to(keep, shape=(2, 1, 6, 6)), constant(np.float32(0)), constant(LOW))
    (after,) = broadcasts_last(Graph(keep, y)).outputs
    assert (after.op, after.inputs[0].op, after.inputs[0].shape) == ("broadcast_to", "where", (1, 1, 1, 6))


def test_a_reader_that_broadcasts_takes_the_source():
    x, row = input((3, 4), name="x"), input((4,), name="row")
    wide = ops.broadcast_to(row, shape=(3, 4))
    assert broadcasts_last(Graph((x, row), x + wide)).outputs == (x + row,)
    column = ops.broadcast_to(ops.reshape(input((3,), name="c"), (3, 1)), shape=(3, 4))
    graph = broadcasts_last(Graph((*column.inputs[0].inputs, row), wide * column))
    assert graph.count("broadcast_to") == 0
    assert graph.outputs[0].shape == (3, 4)


@pytest.mark.parametrize("kind", ["bool", "float32"])
def test_a_mask_that_hides_nothing_goes(kind):
    q = input((1, 2, 5, 4), name="q")
    mask = constant(np.full((1, 1, 5, 5), kind == "bool", kind))
    assert broadcasts_last(Graph(q, ops.attention(q, q, q, mask))).outputs == (ops.attention(q, q, q),)


def test_a_mask_of_equal_rows_has_one(array):
    q = input((2, 2, 5, 4), name="q")
    row = np.where(np.arange(5) < 3, np.float32(0), LOW)
    mask = constant(np.broadcast_to(row, (2, 1, 5, 5)).copy())
    graph = Graph(q, ops.attention(q, q, q, mask))
    after = broadcasts_last(graph)
    assert after.outputs[0].inputs[3].shape == (1, 1, 1, 5)
    value = array(2, 2, 5, 4)
    np.testing.assert_array_equal(evaluate(graph, value)[0], evaluate(after, value)[0])


def test_exporters_masks_are_read_by_keys(array):
    """A mask of [batch, keys] flags, which are data, written out for all queries."""
    q, flags = input((2, 3, 8, 4), name="q"), input((2, 8), "bool", name="flags")
    keep = ops.broadcast_to(ops.reshape(flags, (2, 1, 1, 8)), shape=(2, 1, 8, 8))
    added = ops.where(keep, constant(np.float32(0)), constant(LOW))
    scores = ops.batch_matmul(q, ops.transpose(q, (0, 1, 3, 2))) * 0.5 + added
    graph = Graph((q, flags), ops.batch_matmul(ops.softmax(scores), q))
    after = optimize(graph)
    (node,) = [n for n in after.applies if n.op == "attention"]
    assert node.inputs[3].shape == (2, 1, 1, 8)
    value, given = array(2, 3, 8, 4), np.arange(16).reshape(2, 8) % 3 > 0
    np.testing.assert_allclose(
        evaluate(graph, value, given)[0], evaluate(after, value, given)[0], rtol=1e-5, atol=1e-6
    )
