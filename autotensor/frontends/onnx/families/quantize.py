"""Quantised numbers: q = round(x / scale) + zero point, clipped to the range of the type.

QLinearConv: real(x), real(w) ─▶ conv2d ─▶ quantised          the node's meaning, in floats
ConvInteger: conv2d(x, w, zeros=…)                            sums of integers, the node's result

The graph's rules turn the first form into integers, also in files that spell it out
(`graph/rules/integers.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autotensor.base.dtype import DType, uint8
from autotensor.frontends.onnx.families.matmul import product
from autotensor.frontends.onnx.families.shape import line_shape
from autotensor.frontends.onnx.families.windows import convolved
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode
from autotensor.operators.quantized import FINITE, NOT_ZERO, POSITIVE, wrong_scale

SMALL = (8, 16)  # bits of the results of QuantizeLinear
MOST_COUNTED = 1 << 18  # most elements of a map of sums of weights that is computed beforehand and kept


# -- scales and zero points --------------------------------------------------------------------------------


def along(c: Call, v: GraphNode, axis: int, shape: Sequence[int], block: int = 0) -> GraphNode:
    """A scale or zero point, reshaped so that it broadcasts to a tensor of that shape.

    A single number is for all elements. A vector lies along the axis. With a block size, each entry is for a
    block.
    """
    if v.shape == () or v.shape == (1,):
        return ops.reshape(v, shape=())
    if block:
        blocks = tuple(-(-n // block) if a == axis else n for a, n in enumerate(shape))
        if v.shape != blocks:
            raise c.malformed(
                f"a scale or zero point of shape {v.shape} does not fit blocks of {block} along axis {axis} "
                f"of {tuple(shape)}, which take {blocks}."
            )
        if block == 1:
            return v
        places = np.arange(shape[axis]) // block
        return ops.take(v, constant(places.astype(np.int64)), axis=axis)
    if v.shape != (shape[axis],):
        raise c.malformed(
            f"a scale or zero point of shape {v.shape} does not fit axis {axis} of {tuple(shape)}."
        )
    return ops.reshape(v, shape=line_shape(axis, len(shape)))


def _of_rows(c: Call, v: GraphNode, axis: int, shape: Sequence[int]) -> GraphNode:
    """The same for an operand of a matrix product. A tensor of several axes already broadcasts."""
    return along(c, v, max(len(shape) + axis, 0), shape) if v.ndim < 2 else v


def checked(c: Call, scale: GraphNode, law: str = NOT_ZERO) -> GraphNode:
    """The scale, after a check: raises Malformed if its value is known and not a valid scale."""
    known = c.value_of(scale)
    if known is not None and (said := wrong_scale(known, law)):
        raise c.malformed(said)
    return scale


Spread = Callable[[GraphNode], GraphNode]  # a scale or zero point ▶ the same, so that it broadcasts


def real(
    c: Call, q: GraphNode, scale: GraphNode, zero: GraphNode | None, spread: Spread, law: str = NOT_ZERO
) -> GraphNode:
    """The values of a quantised tensor, in the type of the scale."""
    more = () if zero is None else (spread(zero),)
    return ops.dequantize(q, spread(checked(c, scale, law)), *more)


def quantised(
    c: Call, x: GraphNode, scale: GraphNode, zero: GraphNode | None, spread: Spread, to: DType = uint8
) -> GraphNode:
    """x, quantised to the type of the zero point, or to `to` without a zero point."""
    to = to if zero is None else zero.dtype
    if not (to.is_int and to.bits in SMALL):
        raise c.unsupported(f"quantising to {to}.")
    more = () if zero is None else (spread(zero),)
    return ops.quantize(x, spread(checked(c, scale, POSITIVE)), *more, dtype=str(to))


def on_axis(c: Call, axis: int, shape: Sequence[int], block: int = 0) -> Spread:
    return lambda v: along(c, v, axis, shape, block)


def in_rows(c: Call, axis: int, shape: Sequence[int]) -> Spread:
    return lambda v: _of_rows(c, v, axis, shape)


# -- from floats to integers and back ----------------------------------------------------------------------


@converts("QuantizeLinear")
@converts("QuantizeLinear", domain="com.microsoft")
def quantize(c: Call) -> Value:
    x, scale, zero = c[0], c[1], c.get(2)
    given = c.attr("output_dtype", 0)
    spread = on_axis(c, _axis(c, scale), x.shape, _block(c))
    return quantised(c, x, scale, zero, spread, c.dtype_attr("output_dtype", 0) if given else uint8)


@converts("DequantizeLinear")
@converts("DequantizeLinear", domain="com.microsoft")
def dequantize(c: Call) -> Value:
    x, scale, zero = c[0], c[1], c.get(2)
    law = FINITE if _block(c) else NOT_ZERO
    y = real(c, x, scale, zero, on_axis(c, _axis(c, scale), x.shape, _block(c)), law)
    return as_type(y, c.dtype_attr("output_dtype", 0)) if c.attr("output_dtype", 0) else y


def _block(c: Call) -> int:
    if (block := c.whole("block_size", 0)) < 0:
        raise c.malformed(f"blocks of {block} elements.")
    return block


def _axis(c: Call, scale: GraphNode) -> int:
    return 0 if scale.shape in ((), (1,)) else c.axis(1)


@converts("DynamicQuantizeLinear")
def dynamic_quantize(c: Call) -> Value:
    return list(dynamic_range(c, c[0]))


def dynamic_range(c: Call, x: GraphNode) -> tuple[GraphNode, GraphNode, GraphNode]:
    """x quantised to uint8, and the scale and zero point of its range. The range includes 0."""
    if 0 in x.shape:
        raise c.malformed(f"x has shape {x.shape}: nothing has no range.")
    low, high = ops.minimum(ops.min(x), 0.0), ops.maximum(ops.max(x), 0.0)
    scale = (high - low) / 255.0
    # a tensor of zeros: any scale is right, and 1 avoids a division by 0
    scale = ops.where(ops.equal(scale, 0.0), 1.0, scale)
    zero = ops.cast(ops.clip(ops.round(0.0 - low / scale), min=0.0, max=255.0), dtype="uint8")
    return ops.quantize(x, scale, zero, dtype="uint8"), scale, zero


# -- operators in floats between quantised tensors ---------------------------------------------------------


@converts("QLinearMatMul")
def qlinear_matmul(c: Call) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = c.tensors
    left = real(c, a, a_scale, a_zero, in_rows(c, -2, a.shape))
    right = real(c, b, b_scale, b_zero, in_rows(c, -1, b.shape))
    y = product(left, right)
    return quantised(c, y, y_scale, y_zero, in_rows(c, -2, y.shape))


@converts("QLinearConv")
def qlinear_conv(c: Call) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (c[n] for n in range(8))
    bias = c.get(8)
    if bias is not None:
        steps = ops.reshape(x_scale, shape=()) * along(c, w_scale, 0, bias.shape)
        bias = ops.dequantize(bias, checked(c, steps))
    left, right = (on_axis(c, axis, t.shape) for axis, t in ((1, x), (0, w)))
    y = convolved(c, real(c, x, x_scale, x_zero, left), real(c, w, w_scale, w_zero, right), bias)
    return quantised(c, y, y_scale, y_zero, on_axis(c, 1, y.shape))


# -- sums of products of integers --------------------------------------------------------------------------


def integer_product(c: Call, a: GraphNode, b: GraphNode, a_zero: Value, b_zero: Value) -> GraphNode:
    """Σ (a - zero)(b - zero) in 32 bits. A matrix has a single zero point, one for each row or column, or a
    tensor of them.

    If the zero point of `a` is a run-time value, zero * Σ (b - zero) is subtracted from the sums.
    """
    for zero, axis, t in ((a_zero, -2, a), (b_zero, -1, b)):
        if zero is not None:
            # raises an error if the shape does not fit, even if a single number is repeated in it
            _of_rows(c, zero, axis, t.shape)
    y_zero = _number(c, b_zero)
    if y_zero is None or not (a.dtype.is_byte and b.dtype.is_byte):
        return product(
            _centred(a, a_zero, in_rows(c, -2, a.shape)), _centred(b, b_zero, in_rows(c, -1, b.shape))
        )
    x_zero = _number(c, a_zero)
    y = product(a, b, zeros=(x_zero or 0, y_zero))
    if x_zero is not None:
        return y
    columns = ops.sum(
        as_type(b, "int32") - y_zero,
        axis=max(b.ndim - 2, 0),
        keepdims=min(a.ndim, b.ndim) > 1,
        dtype="int32",
    )
    return y - as_type(_of_rows(c, a_zero, -2, y.shape), "int32") * columns


def _number(c: Call, zero: GraphNode | None) -> int | None:
    """The number that is known to be the only zero point; None if there are several or it is unknown."""
    if zero is None:
        return 0
    known = c.value_of(zero)
    same = known is not None and known.size > 0 and bool((known == known.reshape(-1)[0]).all())
    return int(known.reshape(-1)[0]) if known is not None and same else None


def _centred(x: GraphNode, zero: GraphNode | None, spread: Spread) -> GraphNode:
    """x minus its zero point, in 32 bits."""
    wide = as_type(x, "int32")
    return wide if zero is None else wide - as_type(spread(zero), "int32")


@converts("MatMulInteger")
def matmul_integer(c: Call) -> Value:
    return integer_product(c, c[0], c[1], c.get(2), c.get(3))


@converts("ConvInteger")
def conv_integer(c: Call) -> Value:
    """Σ (x - zero)(w - zero) in 32 bits. If x's zero point is not known, its part is subtracted after the
    sums."""
    x, w, x_zero, w_zero = c[0], c[1], c.get(2), c.get(3)
    at, of_w = _number(c, x_zero), _number(c, w_zero)
    if of_w is not None and x.dtype.is_byte and w.dtype.is_byte:
        if at is not None:
            return convolved(c, x, w, None, (at, of_w))
        # without padding every sum has all weights
        all_of_them = not any(c.attr("pads", ())) and c.attr("auto_pad", "NOTSET") in ("NOTSET", "VALID", "")
        reach = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], c.attr("dilations", (1,) * 3), strict=False)]
        ones = np.ones((1, x.shape[1], *(reach if all_of_them else x.shape[2:])), np.uint8)
        weights = convolved(c, constant(ones), w, None, (0, of_w))
        if math.prod(weights.shape) <= MOST_COUNTED and x_zero is not None and x_zero.ndim < 2:
            known = c.value_of(weights)
            zero = as_type(along(c, x_zero, 1, x.shape), "int32")
            if known is not None and zero.shape == ():
                return convolved(c, x, w, None, (0, of_w)) - zero * constant(known)
    left, right = (on_axis(c, axis, t.shape) for axis, t in ((1, x), (0, w)))
    return convolved(c, _centred(x, x_zero, left), _centred(w, w_zero, right), None)
