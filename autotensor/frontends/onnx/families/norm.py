"""Normalisations."""

from __future__ import annotations

import numpy as np

from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type, widened
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode


def _per_channel(v: GraphNode, rank: int) -> GraphNode:
    return ops.reshape(v, shape=(1, -1, *(1,) * (rank - 2)))


@converts("BatchNormalization")
def batch_norm(c: Call) -> Value:
    x, eps = c[0], c.attr("epsilon", 1e-5)
    if c.attr("training_mode", 0):
        return _training(c, x, eps)
    if c.opset < 7 and not c.attr("is_test", 0):
        raise c.unsupported("is_test is off; models are run, not trained.")
    if not c.attr("spatial", 1):
        raise c.unsupported("spatial = 0, statistics of every element.")
    wide = x.ndim >= 2
    return ops.batch_norm(x if wide else ops.unsqueeze(x, axes=(0,)), c[1], c[2], c[3], c[4], eps=eps)


def _training(c: Call, x: GraphNode, eps: float) -> Value:
    """Normalises by the batch's own statistics. The running statistics move towards them."""
    momentum = c.attr("momentum", 0.9)
    over = tuple(a for a in range(x.ndim) if a != 1)
    mean = ops.mean(x, axis=over, keepdims=True)
    var = ops.mean((x - mean) * (x - mean), axis=over, keepdims=True)
    scaled = (x - mean) * ops.rsqrt(var + eps) * _per_channel(c[1], x.ndim)
    running = [
        old * momentum + ops.reshape(new, shape=old.shape) * (1 - momentum)
        for old, new in ((c[3], mean), (c[4], var))
    ]
    return [scaled + _per_channel(c[2], x.ndim), *running]


@converts("InstanceNormalization")
def instance_norm(c: Call) -> Value:
    return ops.group_norm(c[0], c[1], c[2], groups=c[0].shape[1], eps=c.attr("epsilon", 1e-5))


@converts("GroupNormalization", since=21)
def group_norm(c: Call) -> Value:
    groups, eps = c.whole("num_groups"), c.attr("epsilon", 1e-5)
    return ops.group_norm(c[0], c[1], c[2], groups=groups, eps=eps)


@converts("GroupNormalization", since=18)
def group_norm_by_group(c: Call) -> Value:
    """Scale and bias are one number for each group."""
    groups, eps, channels = c.whole("num_groups"), c.attr("epsilon", 1e-5), c[0].shape[1]
    spread = constant(np.repeat(np.arange(groups, dtype=np.int64), channels // groups))
    scale, bias = (ops.take(v, spread) for v in (c[1], c[2]))
    return ops.group_norm(c[0], scale, bias, groups=groups, eps=eps)


@converts("LayerNormalization")
def layer_norm(c: Call) -> Value:
    x, eps = c[0], c.attr("epsilon", 1e-5)
    axis = c.axis(-1)
    scale, bias = c[1], c.get(2)
    if c.wants(1) or c.wants(2) or scale.shape != x.shape[axis:] or not x.dtype.is_float or x.dtype.bits < 32:
        return _layer_norm_in_parts(c, axis, eps)
    shift = constant(np.zeros(scale.shape, scale.dtype.numpy)) if bias is None else bias
    if shift.shape != scale.shape:
        return _layer_norm_in_parts(c, axis, eps)
    return ops.layer_norm(x, scale, shift, axis=axis, eps=eps)


def _layer_norm_in_parts(c: Call, axis: int, eps: float) -> Value:
    """The norm, the mean and the inverse deviation as results. 16-bit floats are computed in 32 bits."""
    x, over = c[0], tuple(range(axis, c.rank))
    wide = as_type(x, "float32") if x.dtype.is_half else x
    mean = ops.mean(wide, axis=over, keepdims=True)
    away = wide - mean
    inverse = ops.reciprocal(ops.sqrt(ops.mean(away * away, axis=over, keepdims=True) + eps))
    y = as_type(away * inverse, x.dtype) * c[1]
    bias = c.get(2)
    return [y if bias is None else y + bias, mean, inverse]


@converts("RMSNormalization")
def rms_norm(c: Call) -> Value:
    x, axis, eps = c[0], c.axis(-1), c.attr("epsilon", 1e-5)
    if c[1].shape == x.shape[axis:] and x.dtype.bits >= 32:
        return ops.rms_norm(x, c[1], axis=axis, eps=eps)

    def normalised(x: GraphNode) -> GraphNode:
        square = ops.mean(x * x, axis=tuple(range(axis, c.rank)), keepdims=True)
        return x * ops.reciprocal(ops.sqrt(square + eps))

    return widened(normalised, x) * c[1]


@converts("LRN")
def local_response(c: Call) -> Value:
    """Divides each element by a power of a sum of squares: those of the neighbours in the channels."""
    x, size = c[0], c.whole("size")
    n, channels = x.shape[:2]
    line = ops.reshape(x * x, shape=(n, 1, channels, -1))
    before = (size - 1) // 2
    total = ops.pool(line, mode="sum", kernel=(size, 1), padding=(before, 0, size - 1 - before, 0))
    scale = ops.reshape(total, shape=x.shape) * (c.attr("alpha", 1e-4) / size) + c.attr("bias", 1.0)
    return x / ops.power(scale, c.attr("beta", 0.75))


@converts("LpNormalization")
def lp_norm(c: Call) -> Value:
    x, axis, p = c[0], c.axis(-1), c.whole("p", 2)
    if p not in (1, 2):
        raise c.malformed(f"p is {p}; it must be 1 or 2.")
    size = ops.sum(ops.abs(x) if p == 1 else x * x, axis=axis, keepdims=True)
    size = size if p == 1 else ops.sqrt(size)
    zero = constant(0, dtype=x.dtype)
    return ops.where(
        ops.equal(size, zero), zero, x / ops.where(ops.equal(size, zero), constant(1, dtype=x.dtype), size)
    )


@converts("MeanVarianceNormalization")
def mean_variance(c: Call) -> Value:
    x, over = c[0], c.axes(c.attr("axes", (0, 2, 3)))
    mean = ops.mean(x, axis=over, keepdims=True)
    var = ops.mean(x * x, axis=over, keepdims=True) - mean * mean
    return (x - mean) / (ops.sqrt(var) + 1e-9)
