"""Resize and Upsample. Each axis is resized alone, as a weighted sum of elements at indices that are known
from the extents.

y[i] = Σ_t weight[i, t] * x[place[i, t]]        nearest: one tap; linear: 2; cubic: 4; antialiased: more
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from autotensor.frontends.onnx.families.shape import line_shape
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode


@dataclass(frozen=True, slots=True)
class Axis:
    """The change of one axis."""

    axis: int
    before: int
    after: int
    scale: float  # the node's scale, or after / before
    by_size: bool = False  # whether the scale is after / before
    roi: tuple[float, float] = (0.0, 1.0)


def _number(x: float) -> GraphNode:
    return constant(np.array([x], np.float64))


def _scale(a: Axis) -> GraphNode:
    """The scale as a node, which follows run-time extents if it is their quotient."""
    return _number(a.after) / _number(a.before) if a.by_size else _number(a.scale)


def places(a: Axis, mode: str) -> GraphNode:
    """Where each new element lies on the old axis: [after] float64."""
    i, n, scale = constant(np.arange(a.after, dtype=np.float64)), _number(a.before), _scale(a)
    long = a.scale * a.before  # the new extent before rounding
    match mode:
        case "half_pixel":
            return (i + 0.5) / scale - 0.5
        case "half_pixel_symmetric":  # exact where a scale is
            return (n - 1.0) / 2.0 + (i + 0.5 - _number(a.after) / 2.0) / scale
        case "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if long != 1 else constant(np.full(a.after, -0.5))
        case "align_corners":
            return i * (n - 1.0) / (scale * n - 1.0) if long != 1 else constant(np.zeros(a.after))
        case "asymmetric":
            return i / scale
        case "tf_crop_and_resize":
            low, high = a.roi
            if long == 1:
                return constant(np.full(a.after, (high - low) * (a.before - 1) / 2 + low * (a.before - 1)))
            return i * (high - low) * (n - 1.0) / (scale * n - 1.0) + (n - 1.0) * low
    raise ValueError(f"coordinate_transformation_mode {mode!r} is unknown")


# -- weights: distance of an element from the place ▶ weight ---------------------------------------------


def _linear(distance: GraphNode) -> GraphNode:
    return ops.maximum(1.0 - ops.abs(distance), 0.0)


def _cubic(a: float) -> Callable[[GraphNode], GraphNode]:
    """Keys' kernel for cubic interpolation."""

    def weight(distance: GraphNode) -> GraphNode:
        x = ops.abs(distance)
        near = x * x * x * (a + 2) - x * x * (a + 3) + 1.0
        far = x * x * x * a - x * x * (5 * a) + x * (8 * a) - 4 * a
        return ops.where(ops.less_equal(x, 1.0), near, ops.where(ops.less(x, 2.0), far, 0.0))

    return weight


def taps(c: Call, a: Axis, at: GraphNode) -> list[tuple[GraphNode, GraphNode | None]]:
    """Indices of elements and their weights, each [after]; no weight if there is one tap."""
    mode = c.attr("mode", "nearest")
    if mode == "nearest":
        return [(_nearest(c, at), None)]
    if mode not in ("linear", "cubic"):
        raise c.malformed(f"mode {mode!r} is unknown.")
    reach, kernel = (1, _linear) if mode == "linear" else (2, _cubic(c.attr("cubic_coeff_a", -0.75)))
    shrink = min(a.scale, 1.0) if c.attr("antialias", 0) else 1.0
    first = math.floor(-reach / shrink) + 1
    base = ops.ceil(at) - 1.0  # an element at exactly `at` has the distance 1 from base
    offsets = [float(n) for n in range(first, 2 - first)]
    indices = [base + n for n in offsets]
    weights = [kernel((n - (at - base)) * shrink) for n in offsets]
    if shrink < 1:
        weights = _normed(weights)
    if c.attr("exclude_outside", 0):
        inside = [ops.logical_and(ops.greater_equal(x, 0.0), ops.less(x, _number(a.before))) for x in indices]
        weights = _normed([ops.where(i, w, 0.0) for i, w in zip(inside, weights, strict=True)])
    return list(zip(indices, weights, strict=True))


def _normed(weights: list[GraphNode]) -> list[GraphNode]:
    total = reduce(operator.add, weights)
    return [w / total for w in weights]


def _nearest(c: Call, at: GraphNode) -> GraphNode:
    match c.attr("nearest_mode", "round_prefer_floor" if c.opset >= 11 else "floor"):
        case "round_prefer_floor":
            return ops.ceil(at - 0.5)
        case "round_prefer_ceil":
            return ops.floor(at + 0.5)
        case "floor":
            return ops.floor(at)
        case "ceil":
            return ops.ceil(at)
        case other:
            raise c.malformed(f"nearest_mode {other!r} is unknown.")


def _along(c: Call, x: GraphNode, a: Axis, mode: str) -> GraphNode:
    """x resized along one axis, in floats unless elements are only picked.

    Places and weights are computed by operators, so that they follow run-time extents. Where the extents are
    known, folding makes them constants.
    """
    at = places(a, mode)
    last = _number(a.before) - 1.0
    line = line_shape(a.axis, x.ndim)
    parts = []
    for index, weight in taps(c, a, at):
        inside = as_type(ops.minimum(ops.maximum(index, 0.0), last), "int64")
        part = ops.take(x, inside, axis=a.axis)
        if weight is not None:
            part = part * ops.reshape(as_type(weight, x.dtype), shape=line)
        parts.append(part)
    total = reduce(operator.add, parts)
    if mode == "tf_crop_and_resize":
        outside = ops.reshape(ops.logical_or(ops.less(at, 0.0), ops.greater(at, last)), shape=line)
        total = ops.where(outside, constant(c.attr("extrapolation_value", 0.0), dtype=x.dtype), total)
    return total


# -- operators -------------------------------------------------------------------------------------------


@converts("Upsample")
def upsample_attribute(c: Call) -> Value:
    return _by_scales(c, c.attr("scales"))


@converts("Upsample", "Resize", since=9)
def resize_by_scales(c: Call) -> Value:
    return _by_scales(c, c.array(1).reshape(-1))


def _by_scales(c: Call, scales: Iterable[float]) -> Value:
    axes = [_scaled(a, n, float(s)) for a, (n, s) in enumerate(zip(c[0].shape, scales, strict=True))]
    return _resized(c, axes, "asymmetric")


@converts("Resize", since=11)
def resize(c: Call) -> Value:
    axes = c.axes(c.attr("axes", tuple(range(c.rank))))
    mode = c.attr("coordinate_transformation_mode", "half_pixel")
    roi = c.array(1).reshape(-1) if c.get(1) is not None and mode == "tf_crop_and_resize" else np.zeros(0)
    rois = [(float(roi[n]), float(roi[n + len(axes)])) if len(roi) else (0.0, 1.0) for n in range(len(axes))]
    if mode == "tf_crop_and_resize" and len(roi) != 2 * len(axes):
        raise c.malformed(f"a region of {len(roi)} numbers for {len(axes)} axes.")
    by_scale = c.get(2) is not None and c[2].shape != (0,)
    given = c.array(2 if by_scale else 3).reshape(-1)
    if len(given) != len(axes):
        raise c.malformed(f"{len(given)} {'scales' if by_scale else 'sizes'} are given for {len(axes)} axes.")
    extents = [c[0].shape[a] for a in axes]
    if by_scale:
        found = [_scaled(a, n, float(s)) for a, n, s in zip(axes, extents, given, strict=True)]
    else:
        found = _sized(c, axes, extents, [int(v) for v in given])
    found = [replace(f, roi=r) for f, r in zip(found, rois, strict=True)]
    return _resized(c, found, mode)


def _scaled(axis: int, extent: int, scale: float) -> Axis:
    if not 0 < scale < 1e6:
        raise ValueError(f"a scale of {scale}")
    return Axis(axis, extent, math.floor(extent * scale), scale)


def _sized(c: Call, axes: tuple[int, ...], extents: list[int], sizes: list[int]) -> list[Axis]:
    policy = c.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [Axis(a, n, m, m / n, by_size=True) for a, n, m in zip(axes, extents, sizes, strict=True)]
    ratios = [m / n for n, m in zip(extents, sizes, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [Axis(a, n, math.floor(scale * n + 0.5), scale) for a, n in zip(axes, extents, strict=True)]


def _resized(c: Call, axes: list[Axis], mode: str) -> GraphNode:
    x = c[0]
    kind = c.attr("mode", "nearest")
    picks = kind == "nearest" and mode != "tf_crop_and_resize"
    plain = picks or (x.dtype.is_float and x.dtype.bits >= 32)
    y = x if plain else as_type(x, "float32")
    for a in axes:
        same = (
            a.before == a.after and a.scale == 1.0 and (mode != "tf_crop_and_resize" or a.roi == (0.0, 1.0))
        )
        if a.after < 0:
            raise c.malformed(f"an axis of {a.after} elements.")
        if a.before == 0 and a.after:
            raise c.malformed("an axis without elements cannot be resized.")
        if not same:
            y = _along(c, y, a, mode)
    if y.dtype == x.dtype:
        return y
    if x.dtype.is_int:
        limits = np.iinfo(x.dtype.numpy)
        y = ops.minimum(
            ops.maximum(ops.round(y) if kind == "cubic" else y, float(limits.min)), float(limits.max)
        )
    return as_type(y, x.dtype)
