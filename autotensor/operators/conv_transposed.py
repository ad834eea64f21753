"""The transposed convolution with two spatial axes.

Every input element adds its multiple of the kernel to the output. Seen from the output, row h = s*i + p gets
the kernel rows r, r + s, r + 2s, … of its phase r = (p + top) % s:

    taps[p, t, ci, c] = w[ci, c, (p + top) % s + s*t]                    zero after the kernel's end
    conv[n, i, p, c]  = sum_{t, ci} x[n, i + (p + top)//s - t, ci] * taps[p, t, ci, c]
    joined[n, h, c]   = conv[n, h // s, h % s, c]

(This shows one spatial axis; the other is the same.) Each phase is a convolution of stride 1 whose indices
are linear in i. No zeros are put between the elements of x, and conv has the result's order in memory. An
axis of stride 1 has no phase. A stage of constants, which is prepared once, rearranges the weights.

The transposed convolutions with one and three spatial axes are convolutions over `spread`: x with zeros
between its elements.

    spread[i] = x[i / step] if step divides i, else 0               [n] ──▶ [(n - 1)*step + 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.conv import LAST, LAYOUTS, biased
from autotensor.operators.conv_reference import transposed_reference
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import (
    by_layout,
    is_int,
    layout_of,
    padded,
    paddings,
    per_axis,
    reduced,
    require,
    require_rank,
    stage,
)
from autotensor.operators.window import Ints
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


@operator(
    "conv2d_transpose",
    kind=Kind.ANCHOR,
    reference=transposed_reference,
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
    """x: NCHW or NHWC, w: [Cin, Cout/groups, KH, KW] (as in torch and ONNX), bias: [Cout].

    The output has (extent - 1)*stride - padding + kernel + output_padding rows and columns.
    """
    op = "conv2d_transpose"
    axes = layout_of(op, layout, LAYOUTS[2])
    group_out = _check(op, x, w, axes, groups)
    strides = per_axis(op, "stride", stride, 2)
    extra = per_axis(op, "output_padding", output_padding, 2, least=0)
    require(
        all(e < s for e, s in zip(extra, strides, strict=True)),
        f"{op}: output_padding={output_padding} must be smaller than stride={stride}.",
    )
    lines = [
        _Line(a, x.shape[axes.index(a)], k, s, before, after, e)
        for a, k, s, (before, after), e in zip(
            "hw", w.shape[2:], strides, paddings(op, padding, 2), extra, strict=True
        )
    ]
    out = [line.out for line in lines]
    require(min(out) > 0, f"{op}: padding={padding} leaves nothing: the output has extents {tuple(out)}.")
    conv = _phases(x, w, lines, axes, groups)
    shape = by_layout(axes, "hw", (x.shape[0], group_out * groups), out)
    y = conv if conv.ndim == 4 else _joined(conv, shape, lines, axes, group_out, groups)
    return y if bias is None else biased(op, y, bias, axes)


class _Line:
    """One spatial axis: its sizes, and the taps of an output element."""

    def __init__(
        self, name: str, extent: int, kernel: int, stride: int, before: int, after: int, extra: int
    ) -> None:
        self.name, self.kernel, self.stride, self.before = name, kernel, stride, before
        self.out = (extent - 1) * stride - before - after + kernel + extra
        self.rows = -(-self.out // stride)  # number of output elements of one phase
        self.taps = -(-kernel // stride)
        last = (self.rows * stride - 1 + before) // stride  # last index into x, without taps
        self.low = max(0, self.taps - 1 - before // stride)
        self.pad = (self.low, max(0, last - extent + 1))
        self.tap = te.reduce_axis(self.taps, f"t{name}") if self.taps > 1 else None

    @property
    def axes(self) -> dict[str, int]:
        """The axes of the sum that form the output's axis, with their extents."""
        if self.stride == 1:
            return {self.name: self.rows}
        return {self.name: self.rows, f"p{self.name}": self.stride}

    def start(self, at: dict[str, Any]) -> Any:
        """The index into x of tap 0, with padding."""
        if self.stride == 1:
            return _plus(at[self.name], self.before + self.low)
        return _plus(at[self.name] + _plus(at[f"p{self.name}"], self.before) // self.stride, self.low)

    def place(self, at: dict[str, Any]) -> Any:
        return self.start(at) if self.tap is None else self.start(at) - self.tap

    def element(self, phase: Any, tap: Any) -> Any:
        """The index into the kernel."""
        first: Any = 0 if self.stride == 1 else _plus(phase, self.before) % self.stride
        return first if tap is None else first + tap * self.stride

    @property
    def ragged(self) -> bool:
        """Whether some phases have fewer taps than others."""
        return self.kernel % self.stride != 0


def _plus(e: Any, n: int) -> Any:
    return e + n if n else e


def _taps(w: Tensor, lines: list[_Line], groups: int) -> Tensor:
    """The weights as [groups if several, phases of strides > 1, taps if several, ci, o]."""
    each = w.shape[0] // groups
    strided, tapped = [v for v in lines if v.stride > 1], [v for v in lines if v.tap is not None]
    extents = {"g": groups} if groups > 1 else {}
    extents |= {f"p{v.name}": v.stride for v in strided} | {f"t{v.name}": v.taps for v in tapped}
    extents |= {"ci": each, "o": w.shape[1]}

    def body(*i: Expr) -> Any:
        at: dict[str, Any] = dict(zip(extents, i, strict=True))
        index = [v.element(at.get(f"p{v.name}"), at.get(f"t{v.name}")) for v in lines]
        channel = at["g"] * each + at["ci"] if groups > 1 else at["ci"]
        element = w[(channel, at["o"], *index)]
        inside = [k < v.kernel for k, v in zip(index, lines, strict=True) if v.ragged]
        return te.select(te.all(*inside), element, te.const(0, w.dtype)) if inside else element

    return stage(tuple(extents.values()), body, "taps", tuple(extents))


def _phases(x: Tensor, w: Tensor, lines: list[_Line], axes: str, groups: int) -> Tensor:
    """The sums, with an axis for every phase, and one for the groups if there are several."""
    each = w.shape[0] // groups
    source = padded(x, by_layout(axes, "hw", ((0, 0),) * 2, [v.pad for v in lines]), 0, axes)
    taps = _taps(w, lines, groups)
    ci = te.reduce_axis(each, "ci")
    ts = [v.tap for v in lines]
    over = [k for k in ([ci, *ts] if axes[1] == "c" else [*ts, ci]) if k is not None]
    channels = {"g": groups, "o": w.shape[1]} if groups > 1 else {"o": w.shape[1]}
    extents = {"n": {"n": x.shape[0]}, "c": channels, **{v.name: v.axes for v in lines}}
    inner = {name: n for a in axes for name, n in extents[a].items()}

    def body(*i: Expr) -> Any:
        at: dict[str, Any] = dict(zip(inner, i, strict=True))
        phases = [at[f"p{v.name}"] for v in lines if v.stride > 1]
        group = [at["g"]] if groups > 1 else []
        factor = taps[(*group, *phases, *(t for t in ts if t is not None), ci, at["o"])]
        channel = at["g"] * each + ci if groups > 1 else ci
        element: Any = source[by_layout(axes, "hw", (at["n"], channel), [v.place(at) for v in lines])]
        inside = [v.element(at.get(f"p{v.name}"), v.tap) < v.kernel for v in lines if v.ragged]
        if inside:  # x is under this condition, too, so that schedules can leave these terms out
            element = te.select(te.all(*inside), element, te.const(0, x.dtype))
        return reduced(te.sum, element * factor, over)

    return stage(tuple(inner.values()), body, "conv", tuple(inner))


def _joined(
    conv: Tensor, shape: tuple[int, ...], lines: list[_Line], axes: str, group_out: int, groups: int
) -> Tensor:
    """The result, whose axes join pairs of the sums' axes."""
    cut = {v.name: v.stride for v in lines if v.stride > 1}
    if groups > 1:
        cut["c"] = group_out

    def body(*i: Expr) -> Any:
        pairs = [(v // cut[a], v % cut[a]) if a in cut else (v,) for a, v in zip(axes, i, strict=True)]
        return conv[tuple(v for pair in pairs for v in pair)]

    return stage(shape, body, "joined", axes)


def _check(op: str, x: Tensor, w: Tensor, axes: str, groups: int) -> int:
    """The number of output channels of a group. Raises TensorError if shapes and groups do not fit."""
    require_rank(op, "x", x, 4, f"({axes.upper()})")
    require_rank(op, "w", w, 4, "[Cin, Cout/groups, KH, KW]")
    channels = x.shape[axes.index("c")]
    require(
        is_int(groups) and groups >= 1 and channels % groups == 0,
        f"{op}: groups={groups!r} must divide the {channels} channels of x {x.shape} ({axes.upper()}).",
    )
    require(
        w.shape[0] == channels,
        f"{op}: x of shape {x.shape} has {channels} channels ({axes.upper()}) but w of shape "
        f"{w.shape} takes {w.shape[0]}.",
        "Weights are [Cin, Cout/groups, KH, KW] in every layout.",
    )
    return int(w.shape[1])


# -- zeros between elements ----------------------------------------------------------------------------------


def _spread_reference(x: Array, steps: tuple[int, ...]) -> Array:
    out = np.zeros([(n - 1) * s + 1 for n, s in zip(x.shape, steps, strict=True)], x.dtype)
    out[tuple(slice(None, None, s) for s in steps)] = x
    return out


@operator(
    "spread",
    kind=Kind.INJECTIVE,
    reference=_spread_reference,
    cases=(
        Case(((3, 5),), {"steps": (1, 3)}),
        Case(((1, 2, 4, 3),), {"steps": (1, 1, 2, 2)}),
        Case(((7,),), {"steps": (1,)}),
    ),
)
def spread(x: Tensor, steps: tuple[int, ...]) -> Tensor:
    """steps: one for each axis; a step of 1 leaves the axis as it is."""
    fits = len(steps) == x.ndim and all(is_int(s) and s >= 1 for s in steps) and 0 not in x.shape
    require(fits, f"spread: steps={steps} must be an integer >= 1 for each of the axes of x {x.shape}.")

    def body(*i: Any) -> Any:
        on = [te.floormod(v, s).equal(0) for v, s in zip(i, steps, strict=True) if s > 1]
        element = x[tuple(v if s == 1 else te.floordiv(v, s) for v, s in zip(i, steps, strict=True))]
        return te.select(te.all(*on), element, te.const(0, x.dtype)) if on else element

    return stage([(n - 1) * s + 1 for n, s in zip(x.shape, steps, strict=True)], body, "spread")
