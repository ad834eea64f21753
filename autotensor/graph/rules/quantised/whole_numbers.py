"""Keeps rounded sums as whole numbers in floats or as integers, on their way to a byte.

A byte that only one sum of bytes reads is not made: the value stays a whole number in a float.

    requantize(requantize(x, s, zero=z) - z, t, shift=b)
        ──▶  requantize(requantize(x, s, zero=z, centred=True), t, shift=b)
    requantize(a - z, t, shift=requantize(x, s, zero=y), shift_scale=u)
        ──▶  requantize(requantize(x, s, zero=y, centred=True), u, shift=a, shift_scale=t)

The value is clamped and its zero point is subtracted. So the number is the same as with a byte, but a kernel
need not narrow the value to a byte and widen it again. In this way, the shortcuts of residual blocks are
added in the convolution's kernel.

Rounded sums that fit into 32 bits are clamped as integers:

    requantize(x: int32, 0.002)  ──▶  requantize(x, 0.002, in_32_bits=True)          |x * 0.002| < 2**30

A float that may be too large for an integer must be clamped before it becomes one. The scales alone show that
most sums are far from this limit. Then a processor rounds and converts in one instruction. Another
instruction narrows the integers to bytes, and applies one limit of the bytes' range at the same time.
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, constant
from autotensor.ir.rewrite import Rules, rule

ROOM = 2.0**30  # limit of a sum, so that the sum plus a zero point also fits


def in_whole_numbers(graph: Graph) -> Graph:
    return rewrite_graph(graph, Rules(_centred), name="whole numbers")


@rule(Apply)
def _centred(node: Apply, uses: Uses) -> GraphNode | None:
    if node.op != "requantize" or node.attr("centred"):
        return None
    total, scale, *shift = node.inputs
    made, zero = _without_zero(total)
    if made is None:
        return None
    if _is_only_for(made, zero, uses) and all(uses[n] == 1 for n in (total, *_wide(total))):
        return node.given((_as_number(made), scale, *shift))
    if not shift or not shift[0].dtype.is_int or not isinstance(scale, Constant) or scale.array.size != 1:
        return None
    other, of_shift = shift[0], float(np.float32(node.attr("shift_scale") or 1.0))
    if of_shift <= 0 or not _is_only_for(other, int(node.attr("shift_zero") or 0), uses):
        return None
    attrs = {"shift_scale": float(scale.array.reshape(())), "shift_zero": zero}
    return node.given((_as_number(other), constant(np.float32(of_shift)), made), **attrs)


def _without_zero(total: GraphNode) -> tuple[GraphNode | None, int]:
    """x and z of `x - z` in 32 bits, where x has fewer bits; (None, 0) for another node."""
    zero = 0
    match total:
        case Apply("subtract", (Apply("cast", (x,)), Constant() as z)) if z.array.size == 1:
            zero = int(z.array.reshape(()))
        case Apply("cast", (x,)):
            pass
        case _:
            return None, 0
    return (x, zero) if x.dtype.is_int and x.dtype.bits <= 16 and x.shape == total.shape else (None, 0)


def _wide(total: GraphNode) -> tuple[GraphNode, ...]:
    return total.inputs[:1] if isinstance(total, Apply) and total.op == "subtract" else ()


def _is_only_for(x: GraphNode, zero: int, uses: Uses) -> bool:
    """Whether the value is a rounded sum with this zero point, has one reader, and is never NaN."""
    match x:
        case Apply("requantize", (_, _, *shift)) if uses[x] == 1 and not x.attr("centred"):
            known = all(
                s.dtype.is_int or (isinstance(s, Constant) and np.isfinite(s.array).all()) for s in shift
            )
            return known and int(x.attr("zero") or 0) == zero
    return False


def _as_number(x: GraphNode) -> GraphNode:
    assert isinstance(x, Apply)
    return x.given(x.inputs, centred=True)


# -- integers ---------------------------------------------------------------------------------------------


def sums_in_32_bits(graph: Graph) -> Graph:
    return rewrite_graph(graph, Rules(_fitting), name="sums in 32 bits")


@rule(Apply)
def _fitting(node: Apply, uses: Uses) -> GraphNode | None:
    if node.op != "requantize" or node.attr("in_32_bits"):
        return None
    total, scale, *shift = node.inputs
    most = _furthest(total) * _furthest(scale) + sum(_shifted(node, s) for s in shift)
    return node.given(node.inputs, in_32_bits=True) if most < ROOM else None


def _shifted(node: Apply, shift: GraphNode) -> float:
    """A number that the absolute value of the shift does not exceed."""
    if not shift.dtype.is_int:
        return _furthest(shift)
    return (_furthest(shift) + abs(int(node.attr("shift_zero")))) * abs(float(node.attr("shift_scale")))


def _furthest(x: GraphNode) -> float:
    """A number that no element's absolute value exceeds; infinity if it is unknown or an element is NaN."""
    if isinstance(x, Constant):
        sizes = np.abs(x.array.astype(np.float64))
        return float(sizes.max(initial=0)) if bool(np.isfinite(sizes).all()) else np.inf
    if x.dtype.is_int:
        return 2.0 ** (x.dtype.bits - (x.dtype.kind == "int"))
    if isinstance(x, Apply) and x.op == "requantize" and x.attr("centred"):
        return 2.0**17
    return np.inf
