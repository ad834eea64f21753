"""Sampling at positions that are data: GridSample, AffineGrid, RoiAlign, DeformConv, Col2Im.

All read single elements of an image by index: x is [N, C, elements], with one gather for each tap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type, cut, row
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode

# position on one axis, as a float without a fraction, and its weight (None: 1)
Tap = tuple[GraphNode, GraphNode | None]


def _reflected(v: GraphNode, low: float, high: float) -> GraphNode:
    """v folded back at both borders until it is inside."""
    span = high - low
    if span <= 0:
        return ops.minimum(ops.maximum(v, low), high)
    away = ops.mod_floor(v - low, constant(2 * span, dtype=v.dtype))
    return ops.minimum(away, 2 * span - away) + low


def _inside(v: GraphNode, extent: int) -> GraphNode:
    """v, or the nearest position on an axis of that extent."""
    return ops.minimum(ops.maximum(v, 0.0), float(extent - 1))


def _linear_taps(v: GraphNode) -> list[Tap]:
    low = ops.floor(v)
    rest = v - low
    return [(low, 1.0 - rest), (low + 1.0, rest)]


def _cubic_taps(v: GraphNode, a: float = -0.75) -> list[Tap]:
    low = ops.floor(v)
    t = v - low

    def far(x: GraphNode) -> GraphNode:
        return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a

    def near(x: GraphNode) -> GraphNode:
        return (x * (a + 2) - (a + 3)) * x * x + 1.0

    u = 1.0 - t
    return [(low - 1.0, far(t + 1.0)), (low, near(t)), (low + 1.0, near(u)), (low + 2.0, far(u + 1.0))]


def _gathered(x: GraphNode, place: GraphNode) -> GraphNode:
    """x [N, C, elements], read at the indices place [N, 1 or C, count] ──▶ [N, C, count]."""
    index = as_type(place, "int64")
    full = (x.shape[0], x.shape[1], index.shape[2])
    return ops.gather_elements(x, ops.broadcast_to(index, shape=full), axis=2)


def _sampled(
    x: GraphNode, taps: Sequence[Sequence[Tap]], extents: Sequence[int], inside_only: bool
) -> GraphNode:
    """Σ over all combinations of taps, one for each axis. Positions outside give 0 if inside_only."""
    total: GraphNode | None = None
    for chosen in itertools.product(*taps):
        number: Any = None
        weight: GraphNode | None = None
        inside: GraphNode | None = None
        for (place, w), n in zip(chosen, extents, strict=True):
            held = _inside(place, n)
            number = held if number is None else number * float(n) + held
            if inside_only:
                here = ops.equal(held, place)
                inside = here if inside is None else ops.logical_and(inside, here)
            if w is not None:
                weight = w if weight is None else weight * w
        part = _gathered(x, number)
        if weight is not None:
            part = part * as_type(weight, x.dtype)
        if inside is not None:
            part = ops.where(inside, part, constant(0, dtype=x.dtype))
        total = part if total is None else total + part
    assert total is not None
    return total


MODES = {"bilinear": "linear", "bicubic": "cubic"}  # the names in opset 16
MOST_NUMBERED = 1 << 24  # most elements of an image, because positions are computed in float32


@converts("GridSample")
def grid_sample(c: Call) -> Value:
    x, grid = c[0], c[1]
    mode = MODES.get(c.attr("mode", "linear"), c.attr("mode", "linear"))
    padding, corners = c.attr("padding_mode", "zeros"), c.flag("align_corners")
    extents, count = x.shape[2:], math.prod(grid.shape[1:-1])
    if grid.shape[-1] != len(extents) or math.prod(extents) > MOST_NUMBERED:
        raise c.unsupported(f"a grid of shape {grid.shape} over x {x.shape}.")
    flat = ops.reshape(grid, shape=(grid.shape[0], 1, count, len(extents)))
    flat = as_type(flat, "float32") if flat.dtype.is_half else flat
    taps = []
    for a, n in enumerate(extents):
        last = len(extents) - 1 - a  # the grid names the innermost axis first
        v = row(flat, 3, last)
        v = (v + 1.0) * ((n - 1) / 2) if corners else ((v + 1.0) * float(n) - 1.0) / 2.0
        taps.append(_held(c, _axis_taps(c, v, mode, padding, n, corners), padding, n, corners))
    image = ops.reshape(x, shape=(*x.shape[:2], math.prod(extents)))
    y = _sampled(image, taps, extents, padding == "zeros")
    return ops.reshape(y, shape=(*x.shape[:2], *grid.shape[1:-1]))


@converts("AffineGrid")
def affine_grid(c: Call) -> Value:
    """theta: [N, rank, rank + 1] ──▶ [N, *extents, rank]. The standard's definition loses the axis of a batch
    of one, so this converter replaces it."""
    theta, size = c[0], c.ints(1)
    rank, extents = len(size) - 2, size[2:]
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or min(extents) < 1:
        raise c.unsupported(f"theta of shape {theta.shape} for images of size {size}.")
    if math.prod(extents) > MOST_NUMBERED:
        raise c.unsupported(f"images of size {size}, more than {MOST_NUMBERED} points.")
    corners = c.flag("align_corners")
    lines = [np.linspace(-1, 1, n) if corners and n > 1 else (2 * np.arange(n) + 1) / n - 1 for n in extents]
    places = np.meshgrid(*lines, indexing="ij")[::-1]  # the innermost axis first
    base = np.stack([*(p.reshape(-1) for p in places), np.ones(math.prod(extents))])  # [rank + 1, elements]
    rows = ops.reshape(theta, shape=(-1, rank + 1))
    found = ops.matmul(rows, constant(base.astype(theta.dtype.numpy)))
    turned = ops.transpose(ops.reshape(found, shape=(size[0], rank, -1)), axes=(0, 2, 1))
    return ops.reshape(turned, shape=(size[0], *extents, rank))


def _borders(n: int, corners: bool) -> tuple[float, float]:
    return (0.0, n - 1.0) if corners else (-0.5, n - 0.5)


def _axis_taps(c: Call, v: GraphNode, mode: str, padding: str, n: int, corners: bool) -> list[Tap]:
    if mode == "nearest":
        v = ops.round(v)
    if padding == "border" and mode != "cubic":  # a cubic position outside keeps its own weights, as in torch
        v = _inside(v, n)
    elif padding == "reflection":
        v = _reflected(v, *_borders(n, corners))
    match mode:
        case "nearest":
            return [(ops.trunc(v) if padding == "reflection" else v, None)]
        case "linear":
            return _linear_taps(v)
        case "cubic":
            return _cubic_taps(v)
    raise c.malformed(f"mode {mode!r} is unknown.")


def _held(c: Call, taps: list[Tap], padding: str, n: int, corners: bool) -> list[Tap]:
    """The taps, with those outside reflected into the axis if `padding` says so. For a border, `_sampled`
    moves them inside."""
    if padding not in ("zeros", "border", "reflection"):
        raise c.malformed(f"padding_mode {padding!r} is unknown.")
    if padding != "reflection":
        return taps
    return [(ops.trunc(_reflected(p, *_borders(n, corners))), w) for p, w in taps]


# -- regions ---------------------------------------------------------------------------------------------


@converts("RoiAlign")
def roi_align(c: Call) -> Value:
    """rois: [R, 4] as x1, y1, x2, y2. Each region is cut into bins, and each bin is sampled on a grid of
    points."""
    x, rois, batch = c[0], c[1], as_type(c[2], "int64")
    if x.ndim != 4 or not 0 < math.prod(x.shape[2:]) <= MOST_NUMBERED:
        raise c.unsupported(f"x of shape {x.shape}.")
    ratio, rows, columns = (
        c.whole("sampling_ratio", 0),
        c.whole("output_height", 1),
        c.whole("output_width", 1),
    )
    default = "half_pixel" if c.opset >= 16 else "output_half_pixel"
    half = c.attr("coordinate_transformation_mode", default) == "half_pixel"
    if min(rows, columns) < 1:
        raise c.malformed(f"{rows} x {columns} bins of a region.")
    scale, count = float(c.attr("spatial_scale", 1.0)), rois.shape[0]
    if count == 0:
        return constant(np.zeros((0, x.shape[1], rows, columns), x.dtype.numpy))
    if ratio <= 0:
        return list(_adaptive(c, x, rois, batch, rows, columns, scale, half))
    box = rois * scale - (0.5 if half else 0.0)
    lines = []
    for axis, bins in ((1, rows), (0, columns)):
        low, high = (cut(box, 1, axis + k, axis + k + 1) for k in (0, 2))
        length = high - low if half else ops.maximum(high - low, 1.0)
        steps = constant(((np.arange(bins * ratio) + 0.5) / (bins * ratio)).astype(rois.dtype.numpy)[None])
        lines.append(low + length * steps)  # [R, bins * ratio]
    return _region_means(c, x, lines, batch, rows, columns, ratio)


def _region_means(
    c: Call, x: GraphNode, lines: list[GraphNode], batch: GraphNode, rows: int, columns: int, ratio: int
) -> GraphNode:
    n, m = rows * ratio, columns * ratio
    count, (h, w) = lines[0].shape[0], x.shape[2:]
    v = ops.broadcast_to(ops.reshape(lines[0], shape=(count, n, 1)), shape=(count, n, m))
    u = ops.broadcast_to(ops.reshape(lines[1], shape=(count, 1, m)), shape=(count, n, m))
    flat = [ops.reshape(t, shape=(count, 1, n * m)) for t in (v, u)]
    taps, inside = [], None
    for t, extent in zip(flat, (h, w), strict=True):
        here = ops.logical_and(ops.greater_equal(t, -1.0), ops.less_equal(t, float(extent)))
        inside = here if inside is None else ops.logical_and(inside, here)
        taps.append(_linear_taps(_inside(t, extent)))
    images = ops.take(ops.reshape(x, shape=(x.shape[0], x.shape[1], h * w)), batch, axis=0)
    join = ops.mean if c.attr("mode", "avg") == "avg" else ops.max
    if c.attr("mode", "avg") == "max":  # the greatest weighted corner, not the greatest interpolated value
        parts = [_sampled(images, [[a], [b]], (h, w), False) for a in taps[0] for b in taps[1]]
        y = parts[0]
        for p in parts[1:]:
            y = ops.maximum(y, p)
    else:
        y = _sampled(images, taps, (h, w), False)
    y = ops.where(inside, y, constant(0, dtype=x.dtype))
    y = ops.reshape(y, shape=(count, x.shape[1], rows, ratio, columns, ratio))
    return join(y, axis=(3, 5))


def _adaptive(
    c: Call,
    x: GraphNode,
    rois: GraphNode,
    batch: GraphNode,
    rows: int,
    columns: int,
    scale: float,
    half: bool,
) -> Sequence[GraphNode]:
    """sampling_ratio 0: the size of each region decides its grid. The host computes this."""
    mode = c.attr("mode", "avg")

    def run(image: Any, boxes: Any, numbers: Any) -> tuple[Any]:
        out = np.zeros((len(boxes), image.shape[1], rows, columns), image.dtype)
        for r, box in enumerate(boxes * scale - (0.5 if half else 0.0)):
            x1, y1, x2, y2 = (float(v) for v in box)
            height, width = (y2 - y1, x2 - x1) if half else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
            if not max(height, width, height * width) <= MOST_NUMBERED or not 0 <= numbers[r] < len(image):
                raise c.malformed(f"region {r} is {boxes[r].tolist()} of image {numbers[r]} of {len(image)}.")
            n, m = max(math.ceil(height / rows), 1), max(math.ceil(width / columns), 1)
            ys = y1 + (np.arange(rows * n) + 0.5) * height / (rows * n)
            xs = x1 + (np.arange(columns * m) + 0.5) * width / (columns * m)
            values = _corners(image[numbers[r]], ys, xs)  # [4, C, rows*n, columns*m], weighted
            parts = values.sum(0) if mode == "avg" else values.max(0)
            parts = parts.reshape(-1, rows, n, columns, m)
            out[r] = parts.mean((2, 4)) if mode == "avg" else parts.max((2, 4))
        return (out,)

    return c.on_host(run, [x, rois, batch])


def _corners(image: Any, ys: Any, xs: Any) -> Any:
    """The four neighbours of all points, times their weights; 0 for points outside."""
    h, w = image.shape[1:]
    inside = ((ys >= -1) & (ys <= h))[:, None] & ((xs >= -1) & (xs <= w))[None]
    ys, xs = np.clip(ys, 0, h - 1), np.clip(xs, 0, w - 1)
    y0, x0 = np.floor(ys).astype(int), np.floor(xs).astype(int)
    y1, x1 = np.minimum(y0 + 1, h - 1), np.minimum(x0 + 1, w - 1)
    fy, fx = ys - y0, xs - x0
    found = [
        image[:, a][:, :, b] * (p[:, None] * q[None] * inside)
        for a, p in ((y0, 1 - fy), (y1, fy))
        for b, q in ((x0, 1 - fx), (x1, fx))
    ]
    return np.stack(found)


# -- deformable convolution --------------------------------------------------------------------------------


@converts("DeformConv")
def deform_conv(c: Call) -> Value:
    """Each tap of the kernel reads x at the position to which `offset` moves it. Then one product with the
    weights follows."""
    x, w, offset = c[0], c[1], c[2]
    bias, mask = c.get(3), c.get(4)
    if x.ndim != 4 or not 0 < math.prod(x.shape[2:]) <= MOST_NUMBERED:
        raise c.unsupported(f"x of shape {x.shape}; two spatial axes are supported.")
    (n, channels, height, width), (out, each, kh, kw) = x.shape, w.shape
    strides, dilations = c.attr("strides", (1, 1)), c.attr("dilations", (1, 1))
    pads, groups, shared = c.attr("pads", (0,) * 4), c.whole("group", 1), c.whole("offset_group", 1)
    rows, columns = offset.shape[2:]
    points = rows * columns
    moved = ops.reshape(offset, shape=(n, shared, kh * kw, 2, points))
    taps = []
    for axis, (extent, k) in enumerate(((rows, kh), (columns, kw))):
        along = np.arange(extent) * strides[axis] - pads[axis]
        tap = np.arange(k) * dilations[axis]
        grid = (along[:, None] if axis == 0 else along[None]) + np.zeros((rows, columns))
        kernel = (tap[:, None] if axis == 0 else tap[None]) + np.zeros((kh, kw))
        base = kernel.reshape(-1, 1) + grid.reshape(1, -1)  # [kh*kw, points]
        place = row(moved, 3, axis) + constant(base.astype(x.dtype.numpy)[None, None])
        taps.append(_linear_taps(ops.reshape(place, shape=(n * shared, 1, kh * kw * points))))
    image = ops.reshape(x, shape=(n * shared, channels // shared, height * width))
    read = _sampled(image, taps, (height, width), True)
    if mask is not None:
        read = read * ops.reshape(mask, shape=(n * shared, 1, kh * kw * points))
    read = ops.reshape(read, shape=(n, groups, each, kh * kw, points))
    weights = ops.reshape(w, shape=(groups, out // groups, each, kh * kw))
    y = ops.reshape(ops.einsum(read, weights, equation="ngckp,gock->ngop"), shape=(n, out, rows, columns))
    return y if bias is None else y + ops.reshape(bias, shape=(1, out, 1, 1))


# -- columns back into images ------------------------------------------------------------------------------


@converts("Col2Im")
def col_to_im(c: Call) -> Value:
    """x: [N, C*block, blocks]. Every element is added to the pixel from which it came, by a table of indices
    that is known now."""
    x, image, block = c[0], c.ints(1), c.ints(2)
    rank = len(image)
    dilations, strides = c.attr("dilations", (1,) * rank), c.attr("strides", (1,) * rank)
    pads = c.attr("pads", (0,) * 2 * rank)
    fits = x.ndim == 3 and rank == len(block) == len(strides) == len(dilations) == len(pads) / 2
    if not fits or min((1, *block, *strides, *dilations)) < 1 or min((0, *image, *pads)) < 0:
        raise c.malformed(
            f"x {x.shape}, an image {image}, blocks {block}, strides {strides}, dilations {dilations}, "
            f"pads {pads}."
        )
    if math.prod(image) > MOST_NUMBERED:
        raise c.unsupported(f"an image {image}, more than {MOST_NUMBERED} elements.")
    counts = [
        (n + pads[a] + pads[rank + a] - d * (k - 1) - 1) // s + 1
        for a, (n, k, s, d) in enumerate(zip(image, block, strides, dilations, strict=True))
    ]
    if x.shape[1] % math.prod(block) or x.shape[2] != math.prod(counts):
        raise c.malformed(f"x {x.shape} does not fit an image {image} in blocks {block}.")
    axes = [
        _sources(n, k, s, d, pads[a], pads[rank + a])
        for a, (n, k, s, d) in enumerate(zip(image, block, strides, dilations, strict=True))
    ]
    size = math.prod(block) * math.prod(counts)
    table = []
    for at in np.ndindex(*image):
        found = []
        for pairs in itertools.product(*(axes[a][v] for a, v in enumerate(at))):
            tap = number = 0
            for (k, i), m, count in zip(pairs, block, counts, strict=True):
                tap, number = tap * m + k, number * count + i
            found.append(tap * math.prod(counts) + number)
        table.append(found)
    most = max((len(f) for f in table), default=0)
    # index `size` is an added zero
    places = np.asarray([f + [size] * (most - len(f)) for f in table], np.int64)
    channels = x.shape[1] // math.prod(block)
    lines = ops.pad(ops.reshape(x, shape=(x.shape[0], channels, size)), pads=((0, 0), (0, 0), (0, 1)))
    y = ops.sum(ops.take(lines, constant(places), axis=2), axis=3)
    return ops.reshape(y, shape=(x.shape[0], channels, *image))


def _sources(n: int, k: int, s: int, d: int, before: int, after: int) -> list[list[tuple[int, int]]]:
    """For each position on an axis, the (tap, block) pairs that lie there."""
    blocks = (n + before + after - d * (k - 1) - 1) // s + 1
    found: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for tap in range(k):
        for i in range(blocks):
            at = i * s - before + tap * d
            if 0 <= at < n:
                found[at].append((tap, i))
    return found
