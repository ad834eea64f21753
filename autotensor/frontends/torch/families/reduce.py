"""Sums, extremes and positions along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from autotensor import te
from autotensor.frontends.torch.element_types import with_axes
from autotensor.frontends.torch.families.elementwise import as_bool, floats
from autotensor.frontends.torch.registry import converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import call, ops
from autotensor.graph.ir import GraphNode, constant
from autotensor.te import Tensor

Axes = Sequence[int] | int | None


def _axes(dim: Axes) -> tuple[int, ...] | None:
    """The axes; None for all axes, which torch also writes as []."""
    if dim is None:
        return None
    found = (dim,) if isinstance(dim, int) else tuple(dim)
    return found or None


def _typed(x: GraphNode, dtype: str | None) -> GraphNode:
    """x in the type of its sum: int64 for bools and integers."""
    if dtype is not None:
        return as_type(x, dtype)
    return x if x.dtype.is_float else as_type(x, "int64")


def _sums(ours: str, *targets: str) -> Callable[..., Any]:
    """Registers sums and similar reductions, which compute in the type of a sum."""

    @with_axes
    def convert(x: GraphNode, dim: Axes = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
        return getattr(ops, ours)(_typed(x, dtype), axis=_axes(dim), keepdims=keepdim)

    return converts(*targets)(convert)


total = _sums("sum", "aten.sum.dim_IntList", "aten.sum.default")
mean = _sums("mean", "aten.mean.dim", "aten.mean.default")
product = _sums("prod", "aten.prod.default", "aten.prod.dim_int")


def _extremes(ours: str) -> None:
    """Registers the greatest or the least element in four forms: of all elements, along axes, along one axis
    with its position, and the position alone."""
    find, find_place = getattr(ops, ours), getattr(ops, f"arg{ours}")

    @converts(f"aten.a{ours}.default", f"aten.{ours}.default")
    @with_axes
    def value(x: GraphNode, dim: Axes = None, keepdim: bool = False) -> Any:
        return find(x, axis=_axes(dim), keepdims=keepdim)

    @converts(f"aten.arg{ours}.default")
    @with_axes
    def place(x: GraphNode, dim: int | None = None, keepdim: bool = False) -> Any:
        return find_place(x, axis=dim, keepdims=keepdim)

    @converts(f"aten.{ours}.dim")
    @with_axes
    def both(x: GraphNode, dim: int, keepdim: bool = False) -> Any:
        return value(x, dim, keepdim), place(x, dim, keepdim)


_extremes("max")
_extremes("min")


@converts("aten.any.default", "aten.any.dim", "aten.any.dims", "aten._is_any_true.default")
@with_axes
def any_of(x: GraphNode, dim: Axes = None, keepdim: bool = False) -> Any:
    ones = as_type(as_bool(x), "int32")
    return as_bool(ops.max(ones, axis=_axes(dim), keepdims=keepdim))


@converts("aten.all.default", "aten.all.dim", "aten.all.dims", "aten._is_all_true.default")
@with_axes
def all_of(x: GraphNode, dim: Axes = None, keepdim: bool = False) -> Any:
    ones = as_type(as_bool(x), "int32")
    return as_bool(ops.min(ones, axis=_axes(dim), keepdims=keepdim))


@converts("aten.var.correction")
@with_axes
def var(x: GraphNode, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    """Computed in two passes: the mean, then the sum of squares around the mean, divided by n -
    correction."""
    over = _axes(dim)
    count = prod(x.shape[a] for a in (over if over is not None else range(x.ndim)))
    left = count - (1 if correction is None else correction)
    centred = ops.subtract(x, ops.mean(x, axis=over, keepdims=True))
    squares = ops.sum(ops.multiply(centred, centred), axis=over, keepdims=keepdim)
    # with too few elements: 0 / 0 is not a number, anything else / 0 is infinite
    return squares * (1 / left) if left > 0 else ops.divide(squares, constant(0, dtype=x.dtype))


@converts("aten.std.correction")
@with_axes
def std(x: GraphNode, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    return ops.sqrt(var(x, dim, correction=correction, keepdim=keepdim))


@converts("aten.var_mean.correction")
@with_axes
def var_mean(
    x: GraphNode, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    return var(x, dim, correction=correction, keepdim=keepdim), mean(x, dim, keepdim)


@converts("aten.linalg_vector_norm.default")
@with_axes
def vector_norm(
    x: GraphNode, ord: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: str | None = None
) -> Any:
    y = floats(x if dtype is None else as_type(x, dtype))
    over = _axes(dim)
    each = {"axis": over, "keepdims": keepdim}
    match float(ord):
        case 0.0:
            return ops.sum(as_type(ops.not_equal(y, as_type(0, y.dtype)), y.dtype), **each)
        case 1.0:
            return ops.sum(ops.abs(y), **each)
        case 2.0:
            return ops.sqrt(ops.sum(ops.multiply(y, y), **each))
        case math.inf:
            return ops.max(ops.abs(y), **each)
        case p if p == -math.inf:
            return ops.min(ops.abs(y), **each)
        case p:
            total_power = ops.sum(ops.power(ops.abs(y), as_type(p, y.dtype)), **each)
            return ops.power(total_power, as_type(1 / p, y.dtype))


# -- along a line ----------------------------------------------------------------------------------------


def _so_far(ours: str) -> None:
    @converts(f"aten.{ours}.default")
    def convert(x: GraphNode, dim: int, *, dtype: str | None = None) -> Any:
        y = _typed(x, dtype)
        return getattr(ops, ours)(y, axis=dim) if y.shape else y


_so_far("cumsum")
_so_far("cumprod")


def _extremes_so_far(aten: str, largest: bool) -> None:
    @converts(f"aten.{aten}.default")
    @with_axes
    def convert(x: GraphNode, dim: int) -> Any:
        return call(lambda t: _extreme_so_far(t, dim % t.ndim, largest), x, name=aten)


_extremes_so_far("cummax", True)
_extremes_so_far("cummin", False)


def _extreme_so_far(x: Tensor, axis: int, largest: bool) -> Any:
    """The extreme of the line up to each element, and its last position. Not-a-number counts as more extreme
    than all numbers. As written, every element reads its line again. On CPUs this becomes a scan."""
    k = te.reduce_axis(x.shape[axis], "k")

    def is_bad(v: Any) -> Any:
        return te.isnan(v) if x.dtype.is_float else te.const(False, "bool")

    def later(a: Any, b: Any) -> Any:
        """Whether b is the new extreme. Both are (position, value); position -1 means no element."""
        beyond = b[1] > a[1] if largest else b[1] < a[1]
        level = te.any(b[1].equal(a[1]), te.all(is_bad(a[1]), is_bad(b[1])))
        ahead = te.any(te.all(~is_bad(a[1]), te.any(is_bad(b[1]), beyond)), te.all(level, b[0] > a[0]))
        takes = te.all(b[0] >= 0, te.any(a[0] < 0, ahead))
        return te.select(takes, b[0], a[0]), te.select(takes, b[1], a[1])

    start = te.min_value if largest else te.max_value
    reducer = te.comm_reducer(later, lambda i, v: (te.const(-1, i), start(v)), name="extreme_so_far")

    def body(*i: Any) -> Any:
        value = x[(*i[:axis], k.var, *i[axis + 1 :])]
        none = te.const(-1, "int64"), start(x.dtype)
        pairs = zip((k.var, value), none, strict=True)
        return reducer(tuple(te.select(k.var <= i[axis], t, n) for t, n in pairs), axis=k)

    names = tuple(f"i{n}" for n in range(x.ndim))
    place, value = te.compute(x.shape, body, name="so_far", axis_names=names)
    return value, place


@converts("aten.logcumsumexp.default")
@with_axes
def logcumsumexp(x: GraphNode, dim: int) -> Any:
    """The logarithm of the sum of exp(x) up to each element."""
    most, total = call(lambda t: _exponentials_so_far(t, dim % t.ndim), x, name="logcumsumexp")
    return ops.add(most, ops.log(total))


def _exponentials_so_far(x: Tensor, axis: int) -> Any:
    """For each element, the largest m up to it and the sum of exp(x - m), which cannot overflow."""
    k = te.reduce_axis(x.shape[axis], "k")

    def joined(a: Any, b: Any) -> Any:
        most = te.maximum(a[0], b[0])

        def of(m: Any, total: Any) -> Any:  # equal values may be infinite, and inf - inf is not a number
            return total * te.exp(te.select(m.equal(most), te.const(0, m.dtype), m - most))

        return most, of(*a) + of(*b)

    reducer = te.comm_reducer(joined, lambda m, t: (te.min_value(m), te.const(0, t)), name="exponentials")

    def body(*i: Any) -> Any:
        value, seen = x[(*i[:axis], k.var, *i[axis + 1 :])], k.var <= i[axis]
        one, none = te.const(1, x.dtype), te.const(0, x.dtype)
        return reducer((te.select(seen, value, te.min_value(x.dtype)), te.select(seen, one, none)), axis=k)

    names = tuple(f"i{n}" for n in range(x.ndim))
    return te.compute(x.shape, body, name="so_far", axis_names=names)


@converts("aten.topk.default")
@with_axes
def topk(x: GraphNode, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    at = ops.top_positions(x, count=k, axis=dim, largest=largest)
    return ops.gather_elements(x, at, axis=dim), at


@converts("aten.sort.default", "aten.sort.stable")
@with_axes
def sort(x: GraphNode, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    return topk(x, x.shape[dim], dim, descending)


@converts("aten.argsort.default", "aten.argsort.stable")
@with_axes
def argsort(x: GraphNode, dim: int = -1, descending: bool = False, **_: Any) -> Any:
    return sort(x, dim, descending)[1]
