"""Pooling over windows of any number of spatial axes, channels first or last.

    pad[n, c, i]  = x[n, c, i - before]; outside x, the neutral element     only if a window reads there
    pool[n, c, i] = join_k pad[n, c, i*stride + k*dilation]                 max, or the sum of x or |x|**p
    average       = pool / number of elements                               a further stage
    root          = pool ** (1/p)                                           a further stage of the p-norm
    max_positions: the position of each window's largest element in its channel

window.py decides which elements a window covers and which of them count. `max_pool2d` and `avg_pool2d` are
for pictures, and take a layout. `pool` is for everything else: other numbers of axes, dilation, other norms,
and padding as large as the window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import int32
from autotensor.ir.expr import Expr
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import (
    as_float,
    by_layout,
    layout_of,
    per_axis,
    position,
    reduced,
    require,
    require_rank,
    size,
    stage,
)
from autotensor.operators.reduce import argmax_pair
from autotensor.operators.window import Axes, Ints, Window, reader, spatial_of, taps, windows_of
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]
LAYOUTS = ("NCHW", "NHWC")
MODES = ("max", "sum", "average", "norm")


def _pictures(op: str, x: Tensor, layout: str) -> tuple[str, tuple[int, ...]]:
    """The layout in lower case, and the extents along h and w."""
    axes = layout_of(op, layout, LAYOUTS)
    require_rank(op, "x", x, 4, f"({layout})")
    return axes, tuple(x.shape[axes.index(a)] for a in "hw")


def _windows(
    op: str, x: Tensor, kernel: Ints, stride: Ints | None, padding: Ints, ceil_mode: bool, layout: str
) -> tuple[str, tuple[Window, ...]]:
    """The layout in lower case, and the windows along h and w; each window must contain an element of x."""
    axes, extents = _pictures(op, x, layout)
    windows = windows_of(op, extents, kernel, kernel if stride is None else stride, padding, 1, ceil_mode)
    require(
        all(max(w.before, w.after) < w.kernel for w in windows),
        f"{op}: padding={padding} must be smaller than kernel={kernel}, or a window would lie outside x.",
    )
    require(
        all(w.out > 0 for w in windows),
        f"{op}: kernel={kernel} is larger than x of shape {x.shape} ({layout}) with padding={padding}.",
    )
    return axes, windows


def _windows_behind(
    op: str, x: Tensor, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Axes, tuple[Window, ...]]:
    """The axes [n, c, spatial…] of x, and the windows along the spatial axes."""
    require(x.ndim > 2, f"{op}: x has shape {x.shape}, expected [N, C] and spatial axes.")
    windows = windows_of(op, x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    require(
        all(w.out > 0 for w in windows),
        f"{op}: the windows reach over {tuple(w.reach for w in windows)} elements, x has fewer.",
    )
    return ("n", "c", *(f"i{a}" for a in range(2, x.ndim))), windows


def _shape(x: Tensor, axes: Axes, windows: Sequence[Window]) -> tuple[int, ...]:
    around = (x.shape[0], x.shape[axes.index("c")])
    return by_layout(axes, spatial_of(axes), around, [w.out for w in windows])


def _pool(
    reducer: Any,
    x: Tensor,
    axes: Axes,
    windows: Sequence[Window],
    name: str,
    value: Callable[[Any], Any] = lambda element: element,
) -> Tensor:
    """`value` of each window's elements, reduced by te.max or te.sum; small integers are summed in int32."""
    to = int32 if reducer is te.sum and x.dtype.is_int and x.dtype.bits < 32 else x.dtype
    ks = taps(axes, windows)
    read = reader(x, te.min_value(x.dtype) if reducer is te.max else 0, axes, windows)

    def body(*i: Expr) -> Any:
        _, element = read(dict(zip(axes, i, strict=True)), ks)
        return reduced(reducer, value(te.cast(to, element)), [k for k in ks if k is not None])

    return stage(_shape(x, axes, windows), body, name, axes)


# -- reference -----------------------------------------------------------------------------------------------


def _channels_first(x: Array, layout: str) -> Array:
    return np.moveaxis(x, -1, 1) if layout == "NHWC" else x


def _as_it_was(y: Array, layout: str) -> Array:
    return np.moveaxis(y, 1, -1) if layout == "NHWC" else y


def _pool_reference(
    x: Array,
    mode: str,
    kernel: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    p: int = 2,
    layout: str = "",
) -> Array:
    """For all windows at once, element by element of a window."""
    x = _channels_first(x, layout)
    steps = kernel if stride is None else stride
    windows = windows_of("pool", x.shape[2:], kernel, steps, padding, dilation, ceil_mode)
    result = np.dtype(np.float32) if mode == "average" and x.dtype.kind != "f" else x.dtype
    if mode == "sum" and x.dtype.kind in "iu" and x.dtype.itemsize < 4:
        result = np.dtype(np.int32)
    wide = result if result.kind in "iu" else np.dtype(np.float64)
    source = np.pad(x, ((0, 0), (0, 0), *(w.around for w in windows)), constant_values=_fill(mode, x.dtype))
    parts = [_every(source, k, windows) for k in np.ndindex(*(w.kernel for w in windows))]
    match mode:
        case "max":
            out = reduce(np.maximum, parts)
        case "norm":
            out = reduce(np.add, (np.abs(part.astype(wide)) ** p for part in parts)) ** (1 / p)
        case _:
            out = reduce(np.add, (part.astype(wide) for part in parts))
    if mode == "average":
        out = out / reduce(np.multiply.outer, [_counts(w, count_include_pad) for w in windows])
    return _as_it_was(np.asarray(out, result), layout)


def _fill(mode: str, dtype: np.dtype[Any]) -> Any:
    """A number that does not change the result of a window."""
    if mode != "max":
        return 0
    return -np.inf if dtype.kind not in "iu" else np.iinfo(dtype).min


def _every(source: Array, k: Sequence[int], windows: Sequence[Window]) -> Array:
    """Element k of every window: [n, c, out…]. source: x with its padding."""
    starts = [n * w.dilation for n, w in zip(k, windows, strict=True)]
    ends = [s + (w.out - 1) * w.stride + 1 for s, w in zip(starts, windows, strict=True)]
    every = (slice(s, e, w.stride) for s, e, w in zip(starts, ends, windows, strict=True))
    return source[(slice(None), slice(None), *every)]


def _counts(w: Window, include_pad: bool) -> Array:
    return np.array([w.inside(i, include_pad) for i in range(w.out)])


# -- pools of pictures ---------------------------------------------------------------------------------------

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
    reference=partial(_pool_reference, mode="max"),
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
    """The greatest element of every window. stride: None means the kernel's size."""
    axes, windows = _windows("max_pool2d", x, kernel, stride, padding, ceil_mode, layout)
    return _pool(te.max, x, axes, windows, "max_pool2d")


@operator(
    "sum_pool2d",
    kind=Kind.REDUCTION,
    reference=partial(_pool_reference, mode="sum"),
    cases=(
        *SHARED_CASES[:3],
        Case(((1, 9, 7, 5),), {"kernel": 3, "stride": 2, "padding": 1, **LAST}, ("uint8",), 0, 250),
    ),
)
def sum_pool2d(
    x: Tensor,
    kernel: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """The sum of every window; sums of small integers are int32."""
    axes, windows = _windows("sum_pool2d", x, kernel, stride, padding, ceil_mode, layout)
    return _pool(te.sum, x, axes, windows, "sum_pool2d")


@operator(
    "avg_pool2d",
    kind=Kind.REDUCTION,
    reference=partial(_pool_reference, mode="average"),
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
    """The mean of every window. Padding counts as zeros, or not at all without count_include_pad."""
    axes, windows = _windows("avg_pool2d", x, kernel, stride, padding, ceil_mode, layout)
    total = _pool(te.sum, x, axes, windows, "sum")

    def body(*i: Expr) -> Expr:
        at = dict(zip(axes, i, strict=True))
        lengths = [_counted(w, at[a], count_include_pad) for a, w in zip("hw", windows, strict=True)]
        if all(isinstance(n, int) for n in lengths):
            return total[i] / size(lengths)
        return total[i] / te.cast(as_float(x.dtype), lengths[0] * lengths[1])

    return stage(total.shape, body, "avg_pool2d", axes)


def _counted(w: Window, at: Expr, include_pad: bool) -> Any:
    """The number of elements of window `at` that count; an int if it is the same for all windows."""
    low, high = w.counted(include_pad)
    if low == 0 and (w.out - 1) * w.stride + w.kernel <= high:
        return w.kernel
    start = position(at, w.stride)
    return te.minimum(start + w.kernel, high) - te.maximum(start, low)


def _global(
    op: str, reducer: Any, x: Tensor, layout: str, name: str, value: Callable[[Any, int], Any]
) -> Tensor:
    """`value(x reduced over h and w, number of elements)`; h and w stay as axes of extent 1."""
    axes, extents = _pictures(op, x, layout)
    c = axes.index("c")
    kh, kw = (te.reduce_axis(n, f"k{a}") for a, n in zip("hw", extents, strict=True))
    found = stage(
        (x.shape[0], x.shape[c]),
        lambda n, c: reducer(x[by_layout(axes, "hw", (n, c), (kh, kw))], axis=(kh, kw)),
        name,
    )
    shape = by_layout(axes, "hw", found.shape, (1, 1))
    return stage(shape, lambda *i: value(found[i[0], i[c]], size(extents)), op, axes)


def _global_reference(reduce: Any) -> Callable[..., Array]:
    def reference(x: Array, layout: str = "NCHW") -> Array:
        return np.asarray(reduce(x, axis=(1, 2) if layout == "NHWC" else (2, 3), keepdims=True))

    return reference


GLOBAL_CASES = (Case(((1, 5, 7, 7),)), Case(((2, 7, 3, 17),), LAST), Case(((1, 1, 1, 1),), LAST))


@operator(
    "global_avg_pool2d",
    kind=Kind.REDUCTION,
    reference=_global_reference(np.mean),
    cases=GLOBAL_CASES,
)
def global_avg_pool2d(x: Tensor, layout: str = "NCHW") -> Tensor:
    """The mean over h and w, which stay as axes of extent 1."""
    return _global("global_avg_pool2d", te.sum, x, layout, "sum", lambda total, count: total / count)


@operator(
    "global_max_pool2d",
    kind=Kind.REDUCTION,
    reference=_global_reference(np.max),
    cases=GLOBAL_CASES,
)
def global_max_pool2d(x: Tensor, layout: str = "NCHW") -> Tensor:
    """The greatest element over h and w, which stay as axes of extent 1."""
    return _global("global_max_pool2d", te.max, x, layout, "max", lambda best, count: best)


def _adaptive_reference(x: Array, output_size: Ints, layout: str = "NCHW") -> Array:
    first = _channels_first(x, layout)
    oh, ow = (output_size,) * 2 if isinstance(output_size, int) else output_size
    n, c, h, w = first.shape
    return _as_it_was(first.reshape(n, c, oh, h // oh, ow, w // ow).mean((3, 5)), layout)


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
    """The means of output_size equal windows; output_size must divide the extents."""
    op = "adaptive_avg_pool2d"
    _, extents = _pictures(op, x, layout)
    out = per_axis(op, "output_size", output_size, 2)
    require(
        all(n % o == 0 for n, o in zip(extents, out, strict=True)),
        f"{op}: output_size={output_size} does not divide the extents {extents} of x {x.shape} ({layout}).",
        "Unequal windows are not supported; use avg_pool2d.",
    )
    if out == (1, 1):
        return global_avg_pool2d(x, layout)  # type: ignore[no-any-return]
    return avg_pool2d(x, (extents[0] // out[0], extents[1] // out[1]), layout=layout)  # type: ignore[no-any-return]


# -- general pools -------------------------------------------------------------------------------------------


def _plain_reference(
    x: Array, mode: str, stride: Ints = 1, count_include_pad: bool = False, **attrs: Any
) -> Array:
    return _pool_reference(x, mode, stride=stride, count_include_pad=count_include_pad, **attrs)


@operator(
    "pool",
    kind=Kind.REDUCTION,
    reference=_plain_reference,
    cases=(
        Case(((1, 3, 17),), {"mode": "max", "kernel": 3, "stride": 2, "padding": (1, 0)}),
        Case(((2, 3, 5, 7),), {"mode": "average", "kernel": (2, 3), "padding": 1}),
        Case(
            ((1, 2, 7, 7),),
            {
                "mode": "average",
                "kernel": 3,
                "stride": 2,
                "ceil_mode": True,
                "count_include_pad": True,
                "padding": (0, 1),
            },
        ),
        Case(((1, 2, 9, 8),), {"mode": "max", "kernel": 3, "dilation": 2, "stride": (1, 2)}),
        Case(((1, 2, 4, 5, 6),), {"mode": "norm", "kernel": (2, 2, 3), "p": 3}, low=0.1),
        Case(((1, 1, 6, 5),), {"mode": "sum", "kernel": (3, 1), "padding": (1, 0)}),
        Case(((1, 2, 9),), {"mode": "max", "kernel": 2}, dtypes=("int8",), low=-9, high=9),
    ),
)
def pool(
    x: Tensor,
    mode: str,
    kernel: Ints,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    p: int = 2,
) -> Tensor:
    """mode: max | sum | average | norm. padding: as for convolutions."""
    require(mode in MODES, f"pool: mode {mode!r} is unknown.", f"Known: {', '.join(MODES)}.")
    axes, windows = _windows_behind("pool", x, kernel, stride, padding, dilation, ceil_mode)
    if mode == "norm":
        y = _pool(
            te.sum, x, axes, windows, "pool", lambda v: v * v if p == 2 else te.pow(te.abs(v), float(p))
        )
        return stage(y.shape, lambda *i: te.sqrt(y[i]) if p == 2 else te.pow(y[i], 1.0 / p), "root", axes)
    y = _pool(te.max if mode == "max" else te.sum, x, axes, windows, "pool")
    if mode != "average":
        return y
    if all(w.is_whole for w in windows):
        count = size([w.kernel for w in windows])
        return stage(y.shape, lambda *i: y[i] / count, "average", axes)
    counts = [_count(w, count_include_pad, n) for n, w in enumerate(windows)]

    def divided(*i: Any) -> Any:
        value: Any = y[i]
        for place, c in zip(i[2:], counts, strict=True):
            value = value / c[place]
        return te.cast(as_float(x.dtype), value)  # counts of a window are float32

    return stage(y.shape, divided, "average", axes)


def _count(w: Window, include_pad: bool, n: int) -> Tensor:
    """How many elements count, for every window of one axis: [out], float32."""
    k = te.reduce_axis(w.kernel, f"c{n}")
    low, high = w.counted(include_pad)

    def body(i: Any) -> Any:
        at = i * w.stride + k.var * w.dilation
        return te.sum(te.select(te.all(at >= low, at < high), te.const(1.0), te.const(0.0)), axis=k)

    return stage((w.out,), body, f"count{n}", ("i",))


def _positions_reference(
    x: Array,
    kernel: Ints,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    column_major: bool = False,
) -> Array:
    windows = windows_of("max_positions", x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    numbers = np.arange(size(x.shape[2:])).reshape(x.shape[2:], order="F" if column_major else "C")
    out = np.zeros((*x.shape[:2], *(w.out for w in windows)), np.int64)
    for i in np.ndindex(*out.shape):
        at = np.ix_(*(w.places(v) for v, w in zip(i[2:], windows, strict=True)))
        values, where = x[i[:2]][at].ravel(), numbers[at].ravel()
        best = values.max()
        out[i] = where[np.isnan(values) if best != best else values == best].min()
    return out


@operator(
    "max_positions",
    kind=Kind.OPAQUE,
    reference=_positions_reference,
    cases=(
        Case(((1, 3, 17),), {"kernel": 3, "stride": 2, "padding": (1, 0)}),
        Case(((2, 2, 5, 7),), {"kernel": (2, 3), "padding": (0, 1)}),
        Case(((1, 2, 6, 5),), {"kernel": 2, "stride": 2, "column_major": True, "ceil_mode": True}),
        Case(((1, 1, 7, 7),), {"kernel": 3, "dilation": 2}),
    ),
)
def max_positions(
    x: Tensor,
    kernel: Ints,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    column_major: bool = False,
) -> Tensor:
    """The position in its channel of each window's largest element (of equal ones, the first); int64.

    NaN is greater than any number, as for argmax.
    """
    axes, windows = _windows_behind("max_positions", x, kernel, stride, padding, dilation, ceil_mode)
    ks = [te.reduce_axis(w.kernel, f"k{n}") for n, w in enumerate(windows)]
    read = reader(x, te.min_value(x.dtype), axes, windows)

    def body(*i: Any) -> Any:
        places, element = read(dict(zip(axes, i, strict=True)), [k.var for k in ks])
        number: Any = te.const(0, "int64")
        inside: list[Any] = []
        lines = list(zip(places, windows, strict=True))
        for place, w in lines[::-1] if column_major else lines:
            number = number * w.extent + (place - w.before)
        for place, w in lines:
            inside += [place >= w.before, place < w.before + w.extent]
        # an element outside x is never chosen, even if all elements are -inf
        return argmax_pair((te.select(te.all(*inside), number, te.max_value("int64")), element), axis=ks)

    found, _ = te.compute(_shape(x, axes, windows), body, name="max_positions", axis_names=axes)
    result: Tensor = found
    return result
