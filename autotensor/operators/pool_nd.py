"""Pooling over windows of any number of spatial axes, with dilation: x is [N, C, spatial…].

    pool[n, c, i] = join_k x[n, c, i*stride + k*dilation - before]      max, sum, average, or p-norm
    max_positions: where the largest element of each window is, numbered within its channel

`pool.py` has the two-dimensional ones that schedules know, with layouts; these are for everything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.operators.common import padded, position, reduced, require, size, stage
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.reduce import argmax_pair
from autotensor.operators.window import Ints, Window, windows_of
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]
MODES = ("max", "sum", "average", "norm")


def _windows(
    op: str, x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Window, ...]:
    require(x.ndim > 2, f"{op}: x has shape {x.shape}, expected [N, C] and spatial axes.")
    found = windows_of(op, x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    require(
        all(w.out > 0 for w in found),
        f"{op}: the windows reach over {tuple(w.reach for w in found)} elements, x has fewer.",
    )
    return found


def _pool_reference(
    x: Array,
    mode: str,
    kernel: Ints,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    p: int = 2,
) -> Array:
    windows = _windows("pool", x, kernel, stride, padding, dilation, ceil_mode)
    out = np.zeros((*x.shape[:2], *(w.out for w in windows)), x.dtype)
    for i in np.ndindex(*out.shape[2:]):
        places = [w.places(v) for v, w in zip(i, windows, strict=True)]
        part = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *places)].reshape(*x.shape[:2], -1)
        count = size([w.inside(v, count_include_pad) for v, w in zip(i, windows, strict=True)])
        match mode:
            case "max":
                out[(..., *i)] = part.max(-1)
            case "norm":
                out[(..., *i)] = (np.abs(part) ** p).sum(-1) ** (1 / p)
            case _:
                out[(..., *i)] = part.sum(-1) / (count if mode == "average" else 1)
    return out


@operator(
    "pool",
    kind=Kind.REDUCTION,
    reference=_pool_reference,
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
    """mode: max | sum | average | norm. padding: as of convolutions."""
    require(mode in MODES, f"pool: mode {mode!r} is unknown.", f"Known: {', '.join(MODES)}.")
    windows = _windows("pool", x, kernel, stride, padding, dilation, ceil_mode)
    fill = te.min_value(x.dtype) if mode == "max" else 0
    source = padded(x, ((0, 0), (0, 0), *(w.around for w in windows)), fill)
    ks = [te.reduce_axis(w.kernel, f"k{n}") if w.kernel > 1 else None for n, w in enumerate(windows)]
    over = [k for k in ks if k is not None]

    def body(*i: Any) -> Any:
        at = [position(v, w.stride, k, w.dilation) for v, w, k in zip(i[2:], windows, ks, strict=True)]
        element: Any = source[(*i[:2], *at)]
        if mode == "norm":
            element = element * element if p == 2 else te.power(te.call("abs", element), float(p))
        return reduced(te.max if mode == "max" else te.sum, element, over)

    shape = (*x.shape[:2], *(w.out for w in windows))
    names = tuple(f"i{n}" for n in range(x.ndim))
    y = stage(shape, body, "pool", names)
    if mode == "norm":
        power = 1.0 / p
        return stage(
            shape, lambda *i: te.call("sqrt", y[i]) if p == 2 else te.power(y[i], power), "root", names
        )
    if mode != "average":
        return y
    if all(w.is_whole for w in windows):
        count = size([w.kernel for w in windows])
        return stage(shape, lambda *i: y[i] / count, "average", names)
    counts = [_count(w, count_include_pad, n) for n, w in enumerate(windows)]

    def divided(*i: Any) -> Any:
        value: Any = y[i]
        for n, c in enumerate(counts):
            value = value / c[i[2 + n]]
        return value

    return stage(shape, divided, "average", names)


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
    windows = _windows("max_positions", x, kernel, stride, padding, dilation, ceil_mode)
    numbers = np.arange(size(x.shape[2:])).reshape(x.shape[2:], order="F" if column_major else "C")
    out = np.zeros((*x.shape[:2], *(w.out for w in windows)), np.int64)
    for i in np.ndindex(*out.shape):
        places = [w.places(v) for v, w in zip(i[2:], windows, strict=True)]
        best = [
            (-x[(*i[:2], *at)], numbers[tuple(at)])
            for at in (
                tuple(p[d] for p, d in zip(places, c, strict=True)) for c in np.ndindex(*map(len, places))
            )
        ]
        out[i] = min(best)[1]
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
    """The number of each window's largest element in its channel (the least of equal ones); int64."""
    windows = _windows("max_positions", x, kernel, stride, padding, dilation, ceil_mode)
    source = padded(x, ((0, 0), (0, 0), *(w.around for w in windows)), te.min_value(x.dtype))
    ks = [te.reduce_axis(w.kernel, f"k{n}") for n, w in enumerate(windows)]
    order = list(range(len(windows)))[:: -1 if column_major else 1]

    def body(*i: Any) -> Any:
        at = [position(v, w.stride, k.var, w.dilation) for v, w, k in zip(i[2:], windows, ks, strict=True)]
        number: Any = te.const(0, "int64")
        inside: list[Any] = []
        for n in order:
            number = number * windows[n].extent + (at[n] - windows[n].before)
        for place, w in zip(at, windows, strict=True):
            inside += [place >= w.before, place < w.before + w.extent]
        # what lies outside is never chosen, even of infinitely small elements
        return argmax_pair(
            (te.select(te.all(*inside), number, te.max_value("int64")), source[(*i[:2], *at)]), axis=ks
        )

    shape = (*x.shape[:2], *(w.out for w in windows))
    found, _ = te.compute(shape, body, name="max_positions", axis_names=tuple(f"i{n}" for n in range(x.ndim)))
    result: Tensor = found
    return result
