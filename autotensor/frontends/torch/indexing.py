"""Reading and writing at places that are data."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from autotensor import te
from autotensor.frontends.torch.registry import Unsupported, converts
from autotensor.frontends.torch.types import as_type
from autotensor.graph.build import call, ops
from autotensor.graph.ir import GraphNode
from autotensor.operators.common import broadcast_load


@converts("aten.embedding.default")
def embedding(weight: GraphNode, indices: GraphNode, *_: Any, **__: Any) -> Any:
    return ops.take(weight, indices)


@converts("aten.index_select.default")
def index_select(x: GraphNode, dim: int, index: GraphNode) -> Any:
    return ops.take(x, index, axis=dim)


@converts("aten._local_scalar_dense.default", "aten.item.default")
def item(x: GraphNode) -> Any:
    """A number that is read from a tensor stays a tensor without axes; operators that want a number now, as
    sizes are, refuse it."""
    return ops.reshape(x, shape=())


@converts("aten.gather.default")
def gather(x: GraphNode, dim: int, index: GraphNode, *, sparse_grad: bool = False) -> Any:
    return ops.gather_elements(x, index, axis=dim)


@converts("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(x: GraphNode, indices: Sequence[GraphNode | None]) -> Any:
    """NumPy's advanced indexing by integers: index tensors broadcast, None takes a whole axis."""
    given = {a: i for a, i in enumerate(indices) if i is not None}
    if any(i.dtype.is_bool for i in given.values()):
        raise Unsupported("indexing by a mask gives a shape that only the data know.", fix="Use torch.where.")
    if len(given) == 1:
        ((axis, at),) = given.items()
        return ops.take(x, at, axis=axis)
    axes = tuple(given)
    return call(lambda t, *at: _indexed(t, axes, at), x, *given.values(), name="index")


def _indexed(x: Any, axes: tuple[int, ...], at: tuple[Any, ...]) -> Any:
    """The index tensors' axes stand where theirs stood if those are neighbours, else in front."""
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
    if any(i.dtype.is_bool for i in given):
        if len(given) == 1 and indices[0] is not None and not accumulate and prod(values.shape) == 1:
            mask = given[0]
            wide = ops.reshape(mask, shape=mask.shape + (1,) * (len(x.shape) - len(mask.shape)))
            return ops.where(wide, as_type(ops.reshape(values, shape=()), x.dtype), x)
        raise Unsupported("writing at a mask is supported for one number only.", fix="Use torch.where.")
    if any(i is None for i in indices[: len(given)]):
        if len(given) == 1:
            return _put_along(x, len(indices) - 1, given[0], values, accumulate)
        raise Unsupported("writing through index tensors that are not of the first axes is not supported.")
    rank = max(len(i.shape) for i in given)
    spread = _broadcast([i.shape for i in given], rank)
    columns = [ops.unsqueeze(ops.broadcast_to(i, shape=spread), axes=(-1,)) for i in given]
    place = ops.concat(*columns, axis=-1) if len(columns) > 1 else columns[0]
    shape = (*spread, *x.shape[len(given) :])
    full = values if values.shape == shape else ops.broadcast_to(values, shape=shape)
    return ops.scatter_nd(x, place, as_type(full, x.dtype), reduction="add" if accumulate else "none")


def _put_along(x: GraphNode, axis: int, at: GraphNode, values: GraphNode, accumulate: bool) -> Any:
    """Slices of one axis: as if it were the first."""
    if len(at.shape) != 1:
        raise Unsupported("writing through an index tensor of several axes is not supported here.")
    order = (axis, *(a for a in range(len(x.shape)) if a != axis))
    back = tuple(order.index(a) for a in range(len(x.shape)))
    shape = tuple(at.shape[0] if a == axis else n for a, n in enumerate(x.shape))
    full = ops.broadcast_to(values, shape=shape) if values.shape != shape else values
    front, new = (ops.transpose(v, axes=order) for v in (x, full))
    return ops.transpose(index_put(front, [at], new, accumulate), axes=back)


@converts("aten.index_copy.default")
def index_copy(x: GraphNode, dim: int, index: GraphNode, source: GraphNode) -> Any:
    return _put_along(x, dim % len(x.shape), index, source, False)


@converts("aten.index_add.default")
def index_add(x: GraphNode, dim: int, index: GraphNode, source: GraphNode, *, alpha: Any = 1) -> Any:
    more = source if alpha == 1 else source * alpha
    return _put_along(x, dim % len(x.shape), index, more, True)


@converts("aten.scatter.src")
def scatter(x: GraphNode, dim: int, index: GraphNode, source: GraphNode) -> Any:
    return _scattered(x, dim, index, source, "none")


@converts("aten.scatter.value")
def scatter_value(x: GraphNode, dim: int, index: GraphNode, value: Any) -> Any:
    source = ops.broadcast_to(as_type(value, x.dtype), shape=index.shape)
    return ops.scatter_elements(x, index, source, axis=dim)


@converts("aten.scatter_add.default")
def scatter_add(x: GraphNode, dim: int, index: GraphNode, source: GraphNode) -> Any:
    return _scattered(x, dim, index, source, "add")


def _scattered(x: GraphNode, dim: int, index: GraphNode, source: GraphNode, reduction: str) -> Any:
    """torch's source may be larger than its index."""
    if source.shape != index.shape:
        rank = len(index.shape)
        source = ops.slice(source, begin=(0,) * rank, end=index.shape)
    return ops.scatter_elements(x, index, source, axis=dim, reduction=reduction)
