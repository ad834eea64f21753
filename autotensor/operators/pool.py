"""Pooling over windows of two spatial axes, in NCHW or NHWC.

    pad  = x with -inf (max) or 0 (avg) around it, only if something is read outside
    max_pool2d[n, h, w, c] = max_{kh, kw} pad[n, h*sh + kh, w*sw + kw, c]
    avg_pool2d             = sum over the window, then a stage that divides by the number of elements

Which elements a window covers and counts: window.py. More axes, and dilation: pool_nd.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.common import (
    as_float,
    by_layout,
    layout_of,
    padded,
    per_axis,
    position,
    reduced,
    require,
    require_rank,
    size,
    stage,
)
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.window import Ints, Window, windows_of
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]
LAYOUTS = ("NCHW", "NHWC")


def _windows(
    op: str, x: Tensor, kernel: Ints, stride: Ints | None, padding: Ints, ceil_mode: bool, layout: str
) -> tuple[str, tuple[Window, ...]]:
    """The layout in lower case, and the windows along h and w."""
    axes = layout_of(op, layout, LAYOUTS)
    require_rank(op, "x", x, 4, f"({layout})")
    extents = [x.shape[axes.index(a)] for a in "hw"]
    windows = windows_of(op, extents, kernel, kernel if stride is None else stride, padding, 1, ceil_mode)
    require(
        all(max(w.before, w.after) < w.kernel for w in windows),
        f"{op}: padding={padding} must be smaller than kernel={kernel}, or a window would lie outside x.",
    )
    require(
        all(w.span >= 0 and w.out > 0 for w in windows),
        f"{op}: kernel={kernel} is larger than x of shape {x.shape} ({layout}) with padding={padding}.",
    )
    return axes, windows


def _pool(reducer: Any, x: Tensor, fill: Any, axes: str, windows: Sequence[Window], name: str) -> Tensor:
    """fill: what stands where a window reads outside x."""
    source = padded(x, by_layout(axes, "hw", ((0, 0), (0, 0)), [w.around for w in windows]), fill, axes)
    ks = [
        te.reduce_axis(w.kernel, f"k{a}") if w.kernel > 1 else None
        for a, w in zip("hw", windows, strict=True)
    ]

    def body(*i: Expr) -> Any:
        at = dict(zip(axes, i, strict=True))
        place = [position(at[a], w.stride, k) for a, w, k in zip("hw", windows, ks, strict=True)]
        element = source[by_layout(axes, "hw", (at["n"], at["c"]), place)]
        return reduced(reducer, element, [k for k in ks if k is not None])

    shape = by_layout(axes, "hw", (x.shape[0], x.shape[axes.index("c")]), [w.out for w in windows])
    return stage(shape, body, name, axes)


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
    axes, windows = _windows("max_pool2d", x, kernel, stride, padding, ceil_mode, layout)
    return _pool(te.max, x, te.min_value(x.dtype), axes, windows, "max_pool2d")


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
    axes, windows = _windows("avg_pool2d", x, kernel, stride, padding, ceil_mode, layout)
    total = _pool(te.sum, x, 0, axes, windows, "sum")

    def body(*i: Expr) -> Expr:
        at = dict(zip(axes, i, strict=True))
        lengths = [_counted(w, at[a], count_include_pad) for a, w in zip("hw", windows, strict=True)]
        if all(isinstance(n, int) for n in lengths):
            return total[i] / size(lengths)
        return total[i] / te.cast(as_float(x.dtype), lengths[0] * lengths[1])

    return stage(total.shape, body, "avg_pool2d", axes)


def _counted(w: Window, at: Expr, include_pad: bool) -> Any:
    """Elements of window `at` that count; an int where all windows have as many."""
    low, high = w.counted(include_pad)
    if low == 0 and (w.out - 1) * w.stride + w.kernel <= high:
        return w.kernel
    start = position(at, w.stride)
    return te.minimum(start + w.kernel, high) - te.maximum(start, low)


def _global(
    op: str, reducer: Any, x: Tensor, layout: str, name: str, value: Callable[[Any, int], Any]
) -> Tensor:
    """`value(x reduced over h and w, number of elements)`; h and w stay as axes of extent 1."""
    axes = layout_of(op, layout, LAYOUTS)
    require_rank(op, "x", x, 4, f"({layout})")
    c, extents = axes.index("c"), [x.shape[axes.index(a)] for a in "hw"]
    kh, kw = (te.reduce_axis(n, f"k{a}") for a, n in zip("hw", extents, strict=True))
    found = stage(
        (x.shape[0], x.shape[c]),
        lambda n, c: reducer(x[by_layout(axes, "hw", (n, c), (kh, kw))], axis=(kh, kw)),
        name,
    )
    shape = by_layout(axes, "hw", (found.shape[0], found.shape[1]), (1, 1))
    return stage(shape, lambda *i: value(found[i[0], i[c]], size(extents)), op, axes)


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
    return _global("global_avg_pool2d", te.sum, x, layout, "sum", lambda total, count: total / count)


@operator(
    "global_max_pool2d",
    kind=Kind.REDUCTION,
    reference=lambda x, layout="NCHW": _global_reference(x, np.max, layout),
    cases=GLOBAL_CASES,
)
def global_max_pool2d(x: Tensor, layout: str = "NCHW") -> Tensor:
    """Greatest element over h and w, which stay as axes of extent 1."""
    return _global("global_max_pool2d", te.max, x, layout, "max", lambda best, count: best)


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
