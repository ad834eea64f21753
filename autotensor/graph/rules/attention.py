"""Attention in a transformer: heads are read in place, and one product makes queries, keys and values.

    q = transpose(reshape(dense(x, wq) + bq))   ─┐
    k = transpose(reshape(dense(x, wk) + bk))    ├─ attention ─ transpose ─ reshape
    v = transpose(reshape(dense(x, wv) + bv))   ─┘
    ──▶  reshape(self_attention(reshape(dense(x, [wq wk wv]) + [bq bk bv])))

Dense layers with the same input are merged only here, because attention reads queries, keys and values in
place from the wide result. Any other reader would need copies of its part, which cost more than one wider
product saves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.canonical import canonicalize, reshape, transpose, transposition
from autotensor.ir.rewrite import Rules, rule

SWAPPED = (0, 2, 1, 3)  # exchanges heads and tokens


def in_place(graph: Graph) -> Graph:
    """The graph in which attention reads heads and operands directly from the arrays that hold them."""
    return canonicalize(rewrite_graph(graph, ATTENTION, name="attention"))


@rule(Apply)
def heads_in_place(node: Apply, uses: Uses) -> GraphNode | None:
    """attention(transpose(q), transpose(k), transpose(v)) ──▶ transpose(attention(q, k, v, layout=BNHD))"""
    if node.op != "attention" or node.attr("layout") != "BHND":
        return None
    sources = []
    for x in node.inputs[:3]:
        if not (isinstance(x, Apply) and x.op == "transpose" and transposition(x) == SWAPPED):
            return None
        sources.append(x.inputs[0])
    return transpose(node.given((*sources, *node.inputs[3:]), layout="BNHD"), SWAPPED)


@rule(Apply)
def parts_of_one(node: Apply, uses: Uses) -> GraphNode | None:
    """attention(reshape(y[:, :h]), reshape(y[:, h:2h]), reshape(y[:, 2h:])) ──▶ self_attention(reshape(y))"""
    rows = _rows(node, uses)
    if rows is None:
        return None
    sources = {p.inputs[0] for p in rows if p.op == "slice"}
    width = rows[0].shape[1]
    if len(sources) != 1 or any(p.op != "slice" for p in rows):
        return None
    (y,) = sources
    if y.shape != (rows[0].shape[0], 3 * width):
        return None
    if any(not _is_part(p, n * width, width) for n, p in enumerate(rows)):
        return None
    return merged(node, y, node.shape)


@rule(Apply)
def one_product(node: Apply, uses: Uses) -> GraphNode | None:
    """attention of three dense layers with one input ──▶ self_attention of one layer of triple width"""
    rows = _rows(node, uses)
    if rows is None:
        return None
    found = [_projection(p, uses) for p in rows]
    projections = [p for p in found if p is not None]
    if len(projections) != 3 or any(p.x is not projections[0].x for p in projections):
        return None
    if len({p.bias is None for p in projections}) != 1:
        return None
    weights = np.concatenate([p.weights.array for p in projections])  # [3 * hidden, k]
    y: GraphNode = apply(
        "dense", (projections[0].x, constant(weights, _common([p.weights for p in projections])))
    )
    biases = [p.bias for p in projections if p.bias is not None]
    if biases:
        joined = np.concatenate([b.array.reshape(-1) for b in biases])
        y = apply("add", (y, constant(joined, _common(biases))))
    return merged(node, y, node.shape)


@dataclass(frozen=True, slots=True)
class _Projection:
    """x @ weightsᵀ + bias"""

    x: GraphNode
    weights: Constant
    bias: Constant | None


def _rows(node: Apply, uses: Uses) -> tuple[Apply, ...] | None:
    """The matrices [batch * tokens, hidden] of which queries, keys and values are views; otherwise None.

    Each matrix must have no other reader, and all three must have the same number of tokens.
    """
    if node.op != "attention" or node.attr("layout") != "BNHD":
        return None
    q = node.inputs[0].shape
    rows = []
    for x in node.inputs[:3]:
        if x.shape != q or not (isinstance(x, Apply) and x.op == "reshape" and uses[x] == 1):
            return None
        source = x.inputs[0]
        if not isinstance(source, Apply) or uses[source] != 1 or source.shape != (q[0] * q[1], q[2] * q[3]):
            return None
        rows.append(source)
    return tuple(rows)


def _is_part(node: Apply, begin: int, width: int) -> bool:
    """Whether the slice takes the columns begin … begin + width - 1, and all rows."""
    columns = tuple(a % 2 for a in node.attr("axes")) == (1,)
    steps = node.attr("stride") in ((), (1,))
    return columns and steps and node.attr("begin") == (begin,) and node.attr("end") == (begin + width,)


def _projection(node: Apply, uses: Uses) -> _Projection | None:
    bias: Constant | None = None
    inner: GraphNode = node
    match node:
        case Apply("add", (Apply("dense") as inner, Constant() as bias)):
            if uses[inner] != 1 or bias.array.size != node.shape[1]:
                return None
    match inner:
        case Apply("dense", (x, Constant() as weights)):
            return _Projection(x, weights, bias)
    return None


def merged(node: Apply, y: GraphNode, shape: tuple[int, ...]) -> GraphNode:
    """self_attention on y [batch * tokens, 3 * hidden], with the attributes and the mask of `node`.

    shape: the shape of the result, [batch, tokens, heads, depth].
    """
    batch, tokens, heads, depth = shape
    attrs = {name: node.attr(name) for name in ("causal", "scale", "hidden")}
    return apply("self_attention", (reshape(y, (batch, tokens, 3, heads, depth)), *node.inputs[3:]), attrs)


def _common(constants: list[Constant]) -> str:
    return "|".join(c.name for c in constants if c.name)


ATTENTION = Rules(heads_in_place, parts_of_one, one_product)
