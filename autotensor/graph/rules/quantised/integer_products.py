"""Finds the products of floats that can be computed in integers, and how large their sums get.

    why_no_product(conv2d(dequantize(x), dequantize(w)))  ──▶  ""                                  it can
    why_no_product(conv2d(x, dequantize(w)))              ──▶  "its data are not quantised"

A product needs operands of bytes and scales that do not vary along the summed axes. Its sums must fit into 32
bits.
"""

from __future__ import annotations

from math import prod

import numpy as np

from autotensor.graph.ir import Apply, Array, Constant, GraphNode
from autotensor.graph.rules.affine import channel_axis
from autotensor.graph.rules.quantised.scaled_integers import Real, real, zero_point
from autotensor.graph.weights import CONVOLUTIONS

PRODUCTS = ("matmul", "batch_matmul")
ONE = np.ones((), np.float32)
FURTHEST = 2**31 - 1  # the greatest signed number of 32 bits
LARGEST = 2**30  # the greatest sum allowed, so that a sum plus a bias fits into 32 bits


def is_product(node: Apply) -> bool:
    return (node.op in CONVOLUTIONS or node.op in PRODUCTS or node.op == "dense") and len(node.inputs) == 2


def why_no_product(node: Apply) -> str:
    """Why a product of floats does not become a product of integers; "" if it does."""
    x, w = (real(i) for i in node.inputs)
    if x is None or w is None:
        which = "data are" if x is None else "weights are"
        return f"its {which} {_what_it_is(node.inputs[0 if x is None else 1])}"
    if not x.is_byte or not w.is_byte:
        return f"its operands are {x.q.dtype} and {w.q.dtype}, not bytes"
    if not x.is_plain:
        return "the scale of its data varies along what is summed or among rows"
    if scale_of_results(node, w) is None:
        return "the scale of its weights varies along what is summed"
    if largest_sum(node, x, w) > LARGEST:
        return "its sums may not fit 32 bits"
    return ""


def _what_it_is(x: GraphNode) -> str:
    match x:
        case Apply("dequantize", (_, scale, *_)) if not isinstance(scale, Constant):
            return "quantised by a scale that is known only when the model runs"
        case Apply("dequantize", (_, Constant(), *zero)) if zero_point(zero) is None:
            return "quantised with zero points that vary"
        case Apply("dequantize"):
            return "quantised by scales that float32 does not hold well, or in another type"
    return "not quantised"


def scale_of_results(node: Apply, w: Real) -> Array | None:
    """The weights' scale, shaped to broadcast to the result; None if it varies along a summed axis."""
    if w.is_plain:
        return w.scale
    rank, full, channels = node.ndim, w.aligned, channel_axis(node)
    own, out = _own_axis(node, w), rank - 1 if channels is None else channels
    if any(n != 1 and a != own for a, n in enumerate(full.shape)):
        return None
    return full.reshape(tuple(-1 if a == out else 1 for a in range(rank))[out:])


def largest_sum(node: Apply, x: Real, w: Real) -> int:
    """A number that the absolute value of the product's sums does not exceed."""
    own = _own_axis(node, w)
    if isinstance(w.q, Constant):
        sizes = np.abs(w.q.array.astype(np.int64) - w.zero)
        first = w.q.ndim - 2 if node.op in PRODUCTS else 0  # earlier axes number other matrices
        over = tuple(a for a in range(first, w.q.ndim) if a != own)
        return x.furthest * int(sizes.sum(axis=over).max(initial=0))
    depth = w.q.shape[-2 if own == w.q.ndim - 1 else -1] if node.op in PRODUCTS else prod(w.q.shape[1:])
    return x.furthest * w.furthest * depth


def largest(q: GraphNode) -> int:
    """A number that the absolute value of the elements does not exceed."""
    match q:
        case Constant():
            return int(np.abs(q.array.astype(np.int64)).max(initial=0))
        case Apply("reshape" | "transpose", (x,)):
            return largest(x)
        case Apply("add", (x, y)):
            return largest(x) + largest(y)
        case Apply(_, (x, w)) if is_product(q) and q.attr("zeros") is not None:
            x_zero, w_zero = q.attr("zeros")
            return largest_sum(q, Real(x, ONE, x_zero), Real(w, ONE, w_zero))
    return FURTHEST + 1


def _own_axis(node: Apply, w: Real) -> int:
    """The axis of the weights that is also an axis of the result: channels or columns."""
    if node.op in PRODUCTS:
        return w.q.ndim - (2 if node.attr("transpose_b") else 1)
    return 0
