"""The convolutions in NumPy: matrix products of the weights and the windows of x.

y[n, g, o, at] = weights[g, o, (ci, k)] @ windows[n, g, (ci, k), at]      at: in y, k: in the kernel
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from autotensor.operators.operator_helpers import Zeros, factor_arrays, paddings, per_axis, product
from autotensor.operators.window import Ints

Array = np.ndarray[Any, Any]

# elements of windows that are copied for one product: 2 MB, so that they stay in a core's caches and new
# memory costs little (MobileNetV2 takes 39 ms; with four times as much, 72; Zen 4)
MOST_COPIED = 1 << 19


def convolution_reference(
    x: Array,
    w: Array,
    bias: Array | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: str = "",
    zeros: Zeros = None,
    sums: str = "",
) -> Array:
    """One matrix product for every group, over as many rows of the result as `MOST_COPIED` allows."""
    x, w = factor_arrays(x, w, zeros, sums)
    rank = x.ndim - 2
    last = layout.endswith("C")
    first = np.moveaxis(x, -1, 1) if last else x
    around = paddings("conv", padding, rank)
    source = np.pad(first, ((0, 0), (0, 0), *around)) if any(map(any, around)) else first
    strides, dilations = (per_axis("conv", "steps", v, rank) for v in (stride, dilation))
    windows = _windows(source, w.shape[2:], strides, dilations)
    out = windows.shape[2 : 2 + rank]
    y = np.empty((x.shape[0], w.shape[0], *out), np.result_type(x, w))
    copied = windows.size if windows.size > first.size else 1  # nothing is copied if a window is one element
    rows = max(1, MOST_COPIED * out[0] // max(copied, 1))
    for start in range(0, out[0], rows):
        _multiply(w, windows[:, :, start : start + rows], y[:, :, start : start + rows])
    if bias is not None:
        y += bias.reshape(-1, *(1,) * rank)
    return np.moveaxis(y, 1, -1) if last else y


def _multiply(w: Array, windows: Array, y: Array) -> None:
    """One product for every group. windows: [n, ci, at…, k…]; y: [n, co, at…], which is written."""
    rank = w.ndim - 2
    groups = windows.shape[1] // w.shape[1]
    weights = w.reshape(groups, w.shape[0] // groups, -1)
    part = windows.reshape(y.shape[0], groups, -1, *windows.shape[2:])
    matrix = np.moveaxis(part, range(-rank, 0), range(3, 3 + rank))  # [n, g, ci, k…, at…]
    matrix = matrix.reshape(y.shape[0], groups, weights.shape[2], prod(y.shape[2:]))
    y[...] = product(weights, matrix).reshape(y.shape)


def _windows(source: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """A view of x with its padding: [n, ci, at…, k…]."""
    reaches = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    every = sliding_window_view(source, reaches, axis=tuple(range(2, source.ndim)))
    steps = (slice(None, None, s) for s in (*strides, *dilations))
    return every[(slice(None), slice(None), *steps)]


def transposed_reference(
    x: Array,
    w: Array,
    bias: Array | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    layout: str = "NCHW",
) -> Array:
    """Every element of the kernel adds its products with x to the elements of y that it reaches."""
    first = np.moveaxis(x, -1, 1) if layout == "NHWC" else x
    (sh, sw), (eh, ew) = (per_axis("conv", "steps", v, 2, 0) for v in (stride, output_padding))
    ph, pw = paddings("conv", padding, 2)
    (batch, cin, height, width), (outs, kh, kw) = first.shape, w.shape[1:]
    full = np.zeros((batch, outs * groups, (height - 1) * sh + kh + eh, (width - 1) * sw + kw + ew), x.dtype)
    inputs = first.reshape(batch, groups, cin // groups, height * width)
    for a, b in np.ndindex(kh, kw):
        weights = np.swapaxes(w[:, :, a, b].reshape(groups, cin // groups, outs), 1, 2)
        part = product(weights, inputs).reshape(batch, groups * outs, height, width)
        full[:, :, a : a + (height - 1) * sh + 1 : sh, b : b + (width - 1) * sw + 1 : sw] += part
    y = full[:, :, ph[0] : full.shape[2] - ph[1], pw[0] : full.shape[3] - pw[1]]
    y = y if bias is None else y + bias.reshape(-1, 1, 1)
    return np.moveaxis(y, 1, -1) if layout == "NHWC" else y
