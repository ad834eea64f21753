"""Attention whose queries, keys and values are views of one product, by whatever views they came about.

    y = dense(x, [wq wk wv])                                 [batch * tokens, 3 * heads * depth]
    attention(views(y), views(y), views(y))                  ──▶  self_attention(reshape(y))

torch's MultiheadAttention turns the joint product round three times before it takes its thirds, with tokens
in front of the batch. No list of views is matched: an array of positions in y goes through them, and what
comes out is compared with where self_attention reads. Where the tokens are in front, rows change places once,
before the product.
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
MOST = 1 << 24  # elements of a product that is followed: beyond, its positions take a second


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
    # positions of y's elements, each [batch, tokens, heads, depth]
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
    """The value that x is a view of."""
    while isinstance(x, Apply) and x.op in VIEWS:
        x = x.inputs[0]
    return x


def _positions(x: GraphNode, root: GraphNode) -> Array:
    """For each element of x the position in its root, row-major."""
    if x is root:
        return np.arange(prod(x.shape)).reshape(x.shape)
    assert isinstance(x, Apply)
    assert isinstance(x.op, str)
    found: Array = OPERATORS.get(x.op).reference(_positions(x.inputs[0], root), **dict(x.attrs))
    return found


def _batch_first(y: GraphNode, tokens: int, batch: int) -> GraphNode:
    """Rows [tokens * batch, n] as [batch * tokens, n]; they change places before the product if y is one, for
    its operand is narrower, and often was turned round itself."""
    match y:
        case Apply("add", (Apply("dense") as product, Constant() as bias)) if bias.ndim == 1:
            return y.given((_batch_first(product, tokens, batch), bias))
        case Apply("dense", (x, weights, *bias)):
            return y.given((_batch_first(x, tokens, batch), weights, *bias))
    apart = reshape(y, (tokens, batch, y.shape[1]))
    return reshape(transpose(apart, (1, 0, 2)), y.shape)


JOINT = Rules(views_of_one)
