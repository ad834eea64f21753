"""Convolutions with one, two and three spatial axes. The transposed ones are in `conv_transposed.py`.

    pad[n, h, w, c]  = select(inside, x[n, h - top, w - left, c], 0)                   if there is padding
    conv[n, h, w, c] = sum_{kh, kw, ci} pad[n, h*sh + kh*dh, w*sw + kw*dw, ci] * w[c, ci, kh, kw]
    bias[n, h, w, c] = conv[n, h, w, c] + bias[c]                                      if given

`layout` is the layout of x and of the result. Weights are always OIHW [Cout, Cin/groups, KH, KW]; a schedule
packs them in a step on constants. Schedules rely on this form: spatial axes in layout order; reduce axes (kh,
kw, ci) for channels last and (ci, kh, kw) for channels first; kernel axes of extent 1 and terms that do
nothing are left out; a depthwise convolution (groups == Cin == Cout) has no ci. With groups, the channels of
the sum are two axes, so that every index is linear:

    by_group[g, o, ci, kh, kw] = w[g*(Cout/groups) + o, ci, kh, kw]
    conv[n, h, w, g, o]        = sum_{kh, kw, ci} pad[n, …, g*(Cin/groups) + ci] * by_group[g, o, ci, kh, kw]
    joined[n, h, w, c]         = conv[n, h, w, c // (Cout/groups), c % (Cout/groups)]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.conv_reference import convolution_reference
from autotensor.operators.operator import Case, Kind, TensorType, operator
from autotensor.operators.operator_helpers import (
    Zeros,
    by_layout,
    is_int,
    layout_of,
    multiplied,
    reduced,
    require,
    require_factors,
    require_rank,
    stage,
)
from autotensor.operators.window import Ints, Window, reader, spatial_of, taps, windows_of
from autotensor.te import Tensor

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


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
    zeros: Zeros = None,
    sums: str = "",
) -> Tensor:
    """The convolution with `rank` spatial axes, in the form described at the head of this file."""
    axes = layout_of(op, layout, LAYOUTS[rank])
    _check(op, x, w, axes, groups)
    require_factors(op, x, w, zeros, sums)
    (cout, group_in), windows = w.shape[:2], _windows(op, x, w, axes, stride, padding, dilation)
    out = [v.out for v in windows]
    ks, read = taps(axes, windows), reader(x, zeros[0] if zeros else 0, axes, windows)
    depthwise = 1 < groups == x.shape[axes.index("c")] == cout
    ci = None if depthwise else te.reduce_axis(group_in, "ci")
    over = [k for k in ([ci, *ks] if axes[1] == "c" else [*ks, ci]) if k is not None]
    grouped = groups > 1 and not depthwise
    weight = by_group(w, groups) if grouped else w

    def body(*i: Expr) -> Any:
        at = dict(zip(split_channels(axes) if grouped else axes, i, strict=True))
        channel: Any = at["g"] * group_in + ci if grouped else at["c"] if ci is None else ci
        _, element = read({**at, "c": channel}, ks)
        output = (at["g"], at["o"]) if grouped else (at["c"],)
        factor = weight[(*output, 0 if ci is None else ci, *(0 if k is None else k for k in ks))]
        return reduced(te.sum, multiplied(element, factor, zeros, sums), over)

    shape = by_layout(axes, spatial_of(axes), (x.shape[0], cout), out)
    if grouped:
        extent = {**dict(zip(axes, shape, strict=True)), "g": groups, "o": cout // groups}
        inner = split_channels(axes)
        y = joined(stage([extent[a] for a in inner], body, "conv", inner), shape, axes, cout // groups)
    else:
        y = stage(shape, body, "conv", axes)
    return y if bias is None else biased(op, y, bias, axes)


def _inferred(
    op: str,
    rank: int,
    x: TensorType,
    w: TensorType,
    bias: TensorType | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: str = "",
    **kinds: Any,
) -> tuple[TensorType] | None:
    """The type of a convolution of floats of one type; None for other types, or if the bias does not fit."""
    if kinds or len({t.dtype for t in (x, w, bias or w)}) > 1 or not x.dtype.is_float:
        return None
    if bias is not None and bias.shape != w.shape[:1]:
        return None
    axes = layout_of(op, layout or LAYOUTS[rank][0], LAYOUTS[rank])
    _check(op, x, w, axes, groups)
    out = [v.out for v in _windows(op, x, w, axes, stride, padding, dilation)]
    return (TensorType(by_layout(axes, spatial_of(axes), (x.shape[0], w.shape[0]), out), x.dtype),)


def _windows(
    op: str,
    x: Tensor | TensorType,
    w: Tensor | TensorType,
    axes: str,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
) -> tuple[Window, ...]:
    kernel, extents = w.shape[2:], [x.shape[axes.index(a)] for a in spatial_of(axes)]
    windows = windows_of(op, extents, kernel, stride, padding, dilation, False)
    require(
        min(v.out for v in windows) > 0,
        f"{op}: the kernel {kernel} reaches over {tuple(v.reach for v in windows)} elements but the padded "
        f"input has {tuple(v.span + v.reach for v in windows)}.",
        "Add padding, or use a smaller kernel or dilation.",
    )
    return windows


def split_channels(axes: str) -> str:
    """The axes, with the channel axis split into the group and the channel in the group.

    >>> split_channels("nhwc")
    'nhwgo'
    """
    return axes.replace("c", "go")


def by_group(w: Tensor, groups: int) -> Tensor:
    """The weights [Cout, …] as [groups, Cout/groups, …]."""
    each = w.shape[0] // groups
    names = ("g", "o", *(f"i{n}" for n in range(1, w.ndim)))
    return stage((groups, each, *w.shape[1:]), lambda g, o, *i: w[(g * each + o, *i)], "by_group", names)


def joined(y: Tensor, shape: tuple[int, ...], axes: str, each: int) -> Tensor:
    """The result with one channel axis, from the result with two; both are the same in memory."""

    def body(*i: Expr) -> Any:
        at = [(v // each, v % each) if a == "c" else (v,) for a, v in zip(axes, i, strict=True)]
        return y[tuple(v for pair in at for v in pair)]

    return stage(shape, body, "joined", axes)


def biased(op: str, y: Tensor, bias: Tensor, axes: str) -> Tensor:
    """y plus one number for each channel."""
    c = axes.index("c")
    require(bias.shape == (y.shape[c],), f"{op}: bias has shape {bias.shape}, expected ({y.shape[c]},).")
    return stage(y.shape, lambda *i: y[i] + bias[i[c]], "bias", axes)


def _check(op: str, x: Tensor | TensorType, w: Tensor | TensorType, axes: str, groups: int) -> None:
    require_rank(op, "x", x, len(axes), f"({axes.upper()})")
    letters = ", ".join(f"K{a.upper()}" for a in spatial_of(axes))
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


# -- operators -----------------------------------------------------------------------------------------------

LAST: dict[str, Any] = {"layout": "NHWC"}
BYTES = ("uint8", "int8")


def _registered(rank: int, *cases: Case) -> Callable[..., Tensor]:
    """The operator with this number of spatial axes."""
    name = f"conv{rank}d"

    infer = partial(_inferred, name, rank)

    @operator(
        name, kind=Kind.ANCHOR, reference=convolution_reference, constants=(1, 2), cases=cases, infer=infer
    )
    def conv(
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str = LAYOUTS[rank][0],
        zeros: Zeros = None,
        sums: str = "",
    ) -> Tensor:
        """x: NCHW or NHWC, w: [Cout, Cin/groups, KH, KW], bias: [Cout]; other ranks in the same way.

        padding: int | (h, w) | (top, left, bottom, right). zeros: the zero points of x and w, which must then
        be bytes; the result and the bias are int32, and padding has x's zero point. sums: as for `dense`.
        """
        return convolution(name, rank, x, w, bias, stride, padding, dilation, groups, layout, zeros, sums)

    return conv


conv1d = _registered(
    1,
    Case(((2, 3, 17), (5, 3, 3), (5,)), {"padding": 1, "stride": 2}),
    Case(((1, 7, 4), (4, 1, 3)), {"groups": 4, "padding": (2, 0), "dilation": 1, "layout": "NWC"}),
)
conv2d = _registered(
    2,
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
    Case(((1, 4, 5, 5), (3, 4, 3, 3)), {"padding": 1, "zeros": (3, 0)}, ("uint8", "int8"), 0, 120),
    Case(((1, 5, 6, 6), (6, 1, 3, 3)), {"padding": 1, "groups": 6, "zeros": (7, 2), **LAST}, BYTES, 0, 120),
    Case(((1, 5, 4, 6), (9, 6, 1, 1), (9,)), {"zeros": (-3, 5), **LAST}, (*BYTES[::-1], "int32"), 0, 120),
    Case(((1, 5, 6, 18), (17, 18, 3, 3)), {"padding": 1, "sums": "float32", **LAST}, ("bfloat16",) * 2),
)
conv3d = _registered(
    3,
    Case(((1, 2, 5, 4, 3), (3, 2, 3, 2, 1), (3,)), {"padding": (1, 0, 0), "stride": (2, 1, 1)}),
    Case(((1, 4, 3, 3, 2), (3, 2, 2, 2, 2)), {"padding": 1, "layout": "NDHWC"}),
)
