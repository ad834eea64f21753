"""Reading and writing at indices that are data; sorting; operators whose number of results depends on
data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotensor.frontends.onnx.element_types import Array
from autotensor.frontends.onnx.families.shape import MOST_NUMBERS, line_shape
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type, row
from autotensor.graph.build import constant, ops

# -- gather ----------------------------------------------------------------------------------------------


@converts("Gather")
def gather(c: Call) -> Value:
    axis = c.axis(0)
    known = c.known(1)
    if known is not None and known.ndim == 0:  # one slice, without reading an index from memory
        n = c[0].shape[axis]
        place = int(known) % n if -n <= int(known) < n else n
        if place == n:
            raise c.malformed(f"place {int(known)} does not exist on axis {axis} of {c[0].shape}.")
        return row(c[0], axis, place)
    return ops.take(c[0], c[1], axis=axis)


@converts("GatherElements")
def gather_elements(c: Call) -> Value:
    return ops.gather_elements(c[0], c[1], axis=c.axis(0))


@converts("GatherND")
def gather_nd(c: Call) -> Value:
    batch, known = c.whole("batch_dims", 0), c.known(1)
    if known is not None and 0 <= batch < c.rank:
        _check_places(c, known, c[0].shape[batch:])
    return ops.gather_nd(c[0], c[1], batch=batch)


def _check_places(c: Call, places: Array, shape: Sequence[int]) -> None:
    """Raises Malformed when one of the indices [..., k] is outside the first k axes of `shape`."""
    extents = np.array(shape[: places.shape[-1]])
    if len(extents) == places.shape[-1] and ((places < -extents) | (places >= extents)).any():
        raise c.malformed(f"some places lie outside of x {c[0].shape}.")


# -- scatter ---------------------------------------------------------------------------------------------


@converts("Scatter", "ScatterElements")
def scatter_elements(c: Call) -> Value:
    axis, known = c.axis(0), c.known(1)
    if known is not None:
        _check_places(c, known[..., None], (c[0].shape[axis],))
    return ops.scatter_elements(c[0], c[1], c[2], axis=axis, reduction=c.attr("reduction", "none"))


@converts("ScatterND")
def scatter_nd(c: Call) -> Value:
    known = c.known(1)
    if known is not None:
        _check_places(c, known, c[0].shape)
    return ops.scatter_nd(c[0], c[1], c[2], reduction=c.attr("reduction", "none"))


@converts("TensorScatter")
def tensor_scatter(c: Call) -> Value:
    """Writes each batch's rows from its own start on; circular mode wraps around."""
    past, update = c[0], c[1]
    axis, mode = c.axis(-2), c.attr("mode", "linear")
    batch, length, count = past.shape[0], past.shape[axis], update.shape[axis]
    start = c.get(2)
    if start is None:
        start = constant(np.zeros(batch, np.int64))
    start = as_type(start, "int64")
    ones = (1,) * (past.ndim - 1)
    line = np.arange(length).reshape(line_shape(axis, past.ndim))
    offset = constant(line.astype(np.int64)) - ops.reshape(start, shape=(batch, *ones))
    if mode == "circular":
        offset = ops.mod_floor(offset, constant(length, dtype="int64"))
    inside = ops.logical_and(ops.greater_equal(offset, 0), ops.less(offset, count))
    held = ops.maximum(ops.minimum(offset, count - 1), 0)
    shape = tuple(length if a == axis else n for a, n in enumerate(update.shape))
    return ops.where(
        inside, ops.gather_elements(update, ops.broadcast_to(held, shape=shape), axis=axis), past
    )


# -- one hot, sorting, running sums ----------------------------------------------------------------------


@converts("OneHot")
def one_hot(c: Call) -> Value:
    depth = int(c.scalar(1))
    if not 0 <= depth <= MOST_NUMBERS:
        raise c.malformed(f"{depth} classes are wanted.")
    index, values = as_type(c[0], "int64"), c[2]
    rank = index.ndim + 1
    at = c.axes((c.whole("axis", -1),), rank)[0]
    place = ops.where(ops.less(index, 0), index + depth, index)
    line = np.arange(depth, dtype=np.int64).reshape(line_shape(at, rank))
    hit = ops.equal(ops.unsqueeze(place, axes=(at,)), constant(line))
    off, on = (row(values, 0, n) for n in range(2))
    return ops.where(hit, on, off)


@converts("TopK")
def top_k(c: Call) -> Value:
    count = c.whole("k") if "k" in c.attrs else int(c.scalar(1))
    axis = c.axis(-1)
    if not 0 <= count <= c[0].shape[axis]:
        raise c.malformed(f"{count} elements are wanted of {c[0].shape[axis]}.")
    where = ops.top_positions(c[0], count=count, axis=axis, largest=c.flag("largest", True))
    return [ops.gather_elements(c[0], where, axis=axis), where]


def _cumulative(c: Call, ours: str) -> Value:
    axis = c.axes((int(c.scalar(1)),))[0]
    flags = {"exclusive": c.flag("exclusive"), "reverse": c.flag("reverse")}
    return getattr(ops, ours)(c[0], axis=axis, **flags)


converts("CumSum")(lambda c: _cumulative(c, "cumsum"))
converts("CumProd")(lambda c: _cumulative(c, "cumprod"))


@converts("ReverseSequence")
def reverse_sequence(c: Call) -> Value:
    """Reverses the first lengths[b] elements of each line of batch b."""
    x, time, batch = c[0], c.axis(0, "time_axis"), c.axis(1, "batch_axis")
    rank, n = x.ndim, x.shape[time]
    known = c.known(1)
    if time == batch or c[1].shape != (x.shape[batch],):
        raise c.malformed(
            f"lengths {c[1].shape} of lines along axis {time} of {x.shape}, batch axis {batch}."
        )
    if known is not None and ((known < 0) | (known > n)).any():
        raise c.malformed(f"lengths from {known.min()} to {known.max()} of lines of {n} elements.")
    place = constant(np.arange(n, dtype=np.int64).reshape(line_shape(time, rank)))
    length = ops.reshape(as_type(c[1], "int64"), shape=line_shape(batch, rank))
    turned = ops.where(ops.less(place, length), length - place - 1, place)
    return ops.gather_elements(x, ops.broadcast_to(turned, shape=x.shape), axis=time)


# -- results whose size depends on data: computed on the host ----------------------------------------------


@converts("NonZero")
def non_zero(c: Call) -> Value:
    return list(
        c.on_host(lambda x: (np.asarray(np.nonzero(x), np.int64).reshape(max(x.ndim, 0), -1),), [c[0]])
    )


@converts("Compress")
def compress(c: Call) -> Value:
    axis = c.axis(0) if "axis" in c.attrs else None

    def run(x: Array, keep: Array) -> tuple[Array, ...]:
        length = x.size if axis is None else x.shape[axis]
        if keep.ndim != 1 or keep[length:].any():
            raise c.malformed(f"a condition {keep.shape} on {length} elements.")
        return (np.ascontiguousarray(np.compress(keep, x, axis)),)

    return list(c.on_host(run, [c[0], c[1]]))


@converts("Unique")
def unique(c: Call) -> Value:
    axis = c.axis(0) if "axis" in c.attrs else None
    ordered = c.flag("sorted", True)

    def run(x: Array) -> tuple[Array, ...]:
        found: Any = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
        values, first, inverse, counts = found
        if not ordered:
            order = np.argsort(first, kind="stable")
            values = np.take(values, order, 0 if axis is None else axis)
            first, counts = first[order], counts[order]
            inverse = np.argsort(order, kind="stable")[inverse]
        whole = (np.ascontiguousarray(a.reshape(-1), np.int64) for a in (first, inverse, counts))
        return (np.ascontiguousarray(values), *whole)

    return list(c.on_host(run, [c[0]]))


@converts("NonMaxSuppression")
def non_max_suppression(c: Call) -> Value:
    center = c.attr("center_point_box", 0)
    if center not in (0, 1):
        raise c.malformed(f"center_point_box is {center}; it must be 0 or 1.")
    boxes, scores = c[0].shape, c[1].shape
    if len(boxes) != 3 or len(scores) != 3 or (*scores[::2], 4) != boxes:
        raise c.malformed(f"boxes {boxes} and scores {scores}.")
    most = int(c.scalar(2, 0))
    overlap = float(c.scalar(3, 0.0))
    least = c.scalar(4, None)
    return list(c.on_host(lambda x, s: (_suppressed(x, s, most, overlap, least, center),), [c[0], c[1]]))


def _suppressed(
    boxes: Array, scores: Array, most: int, overlap: float, least: float | None, center: bool
) -> Array:
    """[batch, class, box] of each box that is kept, the best first. A box that overlaps a better one too much
    is dropped."""
    kept = []
    for b, of_batch in enumerate(scores):
        corners = _corners(boxes[b].astype(np.float64), center)
        for s, line in enumerate(of_batch):
            left = np.arange(len(line)) if least is None else np.flatnonzero(~(line <= least))
            left = left[np.argsort(-line[left], kind="stable")]
            found = 0
            while left.size and found < most:
                best, left = left[0], left[1:]
                left = left[_shared(corners[best], corners[left]) <= overlap]
                kept.append((b, s, best))
                found += 1
    return np.asarray(kept, np.int64).reshape(-1, 3)


def _corners(boxes: Array, center: bool) -> Array:
    """[n, 4] as y1, x1, y2, x2 with y1 <= y2 and x1 <= x2."""
    if center:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], 1)


def _shared(one: Array, others: Array) -> Array:
    """Intersection over union of one box and each of the others: [n]."""
    sides = np.maximum(0, np.minimum(one[2:], others[:, 2:]) - np.maximum(one[:2], others[:, :2]))
    common = sides.prod(1)
    union = np.prod(one[2:] - one[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - common
    shares: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares
