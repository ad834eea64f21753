"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from autotensor.base.dtype import DType
from autotensor.frontends.torch.element_types import with_axes
from autotensor.frontends.torch.registry import Missing, converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant


def _moments(x: GraphNode, over: tuple[int, ...], eps: float, keepdims: bool) -> tuple[GraphNode, GraphNode]:
    """Mean and 1 / deviation. These further results of a norm are computed only if they are read."""
    mean = ops.mean(x, axis=over, keepdims=keepdims)
    return mean, ops.rsqrt(_variance(x, over, keepdims) + float(eps))


def _variance(x: GraphNode, over: tuple[int, ...], keepdims: bool) -> GraphNode:
    """The mean square around the mean."""
    centred = ops.subtract(x, ops.mean(x, axis=over, keepdims=True))
    return ops.mean(ops.multiply(centred, centred), axis=over, keepdims=keepdims)


def _or(given: GraphNode | None, shape: Sequence[int], value: float, dtype: DType) -> GraphNode:
    return given if given is not None else constant(np.full(tuple(shape), value, dtype.numpy))


def _affine(
    gamma: GraphNode | None, beta: GraphNode | None, shape: Sequence[int], dtype: DType
) -> tuple[GraphNode, GraphNode]:
    return _or(gamma, shape, 1.0, dtype), _or(beta, shape, 0.0, dtype)


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
    scale, shift = _affine(gamma, beta, x.shape[1:2], x.dtype)
    nothing = constant(np.empty(0, x.dtype.numpy))
    return ops.batch_norm(x, scale, shift, mean, var, eps=eps), nothing, nothing


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
    """A norm by the batch's own mean and variance, as in instance norms."""
    over = _all_but_channels(x)
    centred = ops.subtract(x, ops.mean(x, axis=over, keepdims=True))
    var = ops.mean(ops.multiply(centred, centred), axis=over, keepdims=True)
    y = ops.multiply(centred, ops.rsqrt(var + float(eps)))
    across = tuple(x.shape[1] if a == 1 else 1 for a in range(x.ndim))
    y = y if gamma is None else ops.multiply(y, ops.reshape(gamma, shape=across))
    y = y if beta is None else ops.add(y, ops.reshape(beta, shape=across))
    return y, *_moments(x, over, eps, False)


def _all_but_channels(x: GraphNode) -> tuple[int, ...]:
    return tuple(a for a in range(x.ndim) if a != 1)


@converts("aten._native_batch_norm_legit_functional.default")
def batch_norm_training(
    x: GraphNode,
    gamma: GraphNode | None,
    beta: GraphNode | None,
    mean: GraphNode,
    var: GraphNode,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The norm, the moments of the batch, and the running moments after this batch."""
    if not training:
        return (*batch_norm_inference(x, gamma, beta, mean, var, momentum, eps), mean, var)
    over = _all_but_channels(x)
    count = prod(x.shape[a] for a in over)
    y, batch_mean, inverse = batch_statistics(x, gamma, beta, True, momentum, eps)
    unbiased = _variance(x, over, False) * (count / max(count - 1, 1))
    share, rest = float(momentum), 1 - float(momentum)
    new_mean, new_var = batch_mean * share + mean * rest, unbiased * share + var * rest
    return y, batch_mean, inverse, new_mean, new_var


@converts("aten.native_layer_norm.default")
def native_layer_norm(
    x: GraphNode, normalized_shape: Sequence[int], gamma: GraphNode | None, beta: GraphNode | None, eps: float
) -> Any:
    over = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    return layer_norm(x, normalized_shape, gamma, beta, eps), *_moments(x, over, eps, True)


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
    scale, shift = _affine(gamma, beta, shape, x.dtype)
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
    return rms_norm(x, normalized_shape, gamma, eps), Missing("a norm's deviation")


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
    parts = ops.reshape(x, shape=(batch, groups, prod(x.shape) // (batch * groups)))
    return group_norm(x, groups, gamma, beta, eps), *_moments(parts, (2,), eps, False)


@converts("aten.group_norm.default")
def group_norm(
    x: GraphNode,
    groups: int,
    gamma: GraphNode | None = None,
    beta: GraphNode | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    scale, shift = _affine(gamma, beta, x.shape[1:2], x.dtype)
    return ops.group_norm(x, scale, shift, groups=groups, eps=eps)


# -- softmax ---------------------------------------------------------------------------------------------


@converts("aten._softmax.default")
@with_axes
def native_softmax(x: GraphNode, dim: int, half_to_float: bool) -> Any:
    return softmax(x, dim)


@converts("aten._log_softmax.default")
@with_axes
def native_log_softmax(x: GraphNode, dim: int, half_to_float: bool) -> Any:
    return log_softmax(x, dim)


@converts("aten.softmax.int", "aten._safe_softmax.default")
@with_axes
def softmax(x: GraphNode, dim: int, dtype: str | None = None) -> Any:
    return ops.softmax(as_type(x, dtype or x.dtype), axis=dim)


@converts("aten.log_softmax.int")
@with_axes
def log_softmax(x: GraphNode, dim: int, dtype: str | None = None) -> Any:
    return ops.log_softmax(as_type(x, dtype or x.dtype), axis=dim)
