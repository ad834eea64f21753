"""Turns batch normalisation into a scale and a shift, and moves both into the weights before them.

    relu(batch_norm(conv2d(x, w)))  ──▶  relu(add(conv2d(x, w * scale), shift))

A scale for each channel can move into a convolution's or dense layer's weights, because the result is linear
in the weights. Rounding differs in the last bits, as in every inference engine. The folding itself is done in
float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.ir.rewrite import Rules, rule


def channel_axis(node: GraphNode) -> int | None:
    """The axis of a convolution's or dense layer's result that comes from the weights; None for others."""
    match node:
        case Apply("conv1d" | "conv2d" | "conv3d"):
            return str(node.attr("layout")).index("C")
        case Apply("conv2d_transpose") if node.attr("groups") == 1:
            return str(node.attr("layout")).index("C")
        case Apply("dense"):
            return 1
        case _:
            return None


def per_channel(value: Array, shape: tuple[int, ...], axis: int) -> Array | None:
    """`value`, broadcast against `shape`, as a vector [shape[axis]]; None if it varies along another axis."""
    full = value.reshape((1,) * (len(shape) - value.ndim) + value.shape)
    if full.ndim != len(shape) or any(n != 1 and k != axis for k, n in enumerate(full.shape)):
        return None
    return np.broadcast_to(full.reshape(-1), (shape[axis],))


def along(vector: Array, rank: int, axis: int) -> Array:
    """`vector`, shaped so that it broadcasts along `axis` of a tensor of this rank."""
    return vector.reshape((-1, *(1,) * (rank - axis - 1)))


def _wide(node: GraphNode) -> Array | None:
    return node.array.astype(np.float64) if isinstance(node, Constant) and node.dtype.is_float else None


@rule(Apply)
def normalisation(node: Apply, uses: Uses) -> GraphNode | None:
    """batch_norm(x, gamma, beta, mean, var) ──▶ x * scale + shift"""
    if node.op != "batch_norm":
        return None
    x, *rest = node.inputs
    values = [_wide(r) for r in rest]
    if any(v is None for v in values):
        return None
    gamma, beta, mean, var = (v for v in values if v is not None)
    rank, axis = x.ndim, int(node.attr("axis")) % x.ndim
    scale = gamma / np.sqrt(var + float(node.attr("eps")))  # [channels]
    shift = beta - mean * scale
    scaled = apply("multiply", (x, _narrow(along(scale, rank, axis), x, rest[0])))
    return apply("add", (scaled, _narrow(along(shift, rank, axis), x, rest[1])))


def _narrow(value: Array, like: GraphNode, named: GraphNode) -> Constant:
    # NumPy returns a scalar, not an array, for two operands without axes
    narrow = np.asarray(value).astype(like.dtype.numpy)
    narrow.flags.writeable = False  # no other code holds the array, so no copy is needed
    return constant(narrow, name=getattr(named, "name", ""))


@rule(Apply)
def scale_into_weights(node: Apply, uses: Uses) -> GraphNode | None:
    """multiply(conv2d(x, w), s) ──▶ conv2d(x, w * s)        when nothing else reads the convolution"""
    match node:
        case Apply("multiply", (Apply() as y, Constant() as s)):
            pass
        case _:
            return None
    parts = _weights(y, s, uses)
    if parts is None:
        return None
    weights, scale = parts
    wide = weights.array.astype(np.float64)
    outputs = 1 if y.op == "conv2d_transpose" else 0  # the axis of the output channels
    wide *= along(scale, wide.ndim, outputs)
    return y.given((y.inputs[0], _narrow(wide, weights, weights)))


def _weights(y: Apply, s: Constant, uses: Uses) -> tuple[Constant, Array] | None:
    axis = channel_axis(y)
    if axis is None or uses[y] != 1 or len(y.inputs) != 2:
        return None
    weights, scale = y.inputs[1], _wide(s)
    if not isinstance(weights, Constant) or scale is None or not weights.dtype.is_float:
        return None
    vector = per_channel(scale, y.shape, axis)
    return None if vector is None else (weights, vector)


@rule(Apply)
def scale_past_shift(node: Apply, uses: Uses) -> GraphNode | None:
    """multiply(add(conv, b), s) ──▶ add(multiply(conv, s), b * s)        over a convolution or dense layer"""
    match node:
        case Apply("multiply", (Apply("add", (Apply() as y, Constant() as b)) as shifted, Constant() as s)):
            pass
        case _:
            return None
    both = _two(b, s)
    if uses[shifted] != 1 or _weights(y, s, uses) is None or both is None:
        return None
    return apply("add", (apply("multiply", (y, s)), _narrow(both[0] * both[1], y, b)))


@rule(Apply)
def shifts(node: Apply, uses: Uses) -> GraphNode | None:
    """add(add(conv, a), b) ──▶ add(conv, a + b)        over a convolution or dense layer, per channel"""
    match node:
        case Apply("add", (Apply("add", (Apply() as y, Constant() as a)) as inner, Constant() as b)):
            pass
        case _:
            return None
    axis, both = channel_axis(y), _two(a, b)
    if axis is None or both is None or uses[inner] != 1:
        return None
    if any(per_channel(v, y.shape, axis) is None for v in both):
        return None
    return apply("add", (y, _narrow(both[0] + both[1], y, a)))


def _two(a: Constant, b: Constant) -> tuple[Any, Any] | None:
    wide = (_wide(a), _wide(b))
    return None if wide[0] is None or wide[1] is None else wide


AFFINE = Rules(normalisation, scale_into_weights, scale_past_shift, shifts)


def fold_batch_norm(graph: Graph) -> Graph:
    return rewrite_graph(graph, AFFINE, name="fold batch norm")
