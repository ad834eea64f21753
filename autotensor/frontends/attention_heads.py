"""Grouped heads of attention, as ONNX and torch have them: one key serves several queries."""

from __future__ import annotations

from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode


def repeated(x: GraphNode, heads: int) -> GraphNode:
    """[b, g, n, d] ──▶ [b, heads, n, d], each head heads / g times in a row."""
    b, g, n, d = x.shape
    wide = ops.broadcast_to(ops.unsqueeze(x, axes=(2,)), shape=(b, g, heads // g, n, d))
    result: GraphNode = ops.reshape(wide, shape=(b, heads, n, d))
    return result
