"""`as_strided`: views that define where their elements are in memory.

torch's decompositions use such a view to give a result the strides of the replaced kernel, for example after
an adaptive pool of channels-last data. Users write such views to read windows. The positions in memory are
known at import, because torch derives the strides of every tensor:

    as_strided(x, size, stride, offset) ──▶ x itself, or reshape, slice and transpose of the memory in a row,
                                            or a gather of elements when the strides are not nested
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.element_types import Ints
from autotensor.frontends.torch.registry import Held, Layout, converts
from autotensor.graph.build import ops
from autotensor.graph.ir import Array, GraphNode, constant


@converts("aten.as_strided.default", "aten.as_strided_copy.default", memory=True)
def as_strided(
    x: GraphNode, size: Ints, stride: Ints, storage_offset: int | None = None, *, memory: Sequence[Held]
) -> Any:
    """memory: x and the tensors of which x is a view, because the elements may lie outside x."""
    wanted = _wanted(size, stride, storage_offset, memory)
    if prod(wanted.shape) == 0:
        return ops.reshape(ops.slice(_row(x), begin=(0,), end=(0,)), shape=wanted.shape)
    for held in memory:
        found = _read(held, wanted)
        if found is not None:
            return found
    raise Unsupported("it reads memory outside the tensor that it is a view of.", fix="Index the tensor.")


@converts("aten.as_strided_scatter.default", memory=True)
def as_strided_scatter(
    x: GraphNode,
    source: GraphNode,
    size: Ints,
    stride: Ints,
    storage_offset: int | None = None,
    *,
    memory: Sequence[Held],
) -> Any:
    """x with the elements of the view replaced: each element of the result comes from x or from `source`."""
    written = _places(_wanted(size, stride, storage_offset, memory)).ravel()
    own = _places(memory[0].layout).ravel()
    if written.size == 0:
        return x
    sources = np.full(max(written.max(), own.max()) + 1, -1, np.int64)
    sources[written] = np.arange(written.size)
    at = sources[own]
    places = np.where(at >= 0, own.size + at, np.arange(own.size))
    both = ops.concat(_row(x), _row(source), axis=0)
    return ops.reshape(ops.take(both, constant(places), axis=0), shape=x.shape)


def _wanted(size: Ints, stride: Ints, offset: int | None, memory: Sequence[Held]) -> Layout:
    return Layout(tuple(size), tuple(stride), memory[0].layout.offset if offset is None else offset)


def _row(x: GraphNode) -> GraphNode:
    return ops.reshape(x, shape=(prod(x.shape),))


def _places(layout: Layout) -> Array:
    """The position of each element in memory, counted in elements: int64 of the layout's shape."""
    steps = [np.arange(n) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    found = np.full(layout.shape, layout.offset, np.int64)
    for axis, step in enumerate(steps):
        found += step.reshape((-1,) + (1,) * (len(steps) - axis - 1))
    return found


def _read(held: Held, wanted: Layout) -> GraphNode | None:
    """The elements of a tensor at the layout `wanted`; None if the tensor lacks one of them."""
    x, layout = held.node, held.layout
    if _long(layout) == _long(wanted) and layout.offset == wanted.offset:
        return x if x.shape == wanted.shape else ops.reshape(x, shape=wanted.shape)
    order = sorted(range(len(layout.shape)), key=lambda a: -layout.strides[a])
    extents, strides = ([of[a] for a in order] for of in (layout.shape, layout.strides))
    own = _places(Layout(tuple(extents), tuple(strides), 0)).ravel()
    places = _places(wanted) - layout.offset
    if places.min() < 0 or own.size == 0 or places.max() > own.max():
        return None
    row = _row(ops.transpose(x, axes=tuple(order)) if order != sorted(order) else x)
    if np.array_equal(own, np.arange(own.size)):  # memory without holes
        nested = _nested(row, wanted, wanted.offset - layout.offset)
        return nested if nested is not None else ops.take(row, constant(places), axis=0)
    at = np.full(own.max() + 1, -1, np.int64)
    at[own] = np.arange(own.size)
    found = at[places]
    return None if (found < 0).any() else ops.take(row, constant(found), axis=0)


def _long(layout: Layout) -> list[tuple[int, int]]:
    """Extents and strides of the axes that are longer than 1."""
    return [(n, s) for n, s in zip(layout.shape, layout.strides, strict=True) if n != 1]


def _nested(row: GraphNode, wanted: Layout, offset: int) -> GraphNode | None:
    """The view as reshape, slice and transpose of the memory. None unless each stride is a multiple of the
    next one and no axis is longer than the stride before it allows.

    strides 12, 4, 1 of 24 elements: [24] ──▶ [2, 3, 4]; each axis begins at its digit of the offset
    """
    axes = [a for a, (n, s) in enumerate(zip(wanted.shape, wanted.strides, strict=True)) if n > 1 and s]
    axes.sort(key=lambda a: -wanted.strides[a])
    strides = [wanted.strides[a] for a in axes]
    lengths = [wanted.shape[a] for a in axes]
    # adds an axis for the elements between two neighbours, of which one is read
    if not strides or strides[-1] != 1:
        strides, lengths = [*strides, 1], [*lengths, 1]
    if any(a <= b or a % b for a, b in pairwise(strides)):
        return None
    begins = []
    for s in strides:
        begins.append(offset // s)
        offset %= s
    ends = [b + n for b, n in zip(begins, lengths, strict=True)]
    extents = [-(-row.shape[0] // strides[0]), *(a // b for a, b in pairwise(strides))]
    if any(e > n for e, n in zip(ends, extents, strict=True)):
        return None
    missing = prod(extents) - row.shape[0]
    full = ops.pad(row, pads=((0, missing),)) if missing else row
    y = ops.reshape(full, shape=tuple(extents))
    if begins != [0] * len(begins) or ends != extents:
        y = ops.slice(y, begin=tuple(begins), end=tuple(ends))
    y = ops.reshape(y, shape=tuple(wanted.shape[a] for a in axes))
    y = ops.transpose(y, axes=tuple(axes.index(a) for a in sorted(axes)))
    y = ops.reshape(y, shape=tuple(n if a in axes else 1 for a, n in enumerate(wanted.shape)))
    return y if y.shape == wanted.shape else ops.broadcast_to(y, shape=wanted.shape)
