"""Conversions while a kernel loads: of weights in few bits, and of values stored in 16 bits for a product.

dense(x, multiply(cast(int8[n, k]), scale[n, 1]))       one group; the packed weight keeps its 8 bits
conv2d(y: bfloat16, w: bfloat16, sums="float32")        y is stored in 16 bits;
add(z, cast(y, float32))                                another reader widens it, too
"""

from __future__ import annotations

from autotensor.graph.ir import Apply, Constant, Graph, GraphNode

PRODUCTS = ("dense", "matmul", "batch_matmul")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")


MOST = 6  # most operators in a row; DequantizeLinear has four


def is_converted(node: GraphNode, most: int = MOST) -> bool:
    """Whether the node is computed from constants by a few of the library's elementwise operators."""
    return most > 0 and (
        isinstance(node, Apply)
        and isinstance(node.op, str)
        and node.is_elementwise
        and all(isinstance(x, Constant) or is_converted(x, most - 1) for x in node.inputs)
    )


def is_widened(node: GraphNode) -> bool:
    """Whether the node has no bytes of its own: kernels convert its input's elements while loading them."""
    return isinstance(node, Apply) and node.op == "cast" and bool(node.attr("as_read"))


def is_weight(reader: Apply, node: GraphNode) -> bool:
    """Whether the reader is a product and reads the node only as its second operand."""
    return reader.op in PRODUCTS and reader.inputs[1] is node and reader.inputs.count(node) == 1


def converted_weights(graph: Graph) -> set[GraphNode]:
    """The conversions that are part of products' kernels and have no other reader."""
    found: set[GraphNode] = set()
    for node in reversed(graph.applies):
        readers = graph.consumers[node]
        if node in graph.outputs or not readers or not is_converted(node):
            continue
        if all(r in found or is_weight(r, node) for r in readers):
            found.add(node)
    return found
