"""Operators that move, cut and join: reshapes, slices, pads; and constants made from shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type, pieces
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode

MOST_NUMBERS = 1 << 27  # numbers of a line 0, 1, 2, … that a file can ask for


@converts("Shape")
def shape(c: Call) -> Value:
    found = c[0].shape[slice(c.attr("start", 0), c.attr("end", None))]
    return constant(np.asarray(found, np.int64))


@converts("Size")
def size(c: Call) -> Value:
    return constant(np.asarray(math.prod(c[0].shape), np.int64))


@converts("Reshape")
def reshape(c: Call) -> Value:
    x, wanted = c[0], c.ints(1)
    if not c.attr("allowzero", 0):
        if any(n == 0 and a >= x.ndim for a, n in enumerate(wanted)):
            raise c.malformed(f"the shape {wanted} copies an axis that x {x.shape} has not.")
        wanted = tuple(x.shape[a] if n == 0 else n for a, n in enumerate(wanted))
    if -1 in wanted and 0 in wanted:
        raise c.malformed(f"the shape {wanted} is not determined: nothing fills -1 next to 0.")
    return ops.reshape(x, shape=wanted)


@converts("Flatten")
def flatten(c: Call) -> Value:
    x = c[0]
    axis = c.whole("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise c.malformed(f"axis {axis} does not exist; there are {x.ndim}.")
    at = axis + x.ndim if axis < 0 else axis
    return ops.reshape(x, shape=(math.prod(x.shape[:at]), math.prod(x.shape[at:])))


@converts("Squeeze")
def squeeze(c: Call) -> Value:
    x, given = c[0], c.ints_or_attr(1, "axes")
    axes = c.axes(given) if given is not None else tuple(a for a, n in enumerate(x.shape) if n == 1)
    for a in axes:
        if x.shape[a] != 1:
            raise c.malformed(f"axis {a} of {x.shape} has extent {x.shape[a]}, expected 1.")
    return ops.reshape(x, shape=tuple(n for a, n in enumerate(x.shape) if a not in axes))


@converts("Unsqueeze")
def unsqueeze(c: Call) -> Value:
    given = c.ints_or_attr(1, "axes")
    if given is None:
        raise c.malformed("no axes are given.")
    return ops.unsqueeze(c[0], axes=c.axes(given, c.rank + len(given)))


@converts("Transpose")
def transpose(c: Call) -> Value:
    order = c.attr("perm", None)
    return ops.transpose(c[0], axes=tuple(order)) if order is not None else ops.transpose(c[0])


@converts("Concat")
def concat(c: Call) -> Value:
    if len({t.dtype for t in c.tensors}) > 1:
        raise c.malformed(f"operands are of several types: {', '.join(str(t.dtype) for t in c.tensors)}.")
    return joined(c.tensors, c.axis(0))


def line_shape(axis: int, rank: int) -> tuple[int, ...]:
    """The shape of a line along one of `rank` axes, to be broadcast over the others, such as (1, -1, 1)."""
    return tuple(-1 if a == axis else 1 for a in range(rank))


def joined(parts: Sequence[GraphNode], axis: int) -> GraphNode:
    """The parts, joined along an axis. Many parts are joined by several operators, because one operator would
    nest too deeply."""
    while len(parts) > 1:
        parts = [
            ops.concat(*parts[n : n + 24], axis=axis) if len(parts[n : n + 24]) > 1 else parts[n]
            for n in range(0, len(parts), 24)
        ]
    return parts[0]


def stacked(parts: Sequence[GraphNode], axis: int) -> GraphNode:
    """The parts side by side along a new axis."""
    return joined([ops.unsqueeze(p, axes=(axis,)) for p in parts], axis)


def divided(c: Call, axis: int, sizes: Sequence[int]) -> list[GraphNode]:
    """The first operand, cut into parts of these sizes."""
    extent = c[0].shape[axis]
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise c.malformed(f"parts of {sizes} do not make up the {extent} elements of axis {axis}.")
    return pieces(c[0], axis, sizes)


@converts("Split")
def split(c: Call) -> Value:
    x, axis = c[0], c.axis(0)
    sizes = c.ints_or_attr(1, "split")
    count = c.whole("num_outputs", c.outputs)
    if count != c.outputs:
        raise c.malformed(f"{count} parts are to be made, and {c.outputs} are named.")
    if sizes is None:
        each = -(-x.shape[axis] // count)
        sizes = tuple(max(0, min(each, x.shape[axis] - n * each)) for n in range(count))
    return divided(c, axis, sizes)


@converts("Slice")
def slice_attributes(c: Call) -> Value:
    starts, ends = c.attr("starts"), c.attr("ends")
    return _sliced(c, starts, ends, c.attr("axes", tuple(range(len(starts)))), (1,) * len(starts))


@converts("Slice", since=10)
def slice_(c: Call) -> Value:
    starts, ends = c.ints(1), c.ints(2)
    axes = c.ints(3, tuple(range(len(starts))))
    steps = c.ints(4, (1,) * len(starts))
    return _sliced(c, starts, ends, axes, steps)


def _sliced(
    c: Call, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Value:
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise c.malformed(f"starts {starts}, ends {ends}, axes {axes}, steps {steps} do not fit together.")
    places = c.axes(axes)
    if len(set(places)) != len(places):
        raise c.malformed(f"axes {tuple(axes)} name one twice.")
    begin: list[int | None] = []
    end: list[int | None] = []
    for start, stop, a, step in zip(starts, ends, places, steps, strict=True):
        n = c[0].shape[a]
        first = start + n if start < 0 else start
        last = stop + n if stop < 0 else stop
        low, high = (0, n) if step > 0 else (-1, n - 1)
        # in ONNX, a slice with a negative step starts at element 0 or above; in NumPy it would be empty
        first, last = min(max(first, 0), high), min(max(last, low), high)
        # Python reads -1 as the last element, so None is the end before the first element
        begin.append(first if first >= 0 else None)
        end.append(last if last >= 0 else None)
        if first < 0:  # there are no elements
            begin[-1], end[-1] = 0, 0
    if not places:
        return c[0]
    limited = tuple(max(-(1 << 31), min(1 << 31, s)) for s in steps)
    return ops.slice(c[0], begin=tuple(begin), end=tuple(end), stride=limited, axes=places)


@converts("Expand")
def expand(c: Call) -> Value:
    wanted = c.ints(1)
    shape = np.broadcast_shapes(c[0].shape, wanted)
    return ops.broadcast_to(c[0], shape=tuple(int(n) for n in shape))


@converts("Tile")
def tile(c: Call) -> Value:
    times = c.ints(1)
    if len(times) != c.rank:
        raise c.malformed(f"repeats {times} do not fit x {c[0].shape}.")
    if 0 in times:
        return ops.broadcast_to(
            constant(0, dtype=c[0].dtype), shape=tuple(n * t for n, t in zip(c[0].shape, times, strict=True))
        )
    return ops.tile(c[0], reps=times)


@converts("ConstantOfShape")
def constant_of_shape(c: Call) -> Value:
    value = np.asarray(c.attr("value", np.zeros(1, np.float32))).reshape(-1)[:1]
    shape = c.ints(0)
    if min(shape, default=0) < 0:
        raise c.malformed(f"the shape {shape} is negative.")
    return ops.broadcast_to(constant(value.reshape(())), shape=shape)


@converts("Range")
def range_(c: Call) -> Value:
    start, limit, delta = c.array(0).reshape(-1)[0], c.array(1).reshape(-1)[0], c.array(2).reshape(-1)[0]
    if delta == 0:
        raise c.malformed("the step is 0.")
    count = max(0, math.ceil((float(limit) - float(start)) / float(delta)))
    if count > MOST_NUMBERS:
        raise c.malformed(f"a range of {count} numbers is too large.")
    return constant((start + np.arange(count).astype(start.dtype) * delta).astype(start.dtype))


@converts("EyeLike")
def eye_like(c: Call) -> Value:
    if c.rank != 2:
        raise c.malformed(f"x has shape {c[0].shape}, expected two axes.")
    dtype = c.dtype_attr("dtype") if "dtype" in c.attrs else c[0].dtype
    return constant(np.eye(c[0].shape[0], c[0].shape[1], c.whole("k", 0)).astype(dtype.numpy))


@converts("Trilu")
def trilu(c: Call) -> Value:
    x, k = c[0], int(c.scalar(1, 0))
    rows, columns = (constant(np.arange(n, dtype=np.int64)) for n in x.shape[-2:])
    places = ops.unsqueeze(rows, axes=(1,)) + constant(k, dtype="int64")
    keep = ops.less_equal(places, columns) if c.attr("upper", 1) else ops.greater_equal(places, columns)
    return ops.where(keep, x, constant(0, dtype=x.dtype))


# -- pads ------------------------------------------------------------------------------------------------


@converts("Pad")
def pad_attributes(c: Call) -> Value:
    return _padded(c, c.attr("pads"), tuple(range(c.rank)), constant(c.attr("value", 0.0), dtype=c[0].dtype))


@converts("Pad", since=11)
def pad(c: Call) -> Value:
    axes = c.axes(c.ints(3, tuple(range(c.rank))))
    value = c.get(2)
    return _padded(c, c.ints(1), axes, constant(0, dtype=c[0].dtype) if value is None else value)


def _padded(c: Call, given: Sequence[int], axes: Sequence[int], value: GraphNode) -> Value:
    x, count = c[0], len(axes)
    if len(given) != 2 * count:
        raise c.malformed(f"pads {tuple(given)} do not fit the {count} axes.")
    around = {a: (int(given[n]), int(given[count + n])) for n, a in enumerate(axes)}
    pads = tuple(around.get(a, (0, 0)) for a in range(x.ndim))
    mode = c.attr("mode", "constant")
    if mode == "constant":
        return _filled(c, x, pads, value)
    known = ("reflect", "edge", "wrap")
    if mode not in known:
        raise c.unsupported(f"mode {mode!r}.", f"Known: constant, {', '.join(known)}.")
    y = x
    for a, (before, after) in enumerate(pads):
        if (before, after) == (0, 0):
            continue
        n = x.shape[a]
        places = np.arange(max(0, -before), n - max(0, -after))
        places = np.pad(places, (max(0, before), max(0, after)), mode=mode)
        y = ops.take(y, constant(places.astype(np.int64)), axis=a)
    return y


def _filled(c: Call, x: GraphNode, pads: tuple[tuple[int, int], ...], value: GraphNode) -> GraphNode:
    number = None if c.importer.is_open(value) else c.importer.demand(value, c.where).reshape(-1)[0].item()
    if number is not None and not x.dtype.is_bool:
        return ops.pad(x, pads=pads, value=number)
    inside = ops.pad(constant(np.ones(x.shape, np.uint8)), pads=pads)
    if x.dtype.is_bool:
        moved = as_type(ops.pad(as_type(x, "uint8"), pads=pads), "bool")
    else:
        moved = ops.pad(x, pads=pads)
    return ops.where(as_type(inside, "bool"), moved, ops.reshape(value, shape=()))


# -- space and depth -------------------------------------------------------------------------------------


@converts("DepthToSpace")
def depth_to_space(c: Call) -> Value:
    x, b = c[0], c.whole("blocksize")
    n, ch, h, w = x.shape
    if c.attr("mode", "DCR") == "DCR":
        split_ = ops.transpose(ops.reshape(x, shape=(n, b, b, ch // b**2, h, w)), axes=(0, 3, 4, 1, 5, 2))
    else:
        split_ = ops.transpose(ops.reshape(x, shape=(n, ch // b**2, b, b, h, w)), axes=(0, 1, 4, 2, 5, 3))
    return ops.reshape(split_, shape=(n, ch // b**2, h * b, w * b))


@converts("SpaceToDepth")
def space_to_depth(c: Call) -> Value:
    x, b = c[0], c.whole("blocksize")
    n, ch, h, w = x.shape
    split_ = ops.reshape(x, shape=(n, ch, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if c.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return ops.reshape(ops.transpose(split_, axes=order), shape=(n, ch * b * b, h // b, w // b))
