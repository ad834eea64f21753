"""Normalisations.

batch_norm   x*scale[c] + shift[c], with scale and shift from constants: elementwise at run time
layer_norm   over the axes from `axis` to the last, two passes: mean, then mean of (x - mean)²
rms_norm     layer_norm without the mean
group_norm   over the channels of a group and all axes after the batch, two passes
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.errors import TensorError
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import axis_of, fold, is_int, require, size, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def _per_channel(op: str, x: Tensor, shape: tuple[int, ...], **given: Tensor) -> None:
    for name, t in given.items():
        if t.shape != shape:
            raise TensorError(f"{op}: {name} has shape {t.shape}, expected {shape} for x of shape {x.shape}.")


# -- batch ---------------------------------------------------------------------------------------------------


def _batch_reference(
    x: Array, gamma: Array, beta: Array, mean: Array, var: Array, eps: float = 1e-5, axis: int = 1
) -> Array:
    channels = [-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]
    scale = gamma / np.sqrt(var.astype(np.float64) + eps)
    shift = beta - mean * scale
    y: Array = x * scale.astype(x.dtype).reshape(channels)
    y += shift.astype(x.dtype).reshape(channels)
    return y


@operator(
    "batch_norm",
    kind=Kind.ELEMENTWISE,  # scale and shift depend only on constants, and are prepared
    reference=_batch_reference,
    constants=(1, 2, 3, 4),
    cases=(
        Case(((2, 5, 3, 7), (5,), (5,), (5,), (5,)), low=0.1, high=2.0),
        Case(((1, 3, 3, 17), (17,), (17,), (17,), (17,)), {"axis": -1, "eps": 1e-3}, low=0.1, high=2.0),
        Case(((7, 1), (1,), (1,), (1,), (1,)), low=0.1, high=2.0),
    ),
)
def batch_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor, eps: float = 1e-5, axis: int = 1
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * gamma + beta with given mean and var (inference). axis: the channels."""
    at = axis_of("batch_norm", axis, x.ndim)
    _per_channel("batch_norm", x, (x.shape[at],), gamma=gamma, beta=beta, mean=mean, var=var)
    scale = stage(gamma.shape, lambda c: gamma[c] * te.rsqrt(var[c] + eps), "scale")
    shift = stage(beta.shape, lambda c: beta[c] - mean[c] * scale[c], "shift")
    return stage(x.shape, lambda *i: x[i] * scale[i[at]] + shift[i[at]], "batch_norm")


# -- layer ---------------------------------------------------------------------------------------------------


def _layer_reference(x: Array, gamma: Array, beta: Array, axis: int = -1, eps: float = 1e-5) -> Array:
    over = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    y = (wide - wide.mean(over, keepdims=True)) / np.sqrt(wide.var(over, keepdims=True) + eps)
    return np.asarray(y * gamma + beta).astype(x.dtype)


@operator(
    "layer_norm",
    kind=Kind.REDUCTION,
    reference=_layer_reference,
    constants=(1, 2),
    cases=(
        Case(((7, 33), (33,), (33,))),
        Case(((2, 3, 5, 7), (5, 7), (5, 7)), {"axis": -2}),
        Case(((2, 17), (17,), (17,)), {"axis": 1, "eps": 1e-3}, low=9, high=11),
        Case(((3, 1), (1,), (1,))),
    ),
)
def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, axis: int = -1, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * gamma + beta over the axes from `axis` on, which gamma and beta have."""
    first = axis_of("layer_norm", axis, x.ndim)
    _per_channel("layer_norm", x, x.shape[first:], gamma=gamma, beta=beta)
    mean, scale = mean_and_scale(x, first, eps)
    return stage(
        x.shape,
        lambda *i: (x[i] - mean[i[:first]]) * scale[i[:first]] * gamma[i[first:]] + beta[i[first:]],
        "layer_norm",
    )


def mean_and_scale(x: Tensor, first: int, eps: float) -> tuple[Tensor, Tensor]:
    """mean and 1 / sqrt(var + eps) over the axes from `first` on; both have the shape x.shape[:first]."""
    over, count = tuple(range(first, x.ndim)), size(x.shape[first:])
    total = fold(te.sum, x, over, "total")
    mean = stage(total.shape, lambda *i: total[i] / count, "mean")
    square = fold(te.sum, x, over, "square", lambda v, i: (v - mean[i]) * (v - mean[i]))
    return mean, stage(square.shape, lambda *i: te.rsqrt(square[i] / count + eps), "scale")


def _rms_reference(x: Array, gamma: Array, axis: int = -1, eps: float = 1e-5) -> Array:
    wide = x.astype(np.float64)
    over = tuple(range(axis % x.ndim, x.ndim))
    y: Array = wide / np.sqrt((wide**2).mean(over, keepdims=True) + eps) * gamma
    return y.astype(x.dtype)


@operator(
    "rms_norm",
    kind=Kind.REDUCTION,
    reference=_rms_reference,
    constants=(1,),
    cases=(
        Case(((7, 33), (33,))),
        Case(((2, 3, 7), (3, 7)), {"axis": 1, "eps": 1e-6}),
        Case(((3, 1), (1,))),
    ),
)
def rms_norm(x: Tensor, gamma: Tensor, axis: int = -1, eps: float = 1e-5) -> Tensor:
    """x / sqrt(mean(x²) + eps) * gamma over the axes from `axis` on; gamma: x.shape[axis:]."""
    first = axis_of("rms_norm", axis, x.ndim)
    _per_channel("rms_norm", x, x.shape[first:], gamma=gamma)
    over, count = tuple(range(first, x.ndim)), size(x.shape[first:])
    square = fold(te.sum, x, over, "square", lambda v, i: v * v)
    scale = stage(square.shape, lambda *i: te.rsqrt(square[i] / count + eps), "scale")
    return stage(x.shape, lambda *i: x[i] * scale[i[:first]] * gamma[i[first:]], "rms_norm")


# -- group ---------------------------------------------------------------------------------------------------


def _group_reference(
    x: Array, gamma: Array, beta: Array, groups: int, eps: float = 1e-5, axis: int = 1
) -> Array:
    first = np.moveaxis(x, axis, 1).astype(np.float64)
    parts = first.reshape(x.shape[0], groups, -1)
    y = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + eps)
    y = np.moveaxis(y.reshape(first.shape), 1, -1) * gamma + beta
    return np.asarray(np.moveaxis(y, -1, axis)).astype(x.dtype)


@operator(
    "group_norm",
    kind=Kind.REDUCTION,
    reference=_group_reference,
    constants=(1, 2),
    cases=(
        Case(((2, 6, 3, 5), (6,), (6,)), {"groups": 3}),
        Case(((1, 3, 7, 4), (4,), (4,)), {"groups": 1, "axis": -1}),
        Case(((2, 3, 17), (3,), (3,)), {"groups": 3, "eps": 1e-3}),
    ),
)
def group_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float = 1e-5, axis: int = 1
) -> Tensor:
    """Normalises each group of channels over its channels and all axes but the first. axis: the channels."""
    at = axis_of("group_norm", axis, x.ndim)
    channels = x.shape[at]
    require(at > 0, "group_norm: axis 0 is the batch; channels must be another axis.")
    require(
        is_int(groups) and groups >= 1 and channels % groups == 0,
        f"group_norm: groups={groups!r} must divide the {channels} channels of x {x.shape}.",
    )
    _per_channel("group_norm", x, (channels,), gamma=gamma, beta=beta)
    width, count = channels // groups, size(x.shape[1:]) // groups
    ks = [te.reduce_axis(width if a == at else x.shape[a], f"k{a}") for a in range(1, x.ndim)]

    def element(n: Any, g: Any) -> Any:
        return x[(n, *(g * width + k if a == at else k for a, k in enumerate(ks, 1)))]

    shape = (x.shape[0], groups)
    total = stage(shape, lambda n, g: te.sum(element(n, g), axis=ks), "total")
    mean = stage(shape, lambda n, g: total[n, g] / count, "mean")
    square = stage(
        shape,
        lambda n, g: te.sum((element(n, g) - mean[n, g]) * (element(n, g) - mean[n, g]), axis=ks),
        "square",
    )
    scale = stage(shape, lambda n, g: te.rsqrt(square[n, g] / count + eps), "scale")

    def body(*i: Any) -> Any:
        c, g = i[at], (i[0], i[at] // width)
        return (x[i] - mean[g]) * scale[g] * gamma[c] + beta[c]

    return stage(x.shape, body, "group_norm")
