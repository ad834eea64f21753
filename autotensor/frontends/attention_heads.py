"""Heads of attention in ONNX and torch: split, joined, and one key for several queries."""

from __future__ import annotations

from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode

SWAPPED = (0, 2, 1, 3)  # swaps heads and tokens


def apart(x: GraphNode, heads: int) -> GraphNode:
    """[batch, tokens, heads * depth] ──▶ [batch, heads, tokens, depth]"""
    batch, tokens, width = x.shape
    return ops.transpose(ops.reshape(x, shape=(batch, tokens, heads, width // heads)), axes=SWAPPED)


def together(x: GraphNode) -> GraphNode:
    """[batch, heads, tokens, depth] ──▶ [batch, tokens, heads * depth]"""
    batch, heads, tokens, depth = x.shape
    return ops.reshape(ops.transpose(x, axes=SWAPPED), shape=(batch, tokens, heads * depth))


def turned(x: GraphNode) -> GraphNode:
    """[batch, heads, tokens, depth] ──▶ [batch, heads, depth, tokens]"""
    return ops.transpose(x, axes=(0, 1, 3, 2))


def repeated(x: GraphNode, heads: int, batch: int = 0) -> GraphNode:
    """[b, g, n, d] ──▶ [batch or b, heads, n, d], where each of the g heads is repeated heads / g times."""
    b, g, n, d = x.shape
    shape = (batch or b, heads)
    if (b, g) == shape:
        return x
    wide = ops.broadcast_to(ops.unsqueeze(x, axes=(2,)), shape=(shape[0], g, heads // g, n, d))
    return ops.reshape(wide, shape=(*shape, n, d))
