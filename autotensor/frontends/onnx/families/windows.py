"""Convolutions and pools: windows that move over the spatial axes of x [N, C, spatial…]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.transposed_convolution import transposed_convolution
from autotensor.frontends.values import widened
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode

CONV = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}


@dataclass(frozen=True, slots=True)
class Geometry:
    """Attributes that convolutions and pools share, per spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    befores: tuple[int, ...]
    afters: tuple[int, ...]

    @property
    def padding(self) -> tuple[int, ...]:
        """The padding in the form of autotensor's operators: first all `befores`, then all `afters`."""
        return (*self.befores, *self.afters)


def _written(
    c: Call, extents: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The node's strides, dilations and pads, or their defaults."""
    rank = len(extents)
    strides = tuple(c.attr("strides", (1,) * rank))
    dilations = tuple(c.attr("dilations", (1,) * rank))
    pads = tuple(c.attr("pads", (0,) * 2 * rank))
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise c.malformed(
            f"kernel {kernel}, strides {strides}, dilations {dilations}, pads {pads} do not fit {extents}."
        )
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise c.malformed(f"kernel {kernel}, strides {strides}, dilations {dilations} must be positive.")
    return strides, dilations, pads


def geometry(c: Call, extents: tuple[int, ...], kernel: tuple[int, ...]) -> Geometry:
    """The attributes with their defaults. `auto_pad` becomes numbers."""
    rank = len(extents)
    strides, dilations, pads = _written(c, extents, kernel)
    mode = c.attr("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * 2 * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        befores, afters = [], []
        for n, k, s, d in zip(extents, kernel, strides, dilations, strict=True):
            total = max(0, (math.ceil(n / s) - 1) * s + d * (k - 1) + 1 - n)
            less, more = total // 2, total - total // 2
            befores.append(less if mode == "SAME_UPPER" else more)
            afters.append(more if mode == "SAME_UPPER" else less)
        pads = (*befores, *afters)
    elif mode not in ("NOTSET", ""):
        raise c.malformed(f"auto_pad {mode!r} is unknown.")
    return Geometry(kernel, strides, dilations, pads[:rank], pads[rank:])


# -- convolutions ----------------------------------------------------------------------------------------


@converts("Conv")
def conv(c: Call) -> Value:
    return convolved(c, c[0], c[1], c.get(2))


def convolved(
    c: Call, x: GraphNode, w: GraphNode, bias: GraphNode | None, zeros: tuple[int, int] | None = None
) -> GraphNode:
    """The node's convolution for these operands. zeros: the zero points if the operands are bytes."""
    rank = x.ndim - 2
    if rank not in CONV or w.ndim != rank + 2:
        raise c.unsupported(f"x {x.shape} and w {w.shape}; one to three spatial axes are supported.")
    kernel = tuple(c.attr("kernel_shape", w.shape[2:]))
    if kernel != w.shape[2:]:
        raise c.malformed(f"kernel_shape {kernel} is not that of w {w.shape}.")
    g = geometry(c, x.shape[2:], kernel)
    return run_conv(x, w, bias, g, c.whole("group", 1), zeros)


def run_conv(
    x: GraphNode,
    w: GraphNode,
    bias: GraphNode | None,
    g: Geometry,
    groups: int,
    zeros: tuple[int, int] | None = None,
) -> GraphNode:
    return widened(partial(_conv, g=g, groups=groups, zeros=zeros), x, w, bias)


def _conv(
    x: GraphNode,
    w: GraphNode,
    bias: GraphNode | None,
    g: Geometry,
    groups: int,
    zeros: tuple[int, int] | None,
) -> GraphNode:
    if min(g.padding, default=0) < 0:  # negative padding cuts x first
        x = ops.pad(
            x,
            pads=(
                (0, 0),
                (0, 0),
                *((min(b, 0), min(a, 0)) for b, a in zip(g.befores, g.afters, strict=True)),
            ),
        )
    return CONV[len(g.kernel)](
        x,
        w,
        bias,
        stride=g.strides,
        padding=tuple(max(0, p) for p in g.padding),
        dilation=g.dilations,
        groups=groups,
        zeros=zeros,
    )


@converts("ConvTranspose")
def conv_transpose(c: Call) -> Value:
    """w is [Cin, Cout/group, kernel…]."""
    x, w, bias = c[0], c[1], c.get(2)
    rank, groups = x.ndim - 2, c.whole("group", 1)
    if rank not in CONV or w.ndim != rank + 2:
        raise c.unsupported(f"x {x.shape} and w {w.shape}; one to three spatial axes are supported.")
    g, extra = _transposed(c, x.shape[2:], w.shape[2:])
    convolve = partial(
        transposed_convolution,
        stride=g.strides,
        padding=tuple(zip(g.befores, g.afters, strict=True)),
        dilation=g.dilations,
        output_padding=extra,
        groups=groups,
    )
    return widened(convolve, x, w, bias)


def _transposed(
    c: Call, extents: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[Geometry, tuple[int, ...]]:
    """The geometry, with pads that follow from output_shape or auto_pad, and the output padding."""
    rank = len(extents)
    strides, dilations, pads = _written(c, extents, kernel)
    extra = tuple(c.attr("output_padding", (0,) * rank))
    if len(extra) != rank:
        raise c.malformed(f"output_padding {extra} does not fit {extents}.")
    mode, wanted = c.attr("auto_pad", "NOTSET"), c.attr("output_shape", None)
    full = [
        s * (n - 1) + e + d * (k - 1) + 1
        for s, n, e, d, k in zip(strides, extents, extra, dilations, kernel, strict=True)
    ]
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(n * s for n, s in zip(extents, strides, strict=True))
    if wanted is not None:
        total = [f - n for f, n in zip(full, tuple(wanted)[-rank:], strict=True)]
        before = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        # a larger result is padded at its end only, as in onnxruntime and by ONNX
        before = [max(b, 0) for b in before]
        pads = (*before, *(t - b for t, b in zip(total, before, strict=True)))
    elif mode == "VALID":
        pads = (0,) * 2 * rank
    return Geometry(kernel, strides, dilations, tuple(pads[:rank]), tuple(pads[rank:])), extra


# -- pools -----------------------------------------------------------------------------------------------


def pool(c: Call, x: GraphNode, mode: str) -> Value:
    """The node's windows over x. mode: max | average | norm."""
    if x.ndim < 3:
        raise c.malformed(f"x has shape {x.shape}, expected [N, C] and spatial axes.")
    g = geometry(c, x.shape[2:], tuple(c.attr("kernel_shape")))
    ceil = c.flag("ceil_mode")
    whole = _whole_axes(x, g, ceil, mode)
    if whole is not None:
        return whole
    shared: dict[str, Any] = {
        "kernel": g.kernel,
        "stride": g.strides,
        "padding": g.padding,
        "ceil_mode": ceil,
    }
    include = c.flag("count_include_pad")
    in_two = len(g.kernel) == 2 and set(g.dilations) == {1} and _is_small(g)
    if mode == "max":
        greatest = ops.max_pool2d if in_two else partial(ops.pool, mode="max", dilation=g.dilations)
        y = greatest(x, **shared)
        return [y, _numbers(c, x, g, shared) if c.wants(1) else None]
    if mode == "average" and in_two:
        return ops.avg_pool2d(x, count_include_pad=include, **shared)
    more = {"p": _power(c)} if mode == "norm" else {"count_include_pad": include}
    return ops.pool(x, mode=mode, dilation=g.dilations, **shared, **more)


def _is_small(g: Geometry) -> bool:
    """Whether the padding is smaller than the kernel, which the two-dimensional operators require."""
    return all(b < k and a < k for k, b, a in zip(g.kernel, g.befores, g.afters, strict=True))


def _whole_axes(x: GraphNode, g: Geometry, ceil: bool, mode: str) -> GraphNode | None:
    """The mean over all spatial axes, if the window is as large as x; else None."""
    if mode != "average" or g.kernel != x.shape[2:] or any(g.padding) or set(g.dilations) != {1}:
        return None
    return ops.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _numbers(c: Call, x: GraphNode, g: Geometry, shared: dict[str, Any]) -> GraphNode:
    """The positions of the largest elements, counted over all of x."""
    column_major = c.flag("storage_order")
    inside = ops.max_positions(x, dilation=g.dilations, column_major=column_major, **shared)
    n, channels, *spatial = x.shape
    starts = np.arange(n * channels, dtype=np.int64) * math.prod(spatial)
    return inside + constant(starts.reshape(n, channels, *(1 for _ in spatial)))


converts("MaxPool")(lambda c: pool(c, c[0], "max"))
converts("AveragePool")(lambda c: pool(c, c[0], "average"))
converts("LpPool")(lambda c: pool(c, c[0], "norm"))


def _power(c: Call) -> int:
    if (p := c.whole("p", 2)) < 1:
        raise c.malformed(f"p is {p}; a norm's is 1 or more.")
    return p


def _global(c: Call, ours: str) -> Value:
    return getattr(ops, ours)(c[0], axis=tuple(range(2, c.rank)), keepdims=True)


converts("GlobalAveragePool")(lambda c: _global(c, "mean"))
converts("GlobalMaxPool")(lambda c: _global(c, "max"))


@converts("GlobalLpPool")
def global_lp_pool(c: Call) -> Value:
    p = _power(c)
    total = ops.sum(ops.power(ops.abs(c[0]), float(p)), axis=tuple(range(2, c.rank)), keepdims=True)
    return ops.power(total, 1.0 / p)


@converts("MaxUnpool")
def max_unpool(c: Call) -> Value:
    """A tensor of zeros, with x's elements at the positions that MaxPool returned."""
    x, where = c[0], c[1]
    kernel = tuple(c.attr("kernel_shape"))
    rank = len(kernel)
    strides, pads = tuple(c.attr("strides", (1,) * rank)), tuple(c.attr("pads", (0,) * 2 * rank))
    spatial = [
        (n - 1) * s + k - b - a
        for n, s, k, b, a in zip(x.shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True)
    ]
    natural = (*x.shape[:2], *spatial)
    shape = c.ints(2, natural)
    # positions count over the natural shape; a given shape only adds padding
    count = math.prod(natural)
    zeros = ops.broadcast_to(constant(0, dtype=x.dtype), shape=(count,))
    flat = ops.scatter_elements(zeros, ops.reshape(where, shape=(-1,)), ops.reshape(x, shape=(-1,)))
    y = ops.reshape(flat, shape=natural)
    more = tuple((0, m - n) for m, n in zip(shape, natural, strict=True))
    return y if shape == natural else ops.pad(y, pads=more)
