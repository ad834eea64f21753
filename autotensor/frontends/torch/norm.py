"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotensor.base.dtype import DType
from autotensor.frontends.torch.registry import Missing, Unsupported, converts
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant

_MOMENTS = (Missing("a norm's mean"), Missing("a norm's deviation"))


def _or(given: GraphNode | None, shape: Sequence[int], value: float, dtype: DType) -> GraphNode:
    return given if given is not None else constant(np.full(tuple(shape), value, dtype.numpy))


@converts("aten._native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    x: GraphNode,
    gamma: GraphNode | None,
    beta: GraphNode | None,
    mean: GraphNode,
    var: GraphNode,
    momentum: float,
    eps: float,
) -> Any:
    channels = (x.shape[1],)
    scale, shift = _or(gamma, channels, 1.0, x.dtype), _or(beta, channels, 0.0, x.dtype)
    return ops.batch_norm(x, scale, shift, mean, var, eps=eps), *_MOMENTS


@converts("aten.batch_norm.default")
def batch_norm(
    x: GraphNode,
    gamma: GraphNode | None,
    beta: GraphNode | None,
    mean: GraphNode | None,
    var: GraphNode | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Any:
    if training or mean is None or var is None:
        return batch_statistics(x, gamma, beta, True, momentum, eps)[0]
    return batch_norm_inference(x, gamma, beta, mean, var, momentum, eps)[0]


@converts("aten._native_batch_norm_legit.no_stats")
def batch_statistics(
    x: GraphNode, gamma: GraphNode | None, beta: GraphNode | None, training: bool, momentum: float, eps: float
) -> Any:
    """Mean and variance of the batch itself: what instance norms are made of."""
    over = tuple(a for a in range(len(x.shape)) if a != 1)
    centred = ops.subtract(x, ops.mean(x, axis=over, keepdims=True))
    var = ops.mean(ops.multiply(centred, centred), axis=over, keepdims=True)
    y = ops.multiply(centred, ops.rsqrt(var + float(eps)))
    across = tuple(x.shape[1] if a == 1 else 1 for a in range(len(x.shape)))
    y = y if gamma is None else ops.multiply(y, ops.reshape(gamma, shape=across))
    y = y if beta is None else ops.add(y, ops.reshape(beta, shape=across))
    return y, *_MOMENTS


@converts("aten._native_batch_norm_legit_functional.default")
def batch_norm_training(*_: Any) -> Any:
    raise Unsupported("a norm in training mode changes its buffers.", fix="Call .eval() on the module.")


@converts("aten.native_layer_norm.default")
def native_layer_norm(
    x: GraphNode, normalized_shape: Sequence[int], gamma: GraphNode | None, beta: GraphNode | None, eps: float
) -> Any:
    return layer_norm(x, normalized_shape, gamma, beta, eps), *_MOMENTS


@converts("aten.layer_norm.default")
def layer_norm(
    x: GraphNode,
    normalized_shape: Sequence[int],
    gamma: GraphNode | None = None,
    beta: GraphNode | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    shape = tuple(normalized_shape)
    scale, shift = _or(gamma, shape, 1.0, x.dtype), _or(beta, shape, 0.0, x.dtype)
    return ops.layer_norm(x, scale, shift, axis=-len(shape), eps=eps)


@converts("aten.rms_norm.default")
def rms_norm(
    x: GraphNode, normalized_shape: Sequence[int], gamma: GraphNode | None = None, eps: float | None = None
) -> Any:
    shape = tuple(normalized_shape)
    least = float(np.finfo(x.dtype.numpy).eps) if eps is None else eps
    return ops.rms_norm(x, _or(gamma, shape, 1.0, x.dtype), axis=-len(shape), eps=least)


@converts("aten._fused_rms_norm.default")
def fused_rms_norm(
    x: GraphNode, normalized_shape: Sequence[int], gamma: GraphNode | None, eps: float | None
) -> Any:
    return rms_norm(x, normalized_shape, gamma, eps), _MOMENTS[1]


@converts("aten.native_group_norm.default")
def native_group_norm(
    x: GraphNode,
    gamma: GraphNode | None,
    beta: GraphNode | None,
    batch: int,
    channels: int,
    spatial: int,
    groups: int,
    eps: float,
) -> Any:
    return group_norm(x, groups, gamma, beta, eps), *_MOMENTS


@converts("aten.group_norm.default")
def group_norm(
    x: GraphNode,
    groups: int,
    gamma: GraphNode | None = None,
    beta: GraphNode | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    channels = (x.shape[1],)
    scale, shift = _or(gamma, channels, 1.0, x.dtype), _or(beta, channels, 0.0, x.dtype)
    return ops.group_norm(x, scale, shift, groups=groups, eps=eps)


# -- softmax ---------------------------------------------------------------------------------------------


@converts("aten._softmax.default")
def native_softmax(x: GraphNode, dim: int, half_to_float: bool) -> Any:
    return softmax(x, dim)


@converts("aten._log_softmax.default")
def native_log_softmax(x: GraphNode, dim: int, half_to_float: bool) -> Any:
    return log_softmax(x, dim)


@converts("aten.softmax.int", "aten._safe_softmax.default")
def softmax(x: GraphNode, dim: int, dtype: str | None = None) -> Any:
    return ops.softmax(_of_rank(x) if dtype is None else ops.cast(x, dtype=dtype), axis=dim)


@converts("aten.log_softmax.int")
def log_softmax(x: GraphNode, dim: int, dtype: str | None = None) -> Any:
    return ops.log_softmax(_of_rank(x) if dtype is None else ops.cast(x, dtype=dtype), axis=dim)


def _of_rank(x: GraphNode) -> GraphNode:
    if not x.shape:
        raise Unsupported("softmax of a tensor without axes is not supported.")
    return x
