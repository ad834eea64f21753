"""Quantised numbers: q = round(x / scale) + zero point, held inside the type. Computed in 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.frontends.onnx.families.matmul import product
from autotensor.frontends.onnx.families.shape import line_shape
from autotensor.frontends.onnx.families.windows import convolved
from autotensor.frontends.onnx.node_call import Call
from autotensor.frontends.onnx.registry import Value, converts
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode


def along(v: GraphNode, axis: int, shape: Sequence[int], block: int = 0) -> GraphNode:
    """A scale or zero point so that it broadcasts against a tensor of that shape.

    One number stands for all; a vector lies along the axis; with a block size each entry stands for a block.
    """
    if v.shape == () or v.shape == (1,):
        return ops.reshape(v, shape=())
    if block:
        if v.shape[axis] == shape[axis] and block == 1:
            return v
        places = np.arange(shape[axis]) // block
        return ops.take(v, constant(places.astype(np.int64)), axis=axis)
    return ops.reshape(v, shape=line_shape(axis, len(shape)))


def saturated(x: GraphNode, zero: GraphNode | None, to: DType) -> GraphNode:
    """x, a float, rounded to even, moved by the zero point, held inside the type."""
    limits = np.iinfo(to.numpy)
    y = ops.round(x)
    if zero is not None:
        y = y + ops.cast(zero, dtype=str(y.dtype))
    return ops.cast(ops.minimum(ops.maximum(y, float(limits.min)), float(limits.max)), dtype=str(to))


@converts("QuantizeLinear")
def quantize(c: Call) -> Value:
    x, scale, zero = c[0], c[1], c.get(2)
    to = (
        zero.dtype
        if zero is not None
        else c.dtype_attr("output_dtype", 0)
        if c.attr("output_dtype", 0)
        else dtype_of("uint8")
    )
    if not to.is_int:
        raise c.unsupported(f"quantising to {to}.")
    axis, block = _axis(c, scale), _block(c)
    wide = "float32" if x.dtype.is_int or x.dtype.bits < 32 else str(x.dtype)
    quotient = ops.cast(x, dtype=wide) / ops.cast(along(scale, axis, x.shape, block), dtype=wide)
    return saturated(quotient, None if zero is None else along(zero, axis, x.shape, block), to)


def _block(c: Call) -> int:
    if (block := int(c.attr("block_size", 0))) < 0:
        raise c.malformed(f"blocks of {block} elements.")
    return block


def _axis(c: Call, scale: GraphNode) -> int:
    return 0 if scale.shape in ((), (1,)) else c.axis(1)


@converts("DequantizeLinear")
def dequantize(c: Call) -> Value:
    x, scale, zero = c[0], c[1], c.get(2)
    axis, block = _axis(c, scale), _block(c)
    to = c.dtype_attr("output_dtype", 0) if c.attr("output_dtype", 0) else scale.dtype
    whole = ops.cast(x, dtype="int32")
    if zero is not None:
        whole = whole - ops.cast(along(zero, axis, x.shape, block), dtype="int32")
    y = ops.cast(whole, dtype="float32") * ops.cast(along(scale, axis, x.shape, block), dtype="float32")
    return y if to == y.dtype else ops.cast(y, dtype=str(to))


# -- products of quantised tensors -------------------------------------------------------------------------


def _centered(x: GraphNode, zero: GraphNode | None, axis: int) -> GraphNode:
    """x minus its zero point, in 32 bits."""
    wide = ops.cast(x, dtype="int32")
    return wide if zero is None else wide - ops.cast(along(zero, axis, x.shape), dtype="int32")


@converts("MatMulInteger")
def matmul_integer(c: Call) -> Value:
    return product(_rows(c[0], c.get(2)), _columns(c[1], c.get(3)))


def _rows(a: GraphNode, zero: GraphNode | None) -> GraphNode:
    """Zero points of the left operand: one, one a row, or a tensor that broadcasts."""
    if zero is not None and len(zero.shape) > 1:
        return ops.cast(a, dtype="int32") - ops.cast(zero, dtype="int32")
    return _centered(a, zero, max(len(a.shape) - 2, 0))


def _columns(b: GraphNode, zero: GraphNode | None) -> GraphNode:
    if zero is not None and len(zero.shape) > 1:
        return ops.cast(b, dtype="int32") - ops.cast(zero, dtype="int32")
    return _centered(b, zero, len(b.shape) - 1)


@converts("QLinearMatMul")
def qlinear_matmul(c: Call) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = c.tensors
    total = product(_rows(a, a_zero), _columns(b, b_zero))
    left = along(a_scale, max(len(total.shape) - 2, 0), total.shape) if len(a_scale.shape) < 2 else a_scale
    right = along(b_scale, len(total.shape) - 1, total.shape) if len(b_scale.shape) < 2 else b_scale
    factor = (
        ops.cast(left, dtype="float32")
        * ops.cast(right, dtype="float32")
        / ops.cast(
            along(y_scale, max(len(total.shape) - 2, 0), total.shape) if len(y_scale.shape) < 2 else y_scale,
            dtype="float32",
        )
    )
    zero = along(y_zero, max(len(total.shape) - 2, 0), total.shape) if len(y_zero.shape) < 2 else y_zero
    return saturated(ops.cast(total, dtype="float32") * factor, zero, y_zero.dtype)


@converts("ConvInteger")
def conv_integer(c: Call) -> Value:
    return convolved(c, _centered(c[0], c.get(2), 1), _centered(c[1], c.get(3), 0), None)


@converts("QLinearConv")
def qlinear_conv(c: Call) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (c[n] for n in range(8))
    total = convolved(c, _centered(x, x_zero, 1), _centered(w, w_zero, 0), c.get(8))
    factor = along(x_scale, 1, total.shape) * along(w_scale, 1, total.shape) / along(y_scale, 1, total.shape)
    return saturated(ops.cast(total, dtype="float32") * factor, along(y_zero, 1, total.shape), y_zero.dtype)
