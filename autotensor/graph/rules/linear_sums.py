"""Merges sums of linear operators with the same input into one operator.

    add(conv2d(x, v), conv2d(x, w))                        ──▶  conv2d(x, v + w)
    add(add(conv2d(x, v), b), conv2d(x, w))                ──▶  add(conv2d(x, v + w), b)
    add(conv2d(x, v: 3x3, padding=1), conv2d(x, w: 1x1))   ──▶  conv2d(x, v + pad(w), padding=1)

Convolutions and dense layers are linear in their weights, so half of the operations are saved. A smaller
kernel is added to a larger one that reads the same elements. Weights are added in float64 and rounded once.
Source: Ding et al., "RepVGG: Making VGG-style ConvNets Great Again" (CVPR 2021), for kernels of two sizes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply, constant
from autotensor.ir.rewrite import Rules, rule
from autotensor.operators.operator_helpers import paddings, per_axis

SPATIAL = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
# most terms of one sum that are compared: for thousands of terms, the pairs would take too long
MAX_TERMS = 16


@rule(Apply)
def sum_of_products(node: Apply, uses: Uses) -> GraphNode | None:
    """Merges two terms of a sum that are linear operators with the same input; None if there are no two."""
    if node.op != "add" or not node.dtype.is_float:
        return None
    terms = _terms(node, uses)
    for n, first in enumerate(terms):
        for m in range(n + 1, len(terms)):
            merged = _merged(first, terms[m], uses)
            if merged is not None:
                return _sum([*terms[:n], merged, *terms[n + 1 : m], *terms[m + 1 :]])
    return None


def _terms(node: Apply, uses: Uses) -> list[GraphNode]:
    """The leaves, in order, of nested additions that have no other reader and the sum's shape."""
    leaves: list[GraphNode] = []
    waiting = list(reversed(node.inputs))
    while waiting:
        x = waiting.pop()
        nested = isinstance(x, Apply) and x.op == "add" and uses[x] == 1 and x.shape == node.shape
        if nested and len(leaves) + len(waiting) < MAX_TERMS:
            assert isinstance(x, Apply)
            waiting.extend(reversed(x.inputs))
        else:
            leaves.append(x)
    return leaves


def _sum(terms: list[GraphNode]) -> GraphNode:
    """The sum of the terms. Terms of the full shape come first; a term that broadcasts cannot come first."""
    terms.sort(key=lambda t: -prod(t.shape))
    total = terms[0]
    for t in terms[1:]:
        total = apply("add", (total, t))
    return total


def _merged(a: GraphNode, b: GraphNode, uses: Uses) -> GraphNode | None:
    """One operator for two of the same kind with the same input; None if the two cannot be merged."""
    match a, b:
        case (Apply(op, (x, Constant() as v)), Apply(other, (y, Constant() as w))):
            if op != other or x is not y or uses[a] != 1 or uses[b] != 1:
                return None
        case _:
            return None
    if v.dtype != w.dtype or not v.dtype.is_float:
        return None
    if op == "dense" and v.shape == w.shape and a.attrs == b.attrs:
        return a.given((x, _total(v, w, None)))
    if op in SPATIAL:
        large, small = (a, b) if prod(v.shape) >= prod(w.shape) else (b, a)
        return _one_convolution(large, small)
    return None


def _one_convolution(large: Apply, small: Apply) -> GraphNode | None:
    """The larger convolution with the smaller kernel added to it, if both read the same elements."""
    op, (x, v), (_, w) = str(large.op), large.inputs, small.inputs
    assert isinstance(v, Constant)
    assert isinstance(w, Constant)
    rank = SPATIAL[op]
    same = all(large.attr(name) == small.attr(name) for name in ("groups", "layout"))
    strides = [per_axis(op, "stride", c.attr("stride"), rank) for c in (large, small)]
    if not same or strides[0] != strides[1] or v.shape[:2] != w.shape[:2]:
        return None
    around = []
    pads = [paddings(op, c.attr("padding"), rank) for c in (large, small)]
    steps = [per_axis(op, "dilation", c.attr("dilation"), rank) for c in (large, small)]
    for k, n, (p, _), (q, _), d, e in zip(v.shape[2:], w.shape[2:], *pads, *steps, strict=True):
        before, rest = divmod(p - q, d)
        after = k - n - before
        # a kernel of one element has no dilation; the ends fit because both results have the same shape
        if rest or before < 0 or after < 0 or (n > 1 and d != e):
            return None
        around.append((before, after))
    return large.given((x, _total(v, w, ((0, 0), (0, 0), *around))))


def _total(v: Constant, w: Constant, around: tuple[tuple[int, int], ...] | None) -> Constant:
    added = w.array.astype(np.float64)
    wide = v.array.astype(np.float64) + (added if around is None else np.pad(added, around))
    return constant(wide.astype(v.dtype.numpy), name=v.name)


SUMS = Rules(sum_of_products)


def merge_sums(graph: Graph) -> Graph:
    return rewrite_graph(graph, SUMS, name="merge sums")
