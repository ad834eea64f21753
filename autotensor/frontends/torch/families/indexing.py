"""Reading and writing at indices that are data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import DType, int32, int64
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.element_types import alike, with_axes
from autotensor.frontends.torch.families.elementwise import div_mode
from autotensor.frontends.torch.registry import Missing, converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import call, ops
from autotensor.graph.ir import GraphNode, constant
from autotensor.operators.operator_helpers import broadcast_load, stage
from autotensor.te import Tensor


@converts("aten.embedding.default")
def embedding(weight: GraphNode, indices: GraphNode, *_: Any, **__: Any) -> Any:
    return ops.take(weight, indices)


@converts("aten.index_select.default")
@with_axes
def index_select(x: GraphNode, dim: int, index: GraphNode) -> Any:
    return ops.take(x, ops.reshape(index, shape=(-1,)), axis=dim)


@converts("aten._local_scalar_dense.default", "aten.item.default")
def item(x: GraphNode) -> Any:
    """A number that is read from a tensor stays a tensor without axes. Operators that need the number at
    compile time, as a size, refuse it."""
    return ops.reshape(x, shape=())


@converts("aten.gather.default")
@with_axes
def gather(x: GraphNode, dim: int, index: GraphNode, *, sparse_grad: bool = False) -> Any:
    return ops.gather_elements(x, index, axis=dim)


@converts("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(x: GraphNode, indices: Sequence[GraphNode | None]) -> Any:
    """NumPy's advanced indexing by integers: index tensors broadcast, None takes a whole axis."""
    given = {a: i for a, i in enumerate(indices) if i is not None}
    if any(i.dtype.is_bool for i in given.values()):
        raise Unsupported("indexing by a mask gives a shape that depends on data.", fix="Use torch.where.")
    if len(given) == 1:
        ((axis, at),) = given.items()
        return ops.take(x, at, axis=axis)
    axes = tuple(given)
    return call(lambda t, *at: _indexed(t, axes, at), x, *given.values(), name="index")


def _indexed(x: Any, axes: tuple[int, ...], at: tuple[Any, ...]) -> Any:
    """The index tensors' axes replace the indexed axes if the indexed axes are neighbours. Otherwise the
    index tensors' axes come first."""
    rank = max(t.ndim for t in at)
    spread = _broadcast([t.shape for t in at], rank)
    joined = axes == tuple(range(axes[0], axes[0] + len(axes)))
    first = axes[0] if joined else 0
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = [x.shape[a] for a in kept]
    shape[first:first] = spread

    def body(*i: Any) -> Any:
        inner, outer = i[first : first + rank], iter((*i[:first], *i[first + rank :]))
        place: list[Any] = []
        for a in range(x.ndim):
            if a in axes:
                k: Any = broadcast_load(at[axes.index(a)], inner)
                place.append(te.select(k < 0, k + x.shape[a], k))
            else:
                place.append(next(outer))
        return x[tuple(place)]

    return te.compute(tuple(shape), body, name="index", axis_names=tuple(f"i{n}" for n in range(len(shape))))


def _broadcast(shapes: Sequence[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    full = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(max(column) for column in zip(*full, strict=True))


# -- writing ---------------------------------------------------------------------------------------------


@converts("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    x: GraphNode, indices: Sequence[GraphNode | None], values: GraphNode, accumulate: bool = False
) -> Any:
    """x with values written at index tensors of its first axes."""
    given = [i for i in indices if i is not None]
    if not given:
        same = ops.broadcast_to(as_type(values, x.dtype), shape=x.shape)
        return ops.add(x, same) if accumulate else same
    if 0 in values.shape or any(0 in i.shape for i in given):
        return x
    if any(i.dtype.is_bool for i in given):
        if len(given) == 1 and indices[0] is not None:
            return _put_where(x, given[0], as_type(values, x.dtype), accumulate)
        raise Unsupported("writing at a mask among other indices is not supported.", fix="Use torch.where.")
    if any(i is None for i in indices[: len(given)]):
        return _put_behind(x, indices, values, accumulate)
    rank = max(i.ndim for i in given)
    spread = _broadcast([i.shape for i in given], rank)
    columns = [ops.unsqueeze(ops.broadcast_to(i, shape=spread), axes=(-1,)) for i in given]
    place = ops.concat(*columns, axis=-1) if len(columns) > 1 else columns[0]
    shape = (*spread, *x.shape[len(given) :])
    full = values if values.shape == shape else ops.broadcast_to(values, shape=shape)
    return ops.scatter_nd(x, place, as_type(full, x.dtype), reduction="add" if accumulate else "none")


def _put_where(x: GraphNode, mask: GraphNode, values: GraphNode, accumulate: bool) -> Any:
    """x with values where the mask holds: one value for all these elements, or one for each, in order."""
    depth = mask.ndim
    rest = x.shape[depth:]
    rows = values.shape[0] if values.ndim > len(rest) else 1
    if rows == 1:
        new = ops.reshape(values, shape=values.shape[1:]) if values.ndim > len(rest) else values
    else:
        flat = ops.reshape(as_type(mask, int64), shape=(-1,))
        number = ops.clip(ops.cumsum(flat) - 1, min=0, max=rows - 1)
        full = ops.broadcast_to(values, shape=(rows, *rest))
        new = ops.take(full, ops.reshape(number, shape=mask.shape))
    wide = ops.reshape(mask, shape=mask.shape + (1,) * len(rest))
    return ops.where(wide, ops.add(x, new) if accumulate else new, x)


def _put_behind(
    x: GraphNode, indices: Sequence[GraphNode | None], values: GraphNode, accumulate: bool
) -> Any:
    """Writes at indexed axes that are not the first: they are moved to the front and back."""
    axes = [a for a, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    rank = max(i.ndim for i in given)
    spread = _broadcast([i.shape for i in given], rank)
    order = (*axes, *(a for a in range(x.ndim) if a not in axes))
    kept = tuple(x.shape[a] for a in order[len(axes) :])
    joined = axes == list(range(axes[0], axes[0] + len(axes)))
    first = axes[0] if joined else 0  # position of the index tensors' axes among the axes of the values
    shape = (*kept[:first], *spread, *kept[first:])
    full = ops.broadcast_to(values, shape=shape) if values.shape != shape else values
    turned = (*range(first, first + rank), *(a for a in range(len(shape)) if not first <= a < first + rank))
    y = index_put(ops.transpose(x, axes=order), given, ops.transpose(full, axes=turned), accumulate)
    return ops.transpose(y, axes=tuple(order.index(a) for a in range(len(order))))


def _put_along(x: GraphNode, axis: int, at: GraphNode, values: GraphNode, accumulate: bool) -> Any:
    """Writes slices of one axis."""
    places = ops.reshape(at, shape=(-1,))
    return index_put(x, [*(None for _ in range(axis)), places], values, accumulate)


@converts("aten.index_copy.default")
@with_axes
def index_copy(x: GraphNode, dim: int, index: GraphNode, source: GraphNode) -> Any:
    return _put_along(x, dim % x.ndim, index, source, False)


@converts("aten.index_add.default")
@with_axes
def index_add(x: GraphNode, dim: int, index: GraphNode, source: GraphNode, *, alpha: Any = 1) -> Any:
    more = source if alpha == 1 else source * alpha
    return _put_along(x, dim % x.ndim, index, more, True)


@converts("aten.scatter.src", "aten.scatter.reduce")
@with_axes
def scatter(x: GraphNode, dim: int, index: GraphNode, source: GraphNode, *, reduce: str | None = None) -> Any:
    return _scattered(x, dim, index, source, _JOIN[reduce])


@converts("aten.scatter.value", "aten.scatter.value_reduce")
@with_axes
def scatter_value(x: GraphNode, dim: int, index: GraphNode, value: Any, *, reduce: str | None = None) -> Any:
    source = ops.broadcast_to(as_type(value, x.dtype), shape=index.shape)
    return _scattered(x, dim, index, source, _JOIN[reduce])


@converts("aten.scatter_add.default")
@with_axes
def scatter_add(x: GraphNode, dim: int, index: GraphNode, source: GraphNode) -> Any:
    return _scattered(x, dim, index, source, "add")


@converts("aten.scatter_reduce.two")
@with_axes
def scatter_reduce(
    x: GraphNode, dim: int, index: GraphNode, source: GraphNode, reduce: str, *, include_self: bool = True
) -> Any:
    """Without include_self, written elements begin at the reduction's neutral value."""
    if 0 in index.shape:
        return x
    join = _JOIN[reduce]
    count = None
    if reduce == "mean" or not include_self:
        ones = ops.broadcast_to(constant(np.ones((), np.int64)), shape=index.shape)
        none = ops.broadcast_to(constant(np.zeros((), np.int64)), shape=x.shape)
        count = _scattered(none, dim, index, ones, "add")
    start = x
    if not include_self:
        start = ops.where(ops.greater(count, 0), as_type(_neutral(join, x.dtype), x.dtype), x)
    y = _scattered(start, dim, index, source, join)
    if reduce != "mean":
        return y
    members = ops.add(count, 1) if include_self else ops.maximum(count, 1)
    return div_mode(y, as_type(members, y.dtype), None if y.dtype.is_float else "floor")


# torch's names of reductions → autotensor's
_JOIN = {None: "none", "add": "add", "multiply": "mul", "sum": "add", "prod": "mul"}
_JOIN |= {"mean": "add", "amax": "max", "amin": "min"}


def _neutral(join: str, dtype: DType) -> Any:
    if join in ("add", "mul"):
        return 0 if join == "add" else 1
    if dtype.is_float:
        return -math.inf if join == "max" else math.inf
    limits = np.iinfo(dtype.numpy)
    return limits.min if join == "max" else limits.max


def _scattered(x: GraphNode, dim: int, index: GraphNode, source: GraphNode, reduction: str) -> Any:
    """x with the reduction of source at index. torch's source may be larger than its index."""
    if 0 in index.shape:
        return x
    if source.shape != index.shape:
        rank = index.ndim
        source = ops.slice(source, begin=(0,) * rank, end=index.shape)
    return ops.scatter_elements(x, index, source, axis=dim, reduction=reduction)


# -- places in sorted lines ------------------------------------------------------------------------------


@converts("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    line: GraphNode,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: GraphNode | None = None,
) -> Any:
    """For each element of x, the number of elements of its sorted line that come before it. With `right`,
    equal elements count, too."""
    if sorter is not None:
        line = ops.gather_elements(line, sorter, axis=-1)
    wanted, sorted_line = alike(x, line) if isinstance(x, GraphNode) else (as_type(x, line.dtype), line)
    if 0 in sorted_line.shape:
        return _zeros(wanted.shape, out_int32)
    before = right or side == "right"
    found = call(lambda t, at: _count_before(t, at, before), sorted_line, wanted, name="searchsorted")
    return as_type(found, int32) if out_int32 else found


@converts("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(x: Any, line: GraphNode, *, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(line, x, out_int32=out_int32, right=right)


def _zeros(shape: tuple[int, ...], narrow: bool) -> GraphNode:
    return constant(np.zeros(shape, np.int32 if narrow else np.int64))


def _count_before(line: Tensor, x: Tensor, right: bool) -> Tensor:
    """line: [..., n] for x [..., m], or [n] for any x. Not-a-number comes last."""
    k = te.reduce_axis(line.shape[-1], "k")

    def body(*i: Any) -> Any:
        element = line[(*i[:-1], k.var) if line.ndim > 1 else (k.var,)]
        behind = element > x[i] if right else element >= x[i]
        return te.sum(te.select(behind, te.const(0, "int64"), te.const(1, "int64")), axis=k)

    return stage(x.shape, body, "searchsorted")


@converts("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    weight: GraphNode,
    indices: GraphNode,
    offsets: GraphNode,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: GraphNode | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Rows of the weights, joined bag by bag: bag b has the indices from offsets[b] to offsets[b + 1]."""
    bags = offsets.shape[0] - (1 if include_last_offset else 0)
    args = (weight, indices, offsets, *(() if per_sample_weights is None else (per_sample_weights,)))
    found = call(
        lambda *t: _bags(*t, bags=bags, mode=("sum", "mean", "max")[mode], padding=padding_idx),
        *args,
        name="embedding_bag",
    )
    return found, *(Missing(f"an embedding bag's {what}") for what in ("places", "sizes", "maxima"))


def _bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, *scale: Tensor, bags: int, mode: str, padding: int
) -> Tensor:
    count = indices.shape[0]
    k, j = te.reduce_axis(count, "k"), te.reduce_axis(count, "j")

    def inside(b: Any, p: Any) -> Any:
        after = (
            te.all(p.var >= offsets[b], indices[p.var] != padding) if padding >= 0 else p.var >= offsets[b]
        )
        last = offsets.shape[0] - 1
        below = te.select(b < last, p.var < offsets[te.minimum(b + 1, last)], te.const(True, "bool"))
        return te.all(after, below)

    def row(b: Any, c: Any, nothing: Any) -> Any:
        element: Any = weight[indices[k.var], c]
        return te.select(inside(b, k), element * scale[0][k.var] if scale else element, nothing)

    def members(b: Any) -> Any:
        return te.sum(te.select(inside(b, j), te.const(1.0, weight.dtype), te.const(0, weight.dtype)), axis=j)

    shape = (bags, weight.shape[1])
    if mode == "max":
        most = stage(shape, lambda b, c: te.max(row(b, c, te.min_value(weight.dtype)), axis=k), "most")
    else:
        most = stage(shape, lambda b, c: te.sum(row(b, c, te.const(0, weight.dtype)), axis=k), "total")
        if mode == "sum":
            return most
    size = stage((bags,), members, "size")
    if mode == "max":
        return stage(shape, lambda b, c: te.select(size[b] > 0, most[b, c], te.const(0, weight.dtype)), "bag")
    return stage(shape, lambda b, c: most[b, c] / te.maximum(size[b], 1), "bag")
