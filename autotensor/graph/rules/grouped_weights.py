"""Weights whose groups along the summed axis share a scale, as DequantizeLinear with blocks writes them.

    matmul(x[rows, k], dequantize(q: int8[k, n], take(scale[k / 32, n], …)))
        ──▶   dense_nbits(x, q in 4 bits, scale)                         few rows; one kernel

A product of few rows waits for its weights, so they stay in 4 bits if their values fit, or else in 8. If many
rows share the weights, these become float32 when the model is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from autotensor.base.dtype import float32
from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.canonical import reshape, transposition
from autotensor.graph.weights import PRODUCTS
from autotensor.ir.rewrite import Rules, rule

ROWS = 16  # most rows that pay; with 64 rows, 1024 x 1024 takes 1.13 x float32's time (Zen 4, 2026-11)
SIZES = (128, 64, 32, 16)  # sizes of groups; a larger group is split into several of these


@dataclass(frozen=True, slots=True)
class Grouped:
    """(q - zero) * scale, where all three have the shape [n, k]."""

    q: Array  # int8 or uint8
    scale: Array
    zero: Array

    def turned(self) -> Grouped:
        return Grouped(self.q.T, self.scale.T, self.zero.T)


@rule(Apply)
def product_of_groups(node: Apply, uses: Uses) -> GraphNode | None:
    """matmul(x, dequantize(q, scales by groups)) ──▶ dense_nbits(x, q, scales)"""
    if node.op not in PRODUCTS or node.dtype != float32 or node.inputs[1].ndim != 2:
        return None
    x, weights, *bias = node.inputs
    if prod(x.shape[:-1]) > ROWS or (node.op != "dense" and node.attr("transpose_a")):
        return None
    by_rows = node.op == "dense" or bool(node.attr("transpose_b"))
    found = _grouped(weights, by_rows)
    parts = None if found is None else _packed(found)
    if parts is None:
        return None
    bits, arrays = parts
    rows = reshape(x, (prod(x.shape[:-1]), x.shape[-1]))
    y = reshape(apply("dense_nbits", (rows, *map(constant, arrays)), {"bits": bits}), node.shape)
    return apply("add", (y, *bias)) if bias else y


def grouped_weights(graph: Graph) -> Graph:
    return rewrite_graph(graph, Rules(product_of_groups), name="grouped weights")


def _grouped(weights: GraphNode, by_rows: bool) -> Grouped | None:
    """Weights [n, k] (`by_rows`) or [k, n] that a `dequantize` makes, if their scale varies along k."""
    match weights:
        case Apply("transpose", (x,)) if transposition(weights) == (1, 0):
            return _grouped(x, not by_rows)
        case Apply("dequantize", (Constant() as q, *more)) if q.dtype.is_byte and q.shape == weights.shape:
            known = [_value(x) for x in more]
        case _:
            return None
    scale, zero = (*known, np.zeros((), q.dtype.numpy))[:2]
    if scale is None or zero is None or zero.dtype != q.array.dtype:
        return None
    full = Grouped(q.array, np.broadcast_to(scale, q.shape), np.broadcast_to(zero, q.shape))
    full = full if by_rows else full.turned()
    varies = any(bool((t != t[:, :1]).any()) for t in (full.scale, full.zero))
    return full if varies else None  # with one scale for a row, the weights' own type is enough


def _value(x: GraphNode) -> Array | None:
    """The array of a node that is computed from constants; None for others."""
    if isinstance(x, Constant):
        return x.array
    parts = [_value(i) for i in x.inputs] if isinstance(x, Apply) else [None]
    arrays = [p for p in parts if p is not None]
    return evaluate_node(x, arrays) if isinstance(x, Apply) and len(arrays) == len(parts) else None


def _packed(w: Grouped) -> tuple[int, list[Array]] | None:
    """Bits, and operands of `dense_nbits`: weights [n, groups, bytes], scales and zero points [n, groups]."""
    n, k = w.q.shape
    size = next((s for s in SIZES if all(_is_constant_in(t, s) for t in (w.scale, w.zero))), None)
    if size is None:
        return None
    q, zero = w.q.astype(np.int16), w.zero[:, ::size].astype(np.int16)
    least = -8 if w.q.dtype == np.int8 else 0
    bits = 4 if all(least <= t.min() and t.max() < least + 16 for t in (q, zero)) else 8
    if w.q.dtype == np.int8:
        q, zero = q + (1 << bits - 1), zero + (1 << bits - 1)
    full = np.zeros((n, -(-k // size) * size), np.uint8)
    full[:, :k] = q
    packed = full if bits == 8 else full[:, ::2] | full[:, 1::2] << 4
    arrays = [packed.reshape(n, -1, size * bits // 8), w.scale[:, ::size].astype(np.float32)]
    return bits, arrays if (zero == 1 << bits - 1).all() else [*arrays, zero.astype(np.uint8)]


def _is_constant_in(t: Array, size: int) -> bool:
    """Whether [n, k] has one number in each group along k."""
    return bool((t == np.repeat(t[:, ::size], size, axis=1)[:, : t.shape[1]]).all())
