"""Quantised numbers: q = round(x / scale) + zero point, held inside the type. Computed in 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.frontends.onnx.families.matmul import product
from autotensor.frontends.onnx.families.shape import line_shape
from autotensor.frontends.onnx.families.windows import convolved
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type
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


def _of_rows(v: GraphNode, shape: Sequence[int], axis: int) -> GraphNode:
    """The same of a product of matrices: a tensor of several axes broadcasts as it is."""
    return along(v, max(len(shape) + axis, 0), shape) if v.ndim < 2 else v


def saturated(x: GraphNode, zero: GraphNode | None, to: DType) -> GraphNode:
    """x, a float, rounded to even, moved by the zero point, held inside the type."""
    limits = np.iinfo(to.numpy)
    y = ops.round(x)
    if zero is not None:
        y = y + as_type(zero, y.dtype)
    return as_type(ops.minimum(ops.maximum(y, float(limits.min)), float(limits.max)), to)


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
    quotient = as_type(x, wide) / as_type(along(scale, axis, x.shape, block), wide)
    return saturated(quotient, None if zero is None else along(zero, axis, x.shape, block), to)


def _block(c: Call) -> int:
    if (block := c.whole("block_size", 0)) < 0:
        raise c.malformed(f"blocks of {block} elements.")
    return block


def _axis(c: Call, scale: GraphNode) -> int:
    return 0 if scale.shape in ((), (1,)) else c.axis(1)


@converts("DequantizeLinear")
def dequantize(c: Call) -> Value:
    x, scale, zero = c[0], c[1], c.get(2)
    axis, block = _axis(c, scale), _block(c)
    to = c.dtype_attr("output_dtype", 0) if c.attr("output_dtype", 0) else scale.dtype
    whole = as_type(x, "int32")
    if zero is not None:
        whole = whole - as_type(along(zero, axis, x.shape, block), "int32")
    y = as_type(whole, "float32") * as_type(along(scale, axis, x.shape, block), "float32")
    return as_type(y, to)


# -- products of quantised tensors -------------------------------------------------------------------------


def _centered(x: GraphNode, zero: GraphNode | None, axis: int) -> GraphNode:
    """x minus its zero point, in 32 bits."""
    wide = as_type(x, "int32")
    return wide if zero is None else wide - as_type(along(zero, axis, x.shape), "int32")


def _centered_rows(x: GraphNode, zero: GraphNode | None, axis: int) -> GraphNode:
    """Likewise: zero points of a matrix are one, one a row or column, or a tensor that broadcasts."""
    wide = as_type(x, "int32")
    return wide if zero is None else wide - as_type(_of_rows(zero, x.shape, axis), "int32")


@converts("MatMulInteger")
def matmul_integer(c: Call) -> Value:
    return product(_centered_rows(c[0], c.get(2), -2), _centered_rows(c[1], c.get(3), -1))


@converts("QLinearMatMul")
def qlinear_matmul(c: Call) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = c.tensors
    total = product(_centered_rows(a, a_zero, -2), _centered_rows(b, b_zero, -1))
    scales = ((a_scale, -2), (b_scale, -1), (y_scale, -2))
    left, right, over = (as_type(_of_rows(v, total.shape, axis), "float32") for v, axis in scales)
    zero = _of_rows(y_zero, total.shape, -2)
    return saturated(as_type(total, "float32") * (left * right / over), zero, y_zero.dtype)


@converts("ConvInteger")
def conv_integer(c: Call) -> Value:
    return convolved(c, _centered(c[0], c.get(2), 1), _centered(c[1], c.get(3), 0), None)


@converts("QLinearConv")
def qlinear_conv(c: Call) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (c[n] for n in range(8))
    total = convolved(c, _centered(x, x_zero, 1), _centered(w, w_zero, 0), c.get(8))
    factor = along(x_scale, 1, total.shape) * along(w_scale, 1, total.shape) / along(y_scale, 1, total.shape)
    return saturated(as_type(total, "float32") * factor, along(y_zero, 1, total.shape), y_zero.dtype)
