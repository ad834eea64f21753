"""A transposed convolution over a single pixel is a matrix product: DCGAN's first layer.

    relu(conv2d_transpose(z[n, 1, 1, c], w) + b)   ──▶   reshape(relu(dense(reshape(z), w as a matrix) + b))

The bias and the functions after it move before the reshape, where they are the product's epilogue.
"""

from __future__ import annotations

from math import prod

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.canonical import canonicalize, reshape
from autotensor.ir.rewrite import Rules, rule
from autotensor.operators import Kind


def single_pixels(graph: Graph) -> Graph:
    return canonicalize(rewrite_graph(graph, PIXELS, name="single pixels"))


@rule(Apply)
def pixel_product(node: Apply, uses: Uses) -> GraphNode | None:
    """conv2d_transpose(x[n, 1, 1, c], w[c, o, kh, kw]) ──▶ reshape(dense(x, w as [kh * kw * o, c]))"""
    match node:
        case Apply("conv2d_transpose", (x, Constant() as w)):
            pass
        case _:
            return None
    layout = str(node.attr("layout"))
    size = dict(zip(layout, node.shape, strict=True))
    inputs, outputs, kh, kw = w.shape
    pixel = prod(x.shape) == x.shape[0] * inputs
    if not pixel or node.attr("groups") != 1 or (size["H"], size["W"]) != (kh, kw):
        return None
    if any(_each(node.attr("padding"))) or any(_each(node.attr("output_padding"))):
        return None
    order = (2, 3, 1, 0) if layout == "NHWC" else (1, 2, 3, 0)
    matrix = np.ascontiguousarray(w.array.transpose(order).reshape(outputs * kh * kw, inputs))
    y = apply("dense", (reshape(x, (x.shape[0], inputs)), constant(matrix, w.name)))
    return reshape(y, node.shape)


def _each(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


@rule(Apply)
def function_before_reshape(node: Apply, uses: Uses) -> GraphNode | None:
    """relu(reshape(y)) ──▶ reshape(relu(y)), where y is a dense layer with an epilogue"""
    if not node.is_elementwise or len(node.inputs) != 1:
        return None
    y = _product_behind(node.inputs[0], uses)
    return None if y is None else reshape(node.given((y,)), node.shape)


@rule(Apply)
def constant_before_reshape(node: Apply, uses: Uses) -> GraphNode | None:
    """add(reshape(y[n, m]), c) ──▶ reshape(add(y, c spread over m)), where y is as above"""
    match node:
        case Apply("add" | "multiply", (Apply("reshape") as x, Constant() as c)):
            pass
        case _:
            return None
    y = _product_behind(x, uses)
    if y is None or node.shape != x.shape or y.ndim != 2 or 0 in y.shape:
        return None
    rows = np.broadcast_to(c.array, node.shape).reshape(y.shape)
    if not np.array_equal(rows, np.broadcast_to(rows[:1], rows.shape)):
        return None  # the rows of the product would get different numbers
    return reshape(node.given((y, constant(np.ascontiguousarray(rows[0]), c.name))), node.shape)


def _product_behind(x: GraphNode, uses: Uses) -> Apply | None:
    """y, if x is reshape(y), neither has another reader, and y is a dense layer with an epilogue."""
    match x:
        case Apply("reshape", (Apply() as y,)) if uses[x] == 1 and uses[y] == 1:
            pass
        case _:
            return None
    inner: GraphNode = y
    while isinstance(inner, Apply) and inner.kind is Kind.ELEMENTWISE and inner.shape == y.shape:
        if not inner.inputs:  # positions
            return None
        inner = inner.inputs[0]
    return y if isinstance(inner, Apply) and inner.op == "dense" and inner.shape == y.shape else None


PIXELS = Rules(pixel_product, function_before_reshape, constant_before_reshape)
