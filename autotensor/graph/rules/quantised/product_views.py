"""Moves views and transposes next to products of a quantised graph to where they need no kernel.

    requantize(reshape(dense(x)), s)  ──▶  reshape(requantize(dense(x), s))      part of the product's kernel
    batch_matmul(q, transpose(k, (0, 2, 3, 1)))
        ──▶  batch_matmul(q, transpose(k, (0, 2, 1, 3)), transpose_b=True)

The other operands of a moved function must be numbers, have a number for each column, or have the shape of
the view. A product of bytes reads a transposed operand as it lies in memory: the product packs groups of the
summed axis into words in every call anyway. The rest of the transpose moves whole rows.
"""

from __future__ import annotations

from math import prod

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode
from autotensor.graph.rules.canonical import one_view, reshape, transpose, transposition
from autotensor.graph.rules.quantised.integer_products import PRODUCTS
from autotensor.ir.rewrite import Rules, rule
from autotensor.operators import Kind

Shape = tuple[int, ...]


# -- views ---------------------------------------------------------------------------------------------------


def views_behind(graph: Graph) -> Graph:
    return rewrite_graph(graph, Rules(one_view, view_behind), name="views behind")


@rule(Apply)
def view_behind(node: Apply, uses: Uses) -> GraphNode | None:
    """f(reshape(x), y) ──▶ reshape(f(x, reshape(y)))"""
    if not _is_pointwise(node):
        return None
    for n, view in enumerate(node.inputs):
        if n in node.tables or view.shape != node.shape or uses[view] > 1:
            continue
        match view:
            case Apply("reshape", (x,)) if _follows_product(x):
                inputs = [
                    y if k in node.tables else _in_shape(y, node.shape, x.shape)
                    for k, y in enumerate(node.inputs)
                ]
                if None not in inputs:
                    return reshape(node.given([y for y in inputs if y is not None]), node.shape)
    return None


def _is_pointwise(node: Apply) -> bool:
    return isinstance(node.op, str) and node.results == 1 and node.is_elementwise


def _follows_product(x: GraphNode) -> bool:
    """Whether a value is a product's result, or is computed from one by elementwise operators."""
    while isinstance(x, Apply) and _is_pointwise(x):
        x = next((y for y in x.inputs if y.shape == x.shape and not isinstance(y, Constant)), x.inputs[0])
    return isinstance(x, Apply) and x.kind is Kind.ANCHOR


def _in_shape(y: GraphNode, old: Shape, new: Shape) -> GraphNode | None:
    """An operand in the new shape, for an operator that had the old shape; None if it has no such form."""
    if y.shape == old:
        return reshape(y, new)
    if prod(y.shape) == 1:
        return reshape(y, ())
    columns = old[-1]
    same = y.shape[-1:] == (columns,) and prod(y.shape) == columns and new[-1:] == (columns,)
    return reshape(y, (columns,)) if same else None


# -- transposes ----------------------------------------------------------------------------------------------


def as_they_lie(graph: Graph) -> Graph:
    return rewrite_graph(graph, Rules(_as_it_lies), name="turned operands")


@rule(Apply)
def _as_it_lies(node: Apply, uses: Uses) -> GraphNode | None:
    if node.op not in PRODUCTS or node.attr("zeros") is None:
        return None
    match node.inputs:
        case (x, Apply("transpose", (y,)) as turned):
            *outer, row, column = transposition(turned)
        case _:
            return None
    if row != y.ndim - 1:
        return None
    return node.given((x, transpose(y, (*outer, column, row))), transpose_b=not node.attr("transpose_b"))
