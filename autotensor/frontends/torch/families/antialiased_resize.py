"""Resizing with antialiasing: a new pixel is the mean of all old pixels that it covers, weighted by a filter.

Source: aten/src/ATen/native/cpu/UpSampleKernel.cpp (`compute_indices_weights_aa`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor.frontends.torch.element_types import Ints
from autotensor.frontends.torch.families.pool import resizes
from autotensor.graph.ir import Array, GraphNode
from autotensor.graph.tables import resized

Filter = Callable[[Array], Array]  # distance, in pixels of the coarser picture ──▶ weight


def _triangle(x: Array) -> Array:
    found: Array = np.maximum(0.0, 1.0 - np.abs(x))
    return found


def _cubic(x: Array) -> Array:
    """Keys' cubic with a = -0.5, which reaches two pixels."""
    x, a = np.abs(x), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _weights(extent: int, wanted: int, reach: int, shape: Filter, align_corners: bool, scale: Any) -> Array:
    """Weights [new extent, extent] along one axis. reach: pixels that the filter covers to each side."""
    if align_corners:
        step = (extent - 1) / (wanted - 1) if wanted > 1 else 0.0
    else:
        step = extent / wanted if not scale else 1 / scale
    wide = max(step, 1.0)
    w = np.zeros((wanted, extent), np.float32)
    for o in range(wanted):
        centre = step * (o + 0.5)
        first = max(int(centre - reach * wide + 0.5), 0)
        last = min(int(centre + reach * wide + 0.5), extent)
        found = shape((np.arange(first, last) - centre + 0.5) / wide)
        w[o, first:last] = found / (found.sum() or 1.0)
    return w


def _resizes(aten: str, reach: int, shape: Filter) -> None:
    @resizes(aten)
    def by_sizes(x: GraphNode, output_size: Ints, align_corners: bool, *scales: float | None) -> Any:
        lines = zip(x.shape[-2:], output_size, (*scales, None, None), strict=False)
        return resized(x, *(_weights(n, o, reach, shape, align_corners, s) for n, o, s in lines))


_resizes("_upsample_bilinear2d_aa", 1, _triangle)
_resizes("_upsample_bicubic2d_aa", 2, _cubic)
