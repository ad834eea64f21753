"""Finds attention whose queries, keys and values are views of one product, whatever these views are.

    y = dense(x, [wq wk wv])                                 [batch * tokens, 3 * heads * depth]
    attention(views(y), views(y), views(y))                  ──▶  self_attention(reshape(y))

torch's MultiheadAttention transposes the joint product three times before it takes its thirds, and tokens
come before the batch. The rule does not match a list of views. It sends an array of positions in y through
the views, and compares the result with the positions that self_attention reads. If the tokens come first, the
rows are transposed once, before the product.
"""

from __future__ import annotations

from math import prod

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode
from autotensor.graph.rules.attention import SWAPPED, merged
from autotensor.graph.rules.canonical import reshape, transpose
from autotensor.ir.rewrite import Rules, rule
from autotensor.operators import OPERATORS

VIEWS = ("reshape", "transpose", "slice", "squeeze", "unsqueeze", "flatten")
MOST = 1 << 24  # most elements of a product that is checked; with more, the positions take a second


def joint_products(graph: Graph) -> Graph:
    """The graph with self_attention where queries, keys and values are read from one product."""
    return rewrite_graph(graph, JOINT, name="joint products")


@rule(Apply)
def views_of_one(node: Apply, uses: Uses) -> GraphNode | None:
    """attention(views(y), views(y), views(y)) ──▶ self_attention(reshape(y))"""
    if node.op != "attention":
        return None
    heads_first = node.attr("layout") == "BHND"
    operands = node.inputs[:3]
    root = _root(operands[0])
    size = 3 * prod(operands[0].shape)
    if prod(root.shape) != size or size > MOST or len({x.shape for x in operands}) != 1:
        return None
    if isinstance(root, Constant) or any(_root(x) is not root for x in operands[1:]):
        return None
    # positions of y's elements, each array [batch, tokens, heads, depth]
    read = [_positions(x, root) for x in operands]
    if heads_first:
        read = [x.transpose(SWAPPED) for x in read]
    batch, tokens, heads, depth = read[0].shape
    together = np.stack(read, axis=2)  # [batch, tokens, 3, heads, depth]
    here = np.arange(size).reshape(batch, tokens, -1)
    wide = (batch * tokens, 3 * heads * depth)
    if np.array_equal(together.reshape(here.shape), here):
        rows = reshape(root, wide)
    elif np.array_equal(together.reshape(here.shape), here.reshape(tokens, batch, -1).swapaxes(0, 1)):
        rows = _batch_first(reshape(root, wide), tokens, batch)
    else:
        return None
    found = merged(node, rows, (batch, tokens, heads, depth))
    return transpose(found, SWAPPED) if heads_first else found


def _root(x: GraphNode) -> GraphNode:
    """The value of which x is a view."""
    while isinstance(x, Apply) and x.op in VIEWS:
        x = x.inputs[0]
    return x


def _positions(x: GraphNode, root: GraphNode) -> Array:
    """For each element of x, its position in `root`, row-major."""
    if x is root:
        return np.arange(prod(x.shape)).reshape(x.shape)
    assert isinstance(x, Apply)
    assert isinstance(x.op, str)
    found: Array = OPERATORS.get(x.op).reference(_positions(x.inputs[0], root), **dict(x.attrs))
    return found


def _batch_first(y: GraphNode, tokens: int, batch: int) -> GraphNode:
    """Rows [tokens * batch, n] as [batch * tokens, n].

    If y is a product, its operand's rows are moved instead: the operand is narrower, and often a transpose
    made it.
    """
    match y:
        case Apply("add", (Apply("dense") as product, Constant() as bias)) if bias.ndim == 1:
            return y.given((_batch_first(product, tokens, batch), bias))
        case Apply("dense", (x, weights, *bias)):
            return y.given((_batch_first(x, tokens, batch), weights, *bias))
    apart = reshape(y, (tokens, batch, y.shape[1]))
    return reshape(transpose(apart, (1, 0, 2)), y.shape)


JOINT = Rules(views_of_one)
