"""Resize and Upsample. Each axis is resized alone, as a weighted sum of elements at indices that are known
now.

y[i] = Σ_t weight[i, t] * x[place[i, t]]        nearest: one tap; linear: 2; cubic: 4; antialiased: more
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from autotensor.frontends.onnx.element_types import Array
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
    roi: tuple[float, float] = (0.0, 1.0)


def places(a: Axis, mode: str) -> Array:
    """Where each new element lies on the old axis: [after] float64."""
    i, n = np.arange(a.after, dtype=np.float64), a.before
    long = a.scale * n  # the new extent before rounding
    match mode:
        case "half_pixel":
            return (i + 0.5) / a.scale - 0.5
        case "half_pixel_symmetric":
            return (n - 1) / 2 + (i + 0.5 - a.after / 2) / a.scale  # exact where a scale is
        case "pytorch_half_pixel":
            return (i + 0.5) / a.scale - 0.5 if long != 1 else np.full(a.after, -0.5)
        case "align_corners":
            return i * (n - 1) / (long - 1) if long != 1 else np.zeros(a.after)
        case "asymmetric":
            return i / a.scale
        case "tf_crop_and_resize":
            low, high = a.roi
            if long == 1:
                return np.full(a.after, (high - low) * (n - 1) / 2 + low * (n - 1))
            return i * (high - low) * (n - 1) / (long - 1) + low * (n - 1)
    raise ValueError(f"coordinate_transformation_mode {mode!r} is unknown")


# -- weights: distance from the elements at floor + offsets ▶ [after, taps] ------------------------------


def _linear(distance: Array) -> Array:
    return np.maximum(0.0, 1.0 - np.abs(distance))


def _cubic(a: float) -> Callable[[Array], Array]:
    """Keys' kernel for cubic interpolation."""

    def weight(distance: Array) -> Array:
        x = np.abs(distance)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return weight


def taps(c: Call, a: Axis, at: Array) -> tuple[Array, Array]:
    """Indices of elements and their weights, each [after, taps]."""
    mode = c.attr("mode", "nearest")
    if mode == "nearest":
        return _nearest(c, at)[:, None].astype(np.int64), np.ones((a.after, 1))
    if mode not in ("linear", "cubic"):
        raise c.malformed(f"mode {mode!r} is unknown.")
    reach, kernel = (1, _linear) if mode == "linear" else (2, _cubic(c.attr("cubic_coeff_a", -0.75)))
    shrink = min(a.scale, 1.0) if c.attr("antialias", 0) else 1.0
    first = math.floor(-reach / shrink) + 1
    offsets = np.arange(first, 2 - first)
    base = np.ceil(at) - 1  # an element at exactly `at` has the distance 1 from base
    index = (base[:, None] + offsets).astype(np.int64)
    weights = kernel((offsets - (at - base)[:, None]) * shrink)
    if shrink < 1:
        weights = weights / weights.sum(1, keepdims=True)
    if c.attr("exclude_outside", 0):
        weights = np.where((index >= 0) & (index < a.before), weights, 0.0)
        weights = weights / weights.sum(1, keepdims=True)
    return index, weights


def _nearest(c: Call, at: Array) -> Array:
    match c.attr("nearest_mode", "round_prefer_floor" if c.opset >= 11 else "floor"):
        case "round_prefer_floor":
            return np.ceil(at - 0.5)
        case "round_prefer_ceil":
            return np.floor(at + 0.5)
        case "floor":
            return np.floor(at)
        case "ceil":
            return np.ceil(at)
        case other:
            raise c.malformed(f"nearest_mode {other!r} is unknown.")


def _along(c: Call, x: GraphNode, a: Axis, mode: str) -> GraphNode:
    """x resized along one axis, in floats unless elements are only picked."""
    at = places(a, mode)
    index, weights = taps(c, a, at)
    index = np.clip(index, 0, a.before - 1)
    total: GraphNode | None = None
    for t in range(index.shape[1]):
        all_of_them = np.array_equal(index[:, t], np.arange(a.before))
        part = x if all_of_them else ops.take(x, constant(index[:, t]), axis=a.axis)
        if weights.shape[1] > 1:
            line = weights[:, t].reshape(line_shape(a.axis, x.ndim))
            part = part * constant(line.astype(x.dtype.numpy))
        total = part if total is None else total + part
    assert total is not None
    if mode == "tf_crop_and_resize" and (outside := (at < 0) | (at > a.before - 1)).any():
        line = outside.reshape(line_shape(a.axis, x.ndim))
        total = ops.where(constant(line), constant(c.attr("extrapolation_value", 0.0), dtype=x.dtype), total)
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
    found = [Axis(f.axis, f.before, f.after, f.scale, r) for f, r in zip(found, rois, strict=True)]
    return _resized(c, found, mode)


def _scaled(axis: int, extent: int, scale: float) -> Axis:
    if not 0 < scale < 1e6:
        raise ValueError(f"a scale of {scale}")
    return Axis(axis, extent, math.floor(extent * scale), scale)


def _sized(c: Call, axes: tuple[int, ...], extents: list[int], sizes: list[int]) -> list[Axis]:
    policy = c.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [Axis(a, n, m, m / n) for a, n, m in zip(axes, extents, sizes, strict=True)]
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
