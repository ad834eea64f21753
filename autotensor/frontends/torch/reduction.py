"""Sums, extremes and positions along axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from autotensor.base.dtype import dtype_of
from autotensor.frontends.torch.elementwise import as_bool, floats
from autotensor.frontends.torch.registry import Unsupported, converts
from autotensor.frontends.torch.types import as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode

Axes = Sequence[int] | int | None


def _axes(dim: Axes) -> tuple[int, ...] | None:
    """torch's [] means all axes."""
    if dim is None:
        return None
    found = (dim,) if isinstance(dim, int) else tuple(dim)
    return found or None


def _typed(x: GraphNode, dtype: str | None) -> GraphNode:
    """x in the type of a sum: bools and integers add up as int64."""
    if dtype is not None:
        return as_type(x, dtype_of(dtype))
    return x if x.dtype.is_float else as_type(x, dtype_of("int64"))


@converts("aten.sum.dim_IntList", "aten.sum.default")
def total(x: GraphNode, dim: Axes = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
    return ops.sum(_typed(x, dtype), axis=_axes(dim), keepdims=keepdim)


@converts("aten.mean.dim", "aten.mean.default")
def mean(x: GraphNode, dim: Axes = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
    return ops.mean(_typed(x, dtype), axis=_axes(dim), keepdims=keepdim)


@converts("aten.prod.default", "aten.prod.dim_int")
def product(x: GraphNode, dim: Axes = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
    return ops.prod(_typed(x, dtype), axis=_axes(dim), keepdims=keepdim)


@converts("aten.amax.default")
def amax(x: GraphNode, dim: Axes = None, keepdim: bool = False) -> Any:
    return ops.max(x, axis=_axes(dim), keepdims=keepdim)


@converts("aten.amin.default")
def amin(x: GraphNode, dim: Axes = None, keepdim: bool = False) -> Any:
    return ops.min(x, axis=_axes(dim), keepdims=keepdim)


@converts("aten.max.default")
def max_of_all(x: GraphNode) -> Any:
    return amax(x)


@converts("aten.min.default")
def min_of_all(x: GraphNode) -> Any:
    return amin(x)


@converts("aten.max.dim")
def max_along(x: GraphNode, dim: int, keepdim: bool = False) -> Any:
    return amax(x, dim, keepdim), ops.argmax(x, axis=dim, keepdims=keepdim)


@converts("aten.min.dim")
def min_along(x: GraphNode, dim: int, keepdim: bool = False) -> Any:
    return amin(x, dim, keepdim), ops.argmin(x, axis=dim, keepdims=keepdim)


@converts("aten.argmax.default")
def argmax(x: GraphNode, dim: int | None = None, keepdim: bool = False) -> Any:
    return ops.argmax(x, axis=dim, keepdims=keepdim)


@converts("aten.argmin.default")
def argmin(x: GraphNode, dim: int | None = None, keepdim: bool = False) -> Any:
    return ops.argmin(x, axis=dim, keepdims=keepdim)


@converts("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_of(x: GraphNode, dim: Axes = None, keepdim: bool = False) -> Any:
    ones = as_type(as_bool(x), dtype_of("int32"))
    return as_bool(ops.max(ones, axis=_axes(dim), keepdims=keepdim))


@converts("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_of(x: GraphNode, dim: Axes = None, keepdim: bool = False) -> Any:
    ones = as_type(as_bool(x), dtype_of("int32"))
    return as_bool(ops.min(ones, axis=_axes(dim), keepdims=keepdim))


@converts("aten.var.correction")
def var(x: GraphNode, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    """Two passes: the mean, then the mean square around it, of n - correction."""
    over = _axes(dim)
    count = prod(x.shape[a] for a in (over if over is not None else range(len(x.shape))))
    left = count - (1 if correction is None else correction)
    if left <= 0:
        raise Unsupported(f"the variance of {count} elements less {correction} is undefined.")
    centred = ops.subtract(x, ops.mean(x, axis=over, keepdims=True))
    return ops.sum(ops.multiply(centred, centred), axis=over, keepdims=keepdim) * (1 / left)


@converts("aten.std.correction")
def std(x: GraphNode, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    return ops.sqrt(var(x, dim, correction=correction, keepdim=keepdim))


@converts("aten.var_mean.correction")
def var_mean(
    x: GraphNode, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    return var(x, dim, correction=correction, keepdim=keepdim), mean(x, dim, keepdim)


@converts("aten.linalg_vector_norm.default")
def vector_norm(
    x: GraphNode, ord: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: str | None = None
) -> Any:
    y = floats(x if dtype is None else as_type(x, dtype_of(dtype)))
    over = _axes(dim)
    if ord == 2:
        return ops.sqrt(ops.sum(ops.multiply(y, y), axis=over, keepdims=keepdim))
    if ord == 1:
        return ops.sum(ops.abs(y), axis=over, keepdims=keepdim)
    if ord == float("inf"):
        return ops.max(ops.abs(y), axis=over, keepdims=keepdim)
    raise Unsupported(f"the norm of order {ord} is not supported.", fix="Known: 1, 2, inf.")


# -- along a line ----------------------------------------------------------------------------------------


@converts("aten.cumsum.default")
def cumsum(x: GraphNode, dim: int, *, dtype: str | None = None) -> Any:
    y = _typed(x, dtype)
    return ops.cumsum(y, axis=dim) if y.shape else y


@converts("aten.topk.default")
def topk(x: GraphNode, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    at = ops.top_positions(x, count=k, axis=dim, largest=largest)
    return ops.gather_elements(x, at, axis=dim), at


@converts("aten.sort.default")
def sort(x: GraphNode, dim: int = -1, descending: bool = False) -> Any:
    return topk(x, x.shape[dim], dim, descending)


@converts("aten.sort.stable")
def sort_stable(x: GraphNode, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return topk(x, x.shape[dim], dim, descending)


@converts("aten.argsort.default", "aten.argsort.stable")
def argsort(x: GraphNode, dim: int = -1, descending: bool = False, **_: Any) -> Any:
    return topk(x, x.shape[dim], dim, descending)[1]
