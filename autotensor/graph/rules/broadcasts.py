"""Moves broadcasts behind the operators that read them, and drops those whose reader broadcasts anyway.

    where(broadcast_to(c), 0, -inf)   ──▶  broadcast_to(where(c, 0, -inf))
    scores + broadcast_to(mask)       ──▶  scores + mask
    attention(q, k, v, broadcast_to(mask))  ──▶  attention(q, k, v, mask), without a mask that hides nothing

Exporters write out masks of [batch, 1, queries, keys] from one number for each key. A mask of 3000 tokens
that is written out takes 36 MB, and every head reads all of it.
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.ir.rewrite import Rules, rule

QUERIES = {"attention": 3, "self_attention": 1}  # number of operands before the mask


def broadcasts_last(graph: Graph) -> Graph:
    return rewrite_graph(graph, BROADCASTS, name="broadcasts last")


@rule(Apply)
def behind(node: Apply, uses: Uses) -> GraphNode | None:
    """f(broadcast_to(x), y) ──▶ f(x, y), followed by a broadcast if the shape needs one"""
    if not node.is_elementwise:
        return None
    inputs = tuple(_source(x) for x in node.inputs)
    if inputs == node.inputs:
        return None
    made = node.given(inputs)
    return made if made.shape == node.shape else apply("broadcast_to", (made,), {"shape": node.shape})


@rule(Apply)
def mask_as_it_is_made(node: Apply, uses: Uses) -> GraphNode | None:
    """attention(q, k, v, broadcast_to(mask)) ──▶ attention(q, k, v, mask), or without the mask"""
    if not isinstance(node.op, str) or len(node.inputs) <= QUERIES.get(node.op, len(node.inputs)):
        return None
    *operands, mask = node.inputs
    source = _source(mask)
    if isinstance(source, Constant):
        small = _compact(source.array)
        if _hides_nothing(small):
            return node.given(operands)
        source = source if small.shape == source.shape else constant(small, source.name)
    return None if source is mask else node.given((*operands, source))


def _source(x: GraphNode) -> GraphNode:
    """The value below broadcasts."""
    while isinstance(x, Apply) and x.op == "broadcast_to":
        x = x.inputs[0]
    return x


def _compact(array: Array) -> Array:
    """The array with one element along every axis along which all elements are equal."""
    for axis in range(array.ndim):
        first = array.take([0], axis) if array.shape[axis] else array
        if array.shape[axis] > 1 and bool((array == first).all()):
            array = first
    return np.ascontiguousarray(array).reshape(array.shape)


def _hides_nothing(mask: Array) -> bool:
    return bool(mask.all()) if mask.dtype == bool else not mask.any()


BROADCASTS = Rules(behind, mask_as_it_is_made)
