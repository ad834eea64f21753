"""Convolutions of one, two and three spatial axes, and the transposed one of two.

    pad[n, h, w, c]  = select(inside, x[n, h - top, w - left, c], 0)                   if there is padding
    conv[n, h, w, c] = sum_{kh, kw, ci} pad[n, h*sh + kh*dh, w*sw + kw*dw, ci] * w[c, ci, kh, kw]
    bias[n, h, w, c] = conv[n, h, w, c] + bias[c]                                      if given

`layout` is that of x and of the result. Weights are always OIHW [Cout, Cin/groups, KH, KW]: packing them is a
step of the schedule on constants. Schedules rely on the form: spatial axes in layout order; reduce axes
(kh, kw, ci) for channels last and (ci, kh, kw) for channels first; kernel axes of extent 1 and terms that do
nothing are left out; depthwise (groups == Cin == Cout) has no ci.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.common import (
    Pairs,
    by_layout,
    is_int,
    layout_of,
    padded,
    paddings,
    per_axis,
    position,
    reduced,
    require,
    require_rank,
    stage,
)
from autotensor.operators.operator import Case, Kind, operator
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]
Ints = int | tuple[int, ...]

SPATIAL = {1: "w", 2: "hw", 3: "dhw"}
LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


# -- meaning -------------------------------------------------------------------------------------------------


def convolution(
    op: str,
    rank: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    layout: str,
) -> Tensor:
    """The convolution of `rank` spatial axes, in the form that the head of this file promises."""
    axes, spatial = layout_of(op, layout, LAYOUTS[rank]), SPATIAL[rank]
    _check(op, x, w, axes, spatial, groups)
    strides, dilations = per_axis(op, "stride", stride, rank), per_axis(op, "dilation", dilation, rank)
    (cout, group_in), kernel = w.shape[:2], w.shape[2:]
    source = padded(x, by_layout(axes, spatial, ((0, 0),) * 2, paddings(op, padding, rank)), 0, axes)
    extents = [source.shape[axes.index(a)] for a in spatial]
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    out = [(n - r) // s + 1 for n, r, s in zip(extents, reach, strides, strict=True)]
    require(
        min(out) > 0,
        f"{op}: the kernel {kernel} reaches over {tuple(reach)} elements but the padded input has "
        f"{tuple(extents)}.",
        "Add padding, or use a smaller kernel or dilation.",
    )
    ks = [te.reduce_axis(k, f"k{a}") if k > 1 else None for a, k in zip(spatial, kernel, strict=True)]
    depthwise = 1 < groups == x.shape[axes.index("c")] == cout
    ci = None if depthwise else te.reduce_axis(group_in, "ci")

    def body(*i: Expr) -> Any:
        at = dict(zip(axes, i, strict=True))
        channel: Any = at["c"] if ci is None else ci
        if ci is not None and groups > 1:
            channel = at["c"] // (cout // groups) * group_in + ci
        place = [position(at[a], s, k, d) for a, s, k, d in zip(spatial, strides, ks, dilations, strict=True)]
        weight = w[(at["c"], 0 if ci is None else ci, *(0 if k is None else k for k in ks))]
        return reduced(te.sum, source[by_layout(axes, spatial, (at["n"], channel), place)] * weight, over)

    over = [k for k in ([ci, *ks] if axes[1] == "c" else [*ks, ci]) if k is not None]
    y = stage(by_layout(axes, spatial, (x.shape[0], cout), out), body, "conv", axes)
    return y if bias is None else _biased(op, y, bias, axes)


def _biased(op: str, y: Tensor, bias: Tensor, axes: str) -> Tensor:
    c = axes.index("c")
    require(bias.shape == (y.shape[c],), f"{op}: bias has shape {bias.shape}, expected ({y.shape[c]},).")
    return stage(y.shape, lambda *i: y[i] + bias[i[c]], "bias", axes)


def _check(op: str, x: Tensor, w: Tensor, axes: str, spatial: str, groups: int) -> None:
    require_rank(op, "x", x, len(axes), f"({axes.upper()})")
    letters = ", ".join(f"K{a.upper()}" for a in spatial)
    require_rank(op, "w", w, len(axes), f"[Cout, Cin/groups, {letters}]")
    cin, cout, group_in = x.shape[axes.index("c")], w.shape[0], w.shape[1]
    require(is_int(groups) and groups >= 1, f"{op}: groups={groups!r} must be an integer >= 1.")
    require(
        cin % groups == 0 and cout % groups == 0,
        f"{op}: groups={groups} must divide both the {cin} input channels of x {x.shape} ({axes.upper()}) "
        f"and the {cout} output channels of w {w.shape}.",
    )
    require(
        group_in == cin // groups,
        f"{op}: x of shape {x.shape} has {cin} channels ({axes.upper()}) in {groups} group(s), but w of "
        f"shape {w.shape} takes {group_in} per group, expected {cin // groups}.",
        f"Weights are [Cout, Cin/groups, {letters}] in every layout.",
    )


# -- reference -----------------------------------------------------------------------------------------------


def _pad_reference(x: Array, pads: Pairs) -> Array:
    """x: channels first."""
    return np.pad(x, ((0, 0), (0, 0), *pads))


def _pairs_of(padding: Ints, rank: int) -> Pairs:
    p = (padding,) * rank if isinstance(padding, int) else tuple(padding)
    p = p * 2 if len(p) == rank else p
    return tuple((p[d], p[d + rank]) for d in range(rank))


def _each(value: Ints, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def convolution_reference(
    x: Array,
    w: Array,
    bias: Array | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: str = "",
) -> Array:
    """One product of matrices for every group and kernel element, over strided views."""
    rank = x.ndim - 2
    last = layout.endswith("C")
    first = np.moveaxis(x, -1, 1) if last else x
    source = _pad_reference(first, _pairs_of(padding, rank))
    strides, dilations, kernel = _each(stride, rank), _each(dilation, rank), w.shape[2:]
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


# -- operators -----------------------------------------------------------------------------------------------

LAST: dict[str, Any] = {"layout": "NHWC"}


@operator(
    "conv2d",
    kind=Kind.ANCHOR,
    reference=convolution_reference,
    constants=(1, 2),
    cases=(
        Case(((1, 3, 7, 7), (5, 3, 3, 3))),
        Case(((2, 4, 9, 7), (6, 4, 3, 2), (6,)), {"stride": (2, 1), "padding": (1, 0)}),
        Case(((1, 2, 9, 9), (3, 2, 3, 3)), {"dilation": 2, "padding": (0, 1, 2, 3)}),
        Case(((1, 4, 5, 5), (6, 2, 3, 3), (6,)), {"groups": 2, "padding": 1}),
        Case(((1, 7, 5, 5), (7, 1, 3, 3)), {"groups": 7, "padding": 1}),
        Case(((1, 7, 7, 3), (5, 3, 3, 3)), LAST),
        Case(((1, 9, 7, 4), (6, 4, 3, 3), (6,)), {"stride": 2, "padding": 1, **LAST}),
        Case(((1, 5, 5, 17), (7, 17, 1, 1), (7,)), LAST),
        Case(((2, 5, 5, 4), (3, 4, 1, 1)), {"stride": 2, **LAST}),
        Case(((1, 8, 8, 2), (3, 2, 1, 3)), {"padding": (0, 2), "dilation": (1, 2), **LAST}),
        Case(((1, 7, 6, 5), (5, 1, 3, 3), (5,)), {"groups": 5, "stride": 2, "padding": (0, 0, 1, 1), **LAST}),
        Case(((1, 5, 5, 3), (6, 1, 3, 3)), {"groups": 3, "padding": 1, **LAST}),
        Case(((1, 4, 4, 3), (3, 1, 1, 1)), {"groups": 3, **LAST}),
        Case(((1, 1, 1, 1), (1, 1, 3, 3)), {"padding": 1}),
        Case(((1, 4, 5, 5), (3, 4, 3, 3)), {"padding": 1}, dtypes=("int32", "int32"), low=-5, high=5),
    ),
)
def conv2d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: str = "NCHW",
) -> Tensor:
    """x: NCHW or NHWC, w: [Cout, Cin/groups, KH, KW], bias: [Cout].

    padding: int | (h, w) | (top, left, bottom, right).
    """
    return convolution("conv2d", 2, x, w, bias, stride, padding, dilation, groups, layout)


@operator(
    "conv1d",
    kind=Kind.ANCHOR,
    reference=convolution_reference,
    constants=(1, 2),
    cases=(
        Case(((2, 3, 17), (5, 3, 3), (5,)), {"padding": 1, "stride": 2}),
        Case(((1, 7, 4), (4, 1, 3)), {"groups": 4, "padding": (2, 0), "dilation": 1, "layout": "NWC"}),
    ),
)
def conv1d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: str = "NCW",
) -> Tensor:
    """x: NCW or NWC, w: [Cout, Cin/groups, KW]; padding: int | (left, right)."""
    return convolution("conv1d", 1, x, w, bias, stride, padding, dilation, groups, layout)


@operator(
    "conv3d",
    kind=Kind.ANCHOR,
    reference=convolution_reference,
    constants=(1, 2),
    cases=(
        Case(((1, 2, 5, 4, 3), (3, 2, 3, 2, 1), (3,)), {"padding": (1, 0, 0), "stride": (2, 1, 1)}),
        Case(((1, 4, 3, 3, 2), (3, 2, 2, 2, 2)), {"padding": 1, "layout": "NDHWC"}),
    ),
)
def conv3d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: str = "NCDHW",
) -> Tensor:
    """x: NCDHW or NDHWC, w: [Cout, Cin/groups, KD, KH, KW].

    padding: int | (d, h, w) | (front, top, left, back, bottom, right).
    """
    return convolution("conv3d", 3, x, w, bias, stride, padding, dilation, groups, layout)


# -- transposed ----------------------------------------------------------------------------------------------


def _transpose_reference(
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
    (sh, sw), (ph, pw), (eh, ew) = _each(stride, 2), _pairs_of(padding, 2), _each(output_padding, 2)
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


@operator(
    "conv2d_transpose",
    kind=Kind.ANCHOR,
    reference=_transpose_reference,
    constants=(1, 2),
    cases=(
        Case(((1, 3, 4, 5), (3, 2, 3, 3))),
        Case(((2, 3, 4, 5), (3, 2, 4, 4), (2,)), {"stride": 2, "padding": 1}),
        Case(((1, 3, 3, 4), (4, 5, 3, 3), (5,)), {"stride": 2, "padding": 1, "output_padding": 1, **LAST}),
        Case(((1, 2, 2, 4), (4, 3, 2, 2)), {"stride": 2, "groups": 2, **LAST}),
        Case(((1, 2, 3, 3), (2, 1, 2, 1)), {"stride": (3, 2), "padding": (1, 0, 0, 1)}),
    ),
)
def conv2d_transpose(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    layout: str = "NCHW",
) -> Tensor:
    """x: NCHW or NHWC, w: [Cin, Cout/groups, KH, KW] (torch's and ONNX's), bias: [Cout].

    With q = h + top, output row h gets x[q//s - th] * w[q%s + s*th] for th in 0 … ceil(KH/s)-1: no zeros
    are put between the elements of x. Where s does not divide KH the weights are padded (a stage of
    constants, prepared once).
    """
    op = "conv2d_transpose"
    axes = layout_of(op, layout, LAYOUTS[2])
    require_rank(op, "x", x, 4, f"({layout})")
    require_rank(op, "w", w, 4, "[Cin, Cout/groups, KH, KW]")
    (cin, group_out), kernel = w.shape[:2], w.shape[2:]
    channels = x.shape[axes.index("c")]
    require(
        is_int(groups) and groups >= 1 and channels % groups == 0,
        f"{op}: groups={groups!r} must divide the {channels} channels of x {x.shape} ({layout}).",
    )
    require(
        cin == channels,
        f"{op}: x of shape {x.shape} has {channels} channels ({layout}) but w of shape "
        f"{w.shape} takes {cin}.",
        "Weights are [Cin, Cout/groups, KH, KW] in every layout.",
    )
    strides = per_axis(op, "stride", stride, 2)
    extra = per_axis(op, "output_padding", output_padding, 2, least=0)
    require(
        all(e < s for e, s in zip(extra, strides, strict=True)),
        f"{op}: output_padding={output_padding} must be smaller than stride={stride}.",
    )
    pads = paddings(op, padding, 2)
    extents = [x.shape[axes.index(a)] for a in "hw"]
    out = [
        (n - 1) * s - b - a + k + e
        for n, s, (b, a), k, e in zip(extents, strides, pads, kernel, extra, strict=True)
    ]
    require(min(out) > 0, f"{op}: padding={padding} leaves nothing: the output has extents {tuple(out)}.")
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    lows = [max(0, t - 1 - b // s) for t, (b, _), s in zip(taps, pads, strides, strict=True)]
    highs = [
        max(0, (b + o - 1) // s - n + 1) for (b, _), o, s, n in zip(pads, out, strides, extents, strict=True)
    ]
    source = padded(x, by_layout(axes, "hw", ((0, 0),) * 2, list(zip(lows, highs, strict=True))), 0, axes)
    short = [(0, t * s - k) for t, s, k in zip(taps, strides, kernel, strict=True)]
    weight = padded(w, ((0, 0), (0, 0), *short), 0, name="weight_pad")
    ts = [te.reduce_axis(t, f"t{a}") if t > 1 else None for a, t in zip("hw", taps, strict=True)]
    ci = te.reduce_axis(cin // groups, "ci")
    over = [k for k in ([ci, *ts] if axes[1] == "c" else [*ts, ci]) if k is not None]

    def body(*i: Expr) -> Any:
        at = dict(zip(axes, i, strict=True))
        group = at["c"] // group_out * (cin // groups) + ci if groups > 1 else ci
        place, tap = [], []
        for a, s, (b, _), low, t in zip("hw", strides, pads, lows, ts, strict=True):
            q = at[a] + b if b else at[a]
            start = (q if s == 1 else q // s) + low
            place.append(start if t is None else start - t)
            phase: Any = 0 if s == 1 else q % s
            tap.append(phase if t is None else phase + t * s)
        left = source[by_layout(axes, "hw", (at["n"], group), place)]
        return te.sum(left * weight[(group, at["c"] % group_out if groups > 1 else at["c"], *tap)], axis=over)

    y = stage(by_layout(axes, "hw", (x.shape[0], group_out * groups), out), body, "conv", axes)
    return y if bias is None else _biased(op, y, bias, axes)
