"""The convolutions in NumPy: products of matrices over strided views, one per kernel element."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.operators.operator_helpers import Zeros, factor_arrays, paddings, per_axis
from autotensor.operators.window import Ints

Array = np.ndarray[Any, Any]


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
    """One product of matrices for every group and kernel element, over strided views."""
    x, w = factor_arrays(x, w, zeros, sums)
    rank = x.ndim - 2
    last = layout.endswith("C")
    first = np.moveaxis(x, -1, 1) if last else x
    source = np.pad(first, ((0, 0), (0, 0), *paddings("conv", padding, rank)))
    strides, dilations = (per_axis("conv", "steps", v, rank) for v in (stride, dilation))
    kernel = w.shape[2:]
    out = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(source.shape[2:], kernel, strides, dilations, strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *out), np.result_type(x, w))
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for g in range(groups):
        for at in np.ndindex(*kernel):
            window = [
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(at, dilations, out, strides, strict=True)
            ]
            part = source[(slice(None), slice(g * inputs, (g + 1) * inputs), *window)]
            weight = w[(slice(g * outputs, (g + 1) * outputs), slice(None), *at)]
            y[:, g * outputs : (g + 1) * outputs] += np.einsum("ni...,oi->no...", part, weight)
    if bias is not None:
        y = y + bias.reshape(-1, *(1,) * rank)
    return np.moveaxis(y, 1, -1) if last else y


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
    """Every input element adds its multiple of the kernel to the output."""
    first = np.moveaxis(x, -1, 1) if layout == "NHWC" else x
    (sh, sw), (eh, ew) = (per_axis("conv", "steps", v, 2, 0) for v in (stride, output_padding))
    ph, pw = paddings("conv", padding, 2)
    (batch, cin, height, width), (outs, kh, kw) = first.shape, w.shape[1:]
    full = np.zeros((batch, outs * groups, (height - 1) * sh + kh + eh, (width - 1) * sw + kw + ew), x.dtype)
    for g in range(groups):
        ins = slice(g * (cin // groups), (g + 1) * (cin // groups))
        for h, v in np.ndindex(height, width):
            block = np.einsum("ni,iohw->nohw", first[:, ins, h, v], w[ins])
            full[:, g * outs : (g + 1) * outs, h * sh : h * sh + kh, v * sw : v * sw + kw] += block
    y = full[:, :, ph[0] : full.shape[2] - ph[1], pw[0] : full.shape[3] - pw[1]]
    y = y if bias is None else y + bias.reshape(-1, 1, 1)
    return np.moveaxis(y, 1, -1) if layout == "NHWC" else y
