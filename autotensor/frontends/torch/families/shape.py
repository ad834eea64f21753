"""Operators that move elements or only change their indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.element_types import Ints, common
from autotensor.frontends.torch.registry import converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import call, ops
from autotensor.graph.ir import GraphNode
from autotensor.operators.operator_helpers import position, stage
from autotensor.te import Tensor


@converts(
    *("aten.view.default", "aten.view_copy.default", "aten._unsafe_view.default"),
    *("aten.reshape.default", "aten._reshape_alias.default"),
)
def reshape(x: GraphNode, shape: Ints, *_: Any) -> Any:
    return ops.reshape(x, shape=tuple(shape))


@converts("aten.flatten.using_ints")
def flatten(x: GraphNode, start_dim: int = 0, end_dim: int = -1) -> Any:
    if not x.shape:
        return ops.reshape(x, shape=(1,))
    a, b = start_dim % x.ndim, end_dim % x.ndim
    return ops.reshape(x, shape=(*x.shape[:a], prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


@converts("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(x: GraphNode, dim: Ints | int | None = None) -> Any:
    """Axes longer than 1 stay, even if `dim` names them."""
    named = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    drop = {d % x.ndim for d in named if x.shape and x.shape[d] == 1}
    return ops.reshape(x, shape=tuple(n for a, n in enumerate(x.shape) if a not in drop))


@converts("aten.unsqueeze.default")
def unsqueeze(x: GraphNode, dim: int) -> Any:
    return ops.unsqueeze(x, axes=(dim,))


@converts("aten.permute.default", "aten.permute_copy.default")
def permute(x: GraphNode, dims: Ints) -> Any:
    return ops.transpose(x, axes=tuple(dims)) if x.shape else x


@converts("aten.transpose.int")
def transpose(x: GraphNode, dim0: int, dim1: int) -> Any:
    if not x.shape:
        return x
    order = list(range(x.ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return ops.transpose(x, axes=tuple(order))


@converts("aten.t.default")
def t(x: GraphNode) -> Any:
    return transpose(x, 0, 1) if x.ndim == 2 else x


@converts("aten.expand.default")
def expand(x: GraphNode, shape: Ints, implicit: bool = False) -> Any:
    """An extent of -1 keeps the axis's extent."""
    new = len(shape) - x.ndim
    wanted = tuple(x.shape[a - new] if n == -1 else n for a, n in enumerate(shape))
    return x if wanted == x.shape else ops.broadcast_to(x, shape=wanted)


@converts("aten.repeat.default")
def repeat(x: GraphNode, repeats: Ints) -> Any:
    new = len(repeats) - x.ndim
    full = ops.reshape(x, shape=(1,) * new + x.shape) if new else x
    return ops.tile(full, reps=tuple(repeats))


# -- parts -----------------------------------------------------------------------------------------------


@converts("aten.slice.Tensor")
def slice_(
    x: GraphNode, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    extent = x.shape[dim]
    places = range(*slice(start, end, step).indices(extent))
    if places == range(extent):
        return x
    return ops.slice(x, begin=(places.start,), end=(places.stop,), stride=(step,), axes=(dim,))


@converts("aten.diagonal.default")
def diagonal(x: GraphNode, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Elements [..., k, k + offset] of the two axes; k is the last axis of the result."""
    return call(lambda t: _diagonal(t, offset, dim1 % t.ndim, dim2 % t.ndim), x, name="diagonal")


def _diagonal(x: Tensor, offset: int, a: int, b: int) -> Tensor:
    row, column = max(-offset, 0), max(offset, 0)
    count = min(x.shape[a] - row, x.shape[b] - column)
    shape = (*(n for k, n in enumerate(x.shape) if k not in (a, b)), count)

    def body(*i: Any) -> Any:
        rest = iter(i[:-1])
        places = {a: i[-1] + row if row else i[-1], b: i[-1] + column if column else i[-1]}
        return x[tuple(places[k] if k in places else next(rest) for k in range(x.ndim))]

    return stage(shape, body, "diagonal")


@converts("aten.unfold.default")
def unfold(x: GraphNode, dim: int, size: int, step: int) -> Any:
    """Windows along an axis. The positions in a window are the last axis of the result."""
    if not x.shape:
        return ops.broadcast_to(x, shape=(size,))
    return call(lambda t: _unfold(t, dim % t.ndim, size, step), x, name="unfold")


def _unfold(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    shape = [(n - size) // step + 1 if a == axis else n for a, n in enumerate(x.shape)]

    def body(*i: Any) -> Any:
        place = position(i[axis], step, i[-1])
        return x[(*i[:axis], place, *i[axis + 1 : -1])]

    return stage((*shape, size), body, "unfold")


@converts("aten.narrow_copy.default")
def narrow_copy(x: GraphNode, dim: int, start: int, length: int) -> Any:
    return narrow(x, dim, start % x.shape[dim], length)


@converts("aten.narrow.default")
def narrow(x: GraphNode, dim: int, start: int, length: int) -> Any:
    return slice_(x, dim, start, start + length)


@converts("aten.select.int")
def select(x: GraphNode, dim: int, index: int | GraphNode) -> Any:
    """index: a number, or a number that is read from a tensor, as in `x[:, i[0]]`."""
    if isinstance(index, GraphNode):
        return ops.take(x, index, axis=dim)
    at = index % x.shape[dim]
    return ops.squeeze(slice_(x, dim, at, at + 1), axes=(dim,))


@converts("aten.unbind.int", "aten.unbind_copy.int")
def unbind(x: GraphNode, dim: int = 0) -> Any:
    return tuple(select(x, dim, n) for n in range(x.shape[dim]))


@converts("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default")
def split_with_sizes(x: GraphNode, sizes: Ints, dim: int = 0) -> Any:
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return tuple(slice_(x, dim, s, s + n) for s, n in zip(starts, sizes, strict=True))


@converts("aten.split.Tensor")
def split(x: GraphNode, size: int, dim: int = 0) -> Any:
    extent = x.shape[dim]
    return split_with_sizes(x, [min(size, extent - s) for s in range(0, extent, size)], dim)


@converts("aten.chunk.default")
def chunk(x: GraphNode, chunks: int, dim: int = 0) -> Any:
    return split(x, -(-x.shape[dim] // chunks), dim)


@converts("aten.flip.default")
def flip(x: GraphNode, dims: Ints) -> Any:
    none, steps = (None,) * len(dims), (-1,) * len(dims)
    return ops.slice(x, begin=none, end=none, stride=steps, axes=tuple(dims)) if dims else x


@converts("aten.roll.default")
def roll(x: GraphNode, shifts: Ints, dims: Ints = ()) -> Any:
    if not dims:
        return ops.reshape(roll(ops.reshape(x, shape=(prod(x.shape),)), shifts, (0,)), shape=x.shape)
    y: Any = x
    for shift, d in zip(shifts, dims, strict=True):
        cut = -shift % x.shape[d]
        y = ops.concat(slice_(y, d, cut), slice_(y, d, 0, cut), axis=d) if cut else y
    return y


# -- together --------------------------------------------------------------------------------------------


@converts("aten.cat.default")
def cat(tensors: Sequence[GraphNode], dim: int = 0) -> Any:
    """Tensors without elements only count for the result's type. torch ignores empty vectors, even if the
    ranks differ."""
    dtype = common(*tensors)
    real = [as_type(x, dtype) for x in tensors if 0 not in x.shape]
    return ops.concat(*real, axis=dim) if len(real) > 1 else real[0]


@converts("aten.stack.default")
def stack(tensors: Sequence[GraphNode], dim: int = 0) -> Any:
    return cat([ops.unsqueeze(x, axes=(dim,)) for x in tensors], dim)


@converts("aten.constant_pad_nd.default")
def constant_pad_nd(x: GraphNode, pad: Ints, value: float = 0) -> Any:
    return ops.pad(x, pads=_pairs(x, pad), value=value)


@converts("aten.pad.default")
def pad(x: GraphNode, pad: Ints, mode: str = "constant", value: float | None = None) -> Any:
    if mode != "constant":
        raise Unsupported(f"padding of mode {mode!r} is not supported.")
    return constant_pad_nd(x, pad, value or 0)


def _pairs(x: GraphNode, pad: Ints) -> tuple[tuple[int, int], ...]:
    """(before, after) per axis from torch's list, which begins at the last axis."""
    given = [(pad[n], pad[n + 1]) for n in range(0, len(pad), 2)]
    return (*((0, 0),) * (x.ndim - len(given)), *reversed(given))


@converts("aten.slice_scatter.default")
def slice_scatter(
    x: GraphNode,
    source: GraphNode,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    """x with a slice replaced: the parts before and after it stay."""
    places = range(*slice(start, end, step).indices(x.shape[dim]))
    if step != 1:
        return _replaced(x, source, dim, places)
    parts = [slice_(x, dim, 0, places.start), source, slice_(x, dim, places.stop)]
    return cat([p for p in parts if p.shape[dim]], dim)


def _replaced(x: GraphNode, source: GraphNode, dim: int, places: range) -> Any:
    rows = []
    for n in range(x.shape[dim]):
        inside = n in places
        at = places.index(n) if inside else n
        rows.append(slice_(source if inside else x, dim, at, at + 1))
    return cat(rows, dim)


@converts("aten.select_scatter.default")
def select_scatter(x: GraphNode, source: GraphNode, dim: int, index: int) -> Any:
    at = index % x.shape[dim]
    return slice_scatter(x, ops.unsqueeze(source, axes=(dim,)), dim, at, at + 1)


@converts("aten.pixel_shuffle.default")
def pixel_shuffle(x: GraphNode, factor: int) -> Any:
    """[n, c*r*r, h, w] ──▶ [n, c, h*r, w*r]."""
    *lead, deep, h, w = x.shape
    c, axes = deep // factor**2, len(lead)
    parts = ops.reshape(x, shape=(*lead, c, factor, factor, h, w))
    order = (*range(axes), *(axes + a for a in (0, 3, 1, 4, 2)))
    return ops.reshape(ops.transpose(parts, axes=order), shape=(*lead, c, h * factor, w * factor))
