"""Pooling over windows of two spatial axes, in NCHW or NHWC.

    pad  = x with -inf (max) or 0 (avg) around it, only if something is read outside
    max_pool2d[n, h, w, c] = max_{kh, kw} pad[n, h*sh + kh, w*sw + kw, c]
    avg_pool2d             = sum over the window, then a stage that divides by the number of elements

Rules for ceil_mode and count_include_pad are torch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.common import (
    Pairs,
    as_float,
    by_layout,
    layout_of,
    padded,
    paddings,
    per_axis,
    position,
    reduced,
    require,
    require_rank,
    size,
    stage,
)
from autotensor.operators.operator import Case, Kind, operator
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]
Ints = int | tuple[int, ...]
LAYOUTS = ("NCHW", "NHWC")


@dataclass(frozen=True, slots=True)
class Windows:
    """Where a pool reads: per spatial axis."""

    axes: str  # the layout, in lower case
    extents: tuple[int, ...]  # of x
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: Pairs
    out: tuple[int, ...]

    def over(self, x: Tensor, fill: Any) -> Tensor:
        """x with everything around it that a window reads."""
        reach = [(o - 1) * s + k for o, s, k in zip(self.out, self.strides, self.kernel, strict=True)]
        around = [(b, max(a, r - n - b)) for n, (b, a), r in zip(self.extents, self.pads, reach, strict=True)]
        return padded(x, by_layout(self.axes, "hw", ((0, 0), (0, 0)), around), fill, self.axes)


def _windows(
    op: str, x: Tensor, kernel: Ints, stride: Ints | None, padding: Ints, ceil_mode: bool, layout: str
) -> Windows:
    axes = layout_of(op, layout, LAYOUTS)
    require_rank(op, "x", x, 4, f"({layout})")
    extents = tuple(x.shape[axes.index(a)] for a in "hw")
    window = per_axis(op, "kernel", kernel, 2)
    strides = window if stride is None else per_axis(op, "stride", stride, 2)
    pads = paddings(op, padding, 2)
    require(
        all(b < k and a < k for k, (b, a) in zip(window, pads, strict=True)),
        f"{op}: padding={padding} must be smaller than kernel={kernel}, or a window would lie outside x.",
    )
    out = []
    for n, k, s, (b, a) in zip(extents, window, strides, pads, strict=True):
        span = n + b + a - k
        count = (-(-span // s) if ceil_mode else span // s) + 1
        out.append(count - 1 if ceil_mode and (count - 1) * s >= n + b else count)  # a window starts inside x
        require(
            span >= 0 and out[-1] > 0,
            f"{op}: kernel={kernel} is larger than x of shape {x.shape} ({layout}) with padding={padding}.",
        )
    return Windows(axes, extents, window, strides, pads, tuple(out))


def _pool(reducer: Any, x: Tensor, source: Tensor, win: Windows, name: str) -> Tensor:
    axes = win.axes
    ks = [te.reduce_axis(k, f"k{a}") if k > 1 else None for a, k in zip("hw", win.kernel, strict=True)]

    def body(*i: Expr) -> Any:
        at = dict(zip(axes, i, strict=True))
        place = [position(at[a], s, k) for a, s, k in zip("hw", win.strides, ks, strict=True)]
        element = source[by_layout(axes, "hw", (at["n"], at["c"]), place)]
        return reduced(reducer, element, [k for k in ks if k is not None])

    channels = x.shape[axes.index("c")]
    return stage(by_layout(axes, "hw", (x.shape[0], channels), win.out), body, name, axes)


# -- reference -----------------------------------------------------------------------------------------------


def _pool_reference(
    x: Array,
    average: bool,
    kernel: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> Array:
    """Window by window, as torch's manual describes it."""
    first = np.moveaxis(x, -1, 1) if layout == "NHWC" else x
    ks = (kernel,) * 2 if isinstance(kernel, int) else kernel
    ss = ks if stride is None else (stride,) * 2 if isinstance(stride, int) else stride
    p = (padding,) * 4 if isinstance(padding, int) else tuple(padding) * (2 if len(padding) == 2 else 1)
    starts = []
    for d in range(2):
        n = first.shape[2 + d]
        last = n + p[d + 2] - ks[d]  # the last start of a window that fits
        found = list(range(-p[d], last + 1, ss[d]))
        if ceil_mode and found[-1] < last and found[-1] + ss[d] < n:
            found.append(found[-1] + ss[d])
        starts.append(found)
    result = x.dtype if x.dtype.kind == "f" or not average else np.dtype(np.float32)
    y = np.zeros((*first.shape[:2], len(starts[0]), len(starts[1])), result)
    for i, h in enumerate(starts[0]):
        for j, w in enumerate(starts[1]):
            part = first[:, :, max(h, 0) : h + ks[0], max(w, 0) : w + ks[1]]
            ends = (min(h + ks[0], first.shape[2] + p[2]), min(w + ks[1], first.shape[3] + p[3]))
            count = (ends[0] - h) * (ends[1] - w) if count_include_pad else part.shape[2] * part.shape[3]
            y[:, :, i, j] = part.sum((2, 3)) / count if average else part.max((2, 3))
    return np.moveaxis(y, 1, -1) if layout == "NHWC" else y


# -- operators -----------------------------------------------------------------------------------------------

LAST: dict[str, Any] = {"layout": "NHWC"}
UNPADDED: dict[str, Any] = {"layout": "NHWC", "count_include_pad": False}
SHARED_CASES = (
    Case(((1, 3, 7, 7),), {"kernel": 2}),
    Case(((2, 3, 9, 7),), {"kernel": 3, "stride": 2, "padding": 1}),
    Case(((1, 2, 6, 7),), {"kernel": (3, 2), "stride": (2, 1), "padding": (0, 1, 1, 0)}),
    Case(((1, 2, 6, 7),), {"kernel": 3, "stride": 2, "ceil_mode": True}),
    Case(((1, 1, 5, 5),), {"kernel": 2, "stride": 3, "padding": 1, "ceil_mode": True}),
    Case(((1, 9, 7, 5),), {"kernel": 3, "stride": 2, "padding": 1, **LAST}),
    Case(((1, 8, 8, 17),), {"kernel": 2, **LAST}),
    Case(((1, 5, 4, 1),), {"kernel": 1, "stride": 2, **LAST}),
)


@operator(
    "max_pool2d",
    kind=Kind.REDUCTION,
    reference=lambda x, **attrs: _pool_reference(x, False, **attrs),
    cases=(
        *SHARED_CASES,
        Case(((1, 4, 4, 2),), {"kernel": 3, "padding": 1, **LAST}, dtypes=("int8",), low=-9, high=9),
    ),
)
def max_pool2d(
    x: Tensor,
    kernel: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """Greatest element of every window; stride None means the kernel."""
    win = _windows("max_pool2d", x, kernel, stride, padding, ceil_mode, layout)
    return _pool(te.max, x, win.over(x, te.min_value(x.dtype)), win, "max_pool2d")


@operator(
    "avg_pool2d",
    kind=Kind.REDUCTION,
    reference=lambda x, **attrs: _pool_reference(x, True, **attrs),
    cases=(
        *SHARED_CASES,
        Case(((2, 3, 9, 7),), {"kernel": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
        Case(((1, 6, 7, 3),), {"kernel": 3, "stride": 2, "ceil_mode": True, **LAST}),
        Case(((1, 6, 7, 3),), {"kernel": 2, "stride": 3, "padding": 1, "ceil_mode": True, **UNPADDED}),
        Case(((1, 4, 4, 2),), {"kernel": 2, **LAST}, dtypes=("int32",), low=-9, high=9),
    ),
)
def avg_pool2d(
    x: Tensor,
    kernel: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> Tensor:
    """Mean of every window; padding counts as zeros, or not at all without count_include_pad."""
    win = _windows("avg_pool2d", x, kernel, stride, padding, ceil_mode, layout)
    total = _pool(te.sum, x, win.over(x, 0), win, "sum")

    def body(*i: Expr) -> Expr:
        at = dict(zip(win.axes, i, strict=True))
        lengths = [_counted(win, d, at[a], count_include_pad) for d, a in enumerate("hw")]
        if all(isinstance(n, int) for n in lengths):
            return total[i] / size(lengths)
        return total[i] / te.cast(as_float(x.dtype), lengths[0] * lengths[1])

    return stage(total.shape, body, "avg_pool2d", win.axes)


def _counted(win: Windows, d: int, at: Expr, count_include_pad: bool) -> Any:
    """Elements of window `at` along spatial axis d that count; an int where all windows have as many."""
    (before, after), n, k, s = win.pads[d], win.extents[d], win.kernel[d], win.strides[d]
    # in padded coordinates
    low, high = (0, before + n + after) if count_include_pad else (before, before + n)
    if low == 0 and (win.out[d] - 1) * s + k <= high:
        return k
    start = position(at, s)
    return te.minimum(start + k, high) - te.maximum(start, low)


def _global(reducer: Any, op: str, x: Tensor, layout: str, name: str) -> Tensor:
    """x reduced over h and w: [n, c]."""
    axes = layout_of(op, layout, LAYOUTS)
    require_rank(op, "x", x, 4, f"({layout})")
    kh, kw = (te.reduce_axis(x.shape[axes.index(a)], f"k{a}") for a in "hw")
    shape = (x.shape[0], x.shape[axes.index("c")])
    return stage(shape, lambda n, c: reducer(x[by_layout(axes, "hw", (n, c), (kh, kw))], axis=(kh, kw)), name)


def _global_reference(x: Array, reduce: Any, layout: str) -> Array:
    return np.asarray(reduce(x, axis=(1, 2) if layout == "NHWC" else (2, 3), keepdims=True))


GLOBAL_CASES = (Case(((1, 5, 7, 7),)), Case(((2, 7, 3, 17),), LAST), Case(((1, 1, 1, 1),), LAST))


@operator(
    "global_avg_pool2d",
    kind=Kind.REDUCTION,
    reference=lambda x, layout="NCHW": _global_reference(x, np.mean, layout),
    cases=GLOBAL_CASES,
)
def global_avg_pool2d(x: Tensor, layout: str = "NCHW") -> Tensor:
    """Mean over h and w, which stay as axes of extent 1."""
    total = _global(te.sum, "global_avg_pool2d", x, layout, "sum")
    axes = layout.lower()
    c, count = axes.index("c"), size([x.shape[axes.index(a)] for a in "hw"])
    shape = by_layout(axes, "hw", (total.shape[0], total.shape[1]), (1, 1))
    return stage(shape, lambda *i: total[i[0], i[c]] / count, "global_avg_pool2d", axes)


@operator(
    "global_max_pool2d",
    kind=Kind.REDUCTION,
    reference=lambda x, layout="NCHW": _global_reference(x, np.max, layout),
    cases=GLOBAL_CASES,
)
def global_max_pool2d(x: Tensor, layout: str = "NCHW") -> Tensor:
    """Greatest element over h and w, which stay as axes of extent 1."""
    best = _global(te.max, "global_max_pool2d", x, layout, "max")
    axes = layout.lower()
    shape = by_layout(axes, "hw", (best.shape[0], best.shape[1]), (1, 1))
    return stage(shape, lambda *i: best[i[0], i[axes.index("c")]], "global_max_pool2d", axes)


def _adaptive_reference(x: Array, output_size: Ints, layout: str = "NCHW") -> Array:
    first = np.moveaxis(x, -1, 1) if layout == "NHWC" else x
    oh, ow = (output_size,) * 2 if isinstance(output_size, int) else output_size
    n, c, h, w = first.shape
    y = first.reshape(n, c, oh, h // oh, ow, w // ow).mean((3, 5))
    return np.moveaxis(y, 1, -1) if layout == "NHWC" else y


@operator(
    "adaptive_avg_pool2d",
    kind=Kind.REDUCTION,
    reference=_adaptive_reference,
    cases=(
        Case(((1, 3, 6, 8),), {"output_size": (3, 4)}),
        Case(((1, 7, 7, 5),), {"output_size": 1, **LAST}),
        Case(((1, 2, 7, 7),), {"output_size": 7}),
    ),
)
def adaptive_avg_pool2d(x: Tensor, output_size: Ints, layout: str = "NCHW") -> Tensor:
    """Means of output_size equal windows; output_size must divide the extents."""
    op = "adaptive_avg_pool2d"
    axes = layout_of(op, layout, LAYOUTS)
    require_rank(op, "x", x, 4, f"({layout})")
    out = per_axis(op, "output_size", output_size, 2)
    extents = tuple(x.shape[axes.index(a)] for a in "hw")
    require(
        all(n % o == 0 for n, o in zip(extents, out, strict=True)),
        f"{op}: output_size={output_size} does not divide the extents {extents} of x {x.shape} ({layout}).",
        "Unequal windows are not supported; use avg_pool2d.",
    )
    if out == (1, 1):
        return global_avg_pool2d(x, layout)  # type: ignore[no-any-return]
    return avg_pool2d(x, (extents[0] // out[0], extents[1] // out[1]), layout=layout)  # type: ignore[no-any-return]
