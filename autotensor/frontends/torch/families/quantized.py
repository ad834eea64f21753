"""Quantised graphs of torch (`pt2e`, torchao): quantized_decomposed.quantize_per_tensor and similar
operators.

They become autotensor's `quantize` and `dequantize`. The graph's rules then compute the operators between
these in integers. torch multiplies by 1 / scale and autotensor divides by scale, so values at halves may
differ by one step. A range narrower than the type's clips the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.base.errors import GraphError
from autotensor.frontends.torch.registry import converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import Constant, GraphNode
from autotensor.operators.quantized import POSITIVE, wrong_scale

SPACE = "quantized_decomposed"


def _scale(value: float | GraphNode, shape: tuple[int, ...]) -> GraphNode:
    """A scale that broadcasts. Raises GraphError if the scale is known not to be positive and finite."""
    node = ops.reshape(value, shape=shape) if isinstance(value, GraphNode) else constant(np.float32(value))
    array = value.array if isinstance(value, Constant) else node.array if isinstance(node, Constant) else None
    if array is not None and (said := wrong_scale(array, POSITIVE)):
        raise GraphError(f"{SPACE}: {said}")
    return as_type(node, "float32")


def _zero(value: int | GraphNode | None, dtype: DType, shape: tuple[int, ...]) -> tuple[GraphNode, ...]:
    if value is None:
        return ()
    if isinstance(value, GraphNode):
        return (as_type(ops.reshape(value, shape=shape), dtype),)
    return (constant(value, dtype=dtype),)


def _quantized(
    x: GraphNode, scale: Any, zero: Any, low: int, high: int, dtype: str, shape: tuple[int, ...] = ()
) -> GraphNode:
    to = dtype_of(dtype)
    y = ops.quantize(x, _scale(scale, shape), *_zero(zero, to, shape), dtype=dtype)
    limits = np.iinfo(to.numpy)
    ends = {"min": low} if low > limits.min else {}
    ends |= {"max": high} if high < limits.max else {}
    return ops.clip(y, **ends) if ends else y


def _dequantized(
    q: GraphNode, scale: Any, zero: Any, out: str | None, shape: tuple[int, ...] = ()
) -> GraphNode:
    return as_type(ops.dequantize(q, _scale(scale, shape), *_zero(zero, q.dtype, shape)), out or "float32")


def _line(x: GraphNode, axis: int) -> tuple[int, ...]:
    return tuple(-1 if a == axis % x.ndim else 1 for a in range(x.ndim))


@converts(f"{SPACE}.quantize_per_tensor.default", f"{SPACE}.quantize_per_tensor.tensor")
def quantize_per_tensor(x: GraphNode, scale: Any, zero: Any, low: int, high: int, dtype: str) -> Any:
    return _quantized(x, scale, zero, low, high, dtype)


@converts(f"{SPACE}.dequantize_per_tensor.default", f"{SPACE}.dequantize_per_tensor.tensor")
def dequantize_per_tensor(
    q: GraphNode, scale: Any, zero: Any, low: int, high: int, dtype: str, *, out_dtype: str | None = None
) -> Any:
    return _dequantized(q, scale, zero, out_dtype)


@converts(f"{SPACE}.quantize_per_channel.default")
def quantize_per_channel(
    x: GraphNode, scales: Any, zeros: Any, axis: int, low: int, high: int, dtype: str
) -> Any:
    return _quantized(x, scales, zeros, low, high, dtype, _line(x, axis))


@converts(f"{SPACE}.dequantize_per_channel.default")
def dequantize_per_channel(
    q: GraphNode,
    scales: Any,
    zeros: Any,
    axis: int,
    low: int,
    high: int,
    dtype: str,
    *,
    out_dtype: str | None = None,
) -> Any:
    return _dequantized(q, scales, zeros, out_dtype, _line(q, axis))


@converts(f"{SPACE}.choose_qparams.tensor")
def choose_qparams(x: GraphNode, low: int, high: int, eps: float, dtype: str) -> Any:
    """The scale and the zero point of the range of x, which includes 0."""
    least, most = ops.minimum(ops.min(x), 0.0), ops.maximum(ops.max(x), 0.0)
    scale = ops.maximum((most - least) / float(high - low), eps)
    zero = ops.clip(float(low) - ops.round(least / scale), min=float(low), max=float(high))
    one = ops.reshape(scale, shape=(1,)), ops.reshape(zero, shape=(1,))
    return ops.cast(one[0], dtype="float64"), ops.cast(one[1], dtype="int64")


@converts("aten._int_mm.default")
def int_mm(a: GraphNode, b: GraphNode) -> Any:
    """The product of two matrices of bytes, in 32 bits."""
    return ops.matmul(a, b, zeros=(0, 0))
