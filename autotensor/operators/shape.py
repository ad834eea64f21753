"""Operators that move elements without changing them.

INJECTIVE   pad concat slice transpose broadcast_to tile upsample_nearest      y[i] = x[f(i)]
VIEW        reshape flatten squeeze unsqueeze                                       the same bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import promote
from autotensor.ir.expr import Expr
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import (
    axes_of,
    axis_of,
    broadcast_load,
    broadcast_shape,
    by_layout,
    is_int,
    layout_of,
    padded,
    per_axis,
    require,
    require_rank,
    size,
    stage,
)
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]
Ints = int | tuple[int, ...]


# -- injective -----------------------------------------------------------------------------------------------


def _pad_reference(x: Array, pads: Any, value: float = 0.0, mode: str = "constant") -> Array:
    grown = np.pad(x, [(max(b, 0), max(a, 0)) for b, a in pads], constant_values=value)
    cut = [slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(grown.shape, pads, strict=True)]
    return grown[tuple(cut)]


@operator(
    "pad",
    kind=Kind.INJECTIVE,
    reference=_pad_reference,
    cases=(
        Case(((7, 5),), {"pads": ((1, 2), (0, 3))}),
        Case(((1, 3, 4, 2),), {"pads": ((0, 0), (1, 1), (0, 1), (0, 0)), "value": 1.5}),
        Case(((7, 5),), {"pads": ((-2, 1), (3, -1))}),
        Case(((3,),), {"pads": ((0, 0),)}),
        Case(((4,),), {"pads": ((2, 2),), "value": -1}, dtypes=("int32",), low=0, high=9),
    ),
)
def pad(x: Tensor, pads: Sequence[Sequence[int]], value: float = 0.0, mode: str = "constant") -> Tensor:
    """pads: (before, after) for every axis; negative numbers cut elements off."""
    require(mode == "constant", f"pad: mode {mode!r} is not supported.", "Known: 'constant'.")
    regular = len(pads) == x.ndim and all(len(p) == 2 and is_int(p[0]) and is_int(p[1]) for p in pads)
    require(
        regular,
        f"pad: pads={pads!r} must be one (before, after) for each of the {x.ndim} axes of x {x.shape}.",
    )
    shape = tuple(n + b + a for n, (b, a) in zip(x.shape, pads, strict=True))
    require(min(shape, default=0) >= 0, f"pad: pads={pads!r} cut more than there is of x {x.shape}.")
    y = padded(x, tuple((b, a) for b, a in pads), value)
    return stage(x.shape, lambda *i: x[i], "pad") if y is x else y


CHAIN = 16  # most tensors of a concat that are selected one by one


@operator(
    "concat",
    kind=Kind.INJECTIVE,
    reference=lambda *xs, axis=0: np.concatenate(xs, axis),
    cases=(
        Case(((7, 5), (7, 3)), {"axis": 1}),
        Case(((2, 3), (1, 3), (4, 3))),
        Case(((1, 2, 2, 17), (1, 2, 2, 1)), {"axis": -1}),
        Case(((5,),)),
    ),
)
def concat(*xs: Tensor, axis: int = 0) -> Tensor:
    """The tensors one after the other along the axis; all other extents must be equal."""
    require(len(xs) > 0, "concat: there is nothing to concatenate.")
    at = axis_of("concat", axis, xs[0].ndim)
    for x in xs:
        same = x.ndim == xs[0].ndim and all(
            m == n for a, (m, n) in enumerate(zip(x.shape, xs[0].shape, strict=True)) if a != at
        )
        require(same, f"concat: shapes {xs[0].shape} and {x.shape} differ outside axis {axis}.")
    starts = [0, *accumulate(x.shape[at] for x in xs)]
    dtype = xs[0].dtype
    for x in xs[1:]:
        dtype = promote(dtype, x.dtype)

    def body(*i: Expr) -> Expr:
        parts = [
            te.cast(dtype, x[(*i[:at], i[at] - begin if begin else i[at], *i[at + 1 :])])
            for x, begin in zip(xs, starts, strict=False)
        ]

        def among(first: int, last: int) -> Expr:
            """Selects one tensor after another; if there are many, by halves, which limits the depth."""
            if last - first == 1:
                return parts[first]
            middle = first + 1 if last - first <= CHAIN else (first + last) // 2
            return te.select(i[at] < starts[middle], among(first, middle), among(middle, last))

        return among(0, len(xs))

    return stage((*xs[0].shape[:at], starts[-1], *xs[0].shape[at + 1 :]), body, "concat")


def slice_ranges(shape: Sequence[int], begin: Any, end: Any, stride: Any = (), axes: Any = ()) -> list[range]:
    """The indices that a slice takes, for each axis.

    >>> slice_ranges((7, 17), (-2,), (None,), axes=(1,))
    [range(0, 7), range(15, 17)]
    """
    wanted = _slices(begin, end, stride, axes, len(shape))
    return [range(*s.indices(n)) for s, n in zip(wanted, shape, strict=True)]


def _slices(begin: Any, end: Any, stride: Any, axes: Any, rank: int) -> list[slice]:
    found = [slice(None)] * rank
    steps = stride or (1,) * len(begin)
    for a, b, e, s in zip(axes or range(len(begin)), begin, end, steps, strict=True):
        found[a] = slice(b, e, s)
    return found


@operator(
    "slice",
    kind=Kind.INJECTIVE,
    reference=lambda x, begin, end, stride=(), axes=(): x[tuple(_slices(begin, end, stride, axes, x.ndim))],
    cases=(
        Case(((7, 17),), {"begin": (1, 2), "end": (6, 9)}),
        Case(((7, 17),), {"begin": (0, -5), "end": (99, -1), "stride": (2, 3)}),
        Case(((3, 5, 7),), {"begin": (4,), "end": (None,), "stride": (-2,), "axes": (1,)}),
        Case(((33,),), {"begin": (32,), "end": (33,)}),
    ),
)
def slice_(
    x: Tensor,
    begin: tuple[int | None, ...],
    end: tuple[int | None, ...],
    stride: tuple[int, ...] = (),
    axes: tuple[int, ...] = (),
) -> Tensor:
    """x[begin:end:stride, …] over the first axes, or over `axes`.

    As in Python, negative positions count from the end, and None is an open end.
    """
    count = len(begin)
    require(
        count == len(end) and len(stride) in (0, count) and len(axes) in (0, count) and count <= x.ndim,
        f"slice: begin={begin}, end={end}, stride={stride}, axes={axes} must have one length, at most "
        f"{x.ndim} for x {x.shape}.",
    )
    require(0 not in stride, f"slice: stride={stride} holds a zero.")
    where = tuple(axis_of("slice", a, x.ndim) for a in axes)
    ranges = slice_ranges(x.shape, begin, end, stride, where)

    def body(*i: Expr) -> Expr:
        places = (v if r.step == 1 else v * r.step for v, r in zip(i, ranges, strict=True))
        return x[tuple(p + r.start if r.start else p for p, r in zip(places, ranges, strict=True))]

    return stage([len(r) for r in ranges], body, "slice")


@operator(
    "transpose",
    kind=Kind.INJECTIVE,
    reference=lambda x, axes=(): np.transpose(x, axes or None),
    cases=(
        Case(((7, 17),)),
        Case(((1, 3, 5, 7),), {"axes": (0, 2, 3, 1)}),
        Case(((2, 3, 4),), {"axes": (-1, 0, 1)}),
    ),
)
def transpose(x: Tensor, axes: tuple[int, ...] = ()) -> Tensor:
    """Axis n of the result is axis axes[n] of x; () reverses the order of the axes."""
    order = tuple(axis_of("transpose", a, x.ndim) for a in axes) if axes else tuple(reversed(range(x.ndim)))
    require(
        sorted(order) == list(range(x.ndim)),
        f"transpose: axes={axes} must name each of the {x.ndim} axes of x {x.shape} once.",
    )
    places = [order.index(a) for a in range(x.ndim)]
    return stage([x.shape[a] for a in order], lambda *i: x[tuple(i[p] for p in places)], "transpose")


@operator(
    "broadcast_to",
    kind=Kind.INJECTIVE,
    reference=lambda x, shape: np.broadcast_to(x, shape),
    cases=(
        Case(((7, 1),), {"shape": (7, 17)}),
        Case(((),), {"shape": (3,)}),
        Case(((1, 33),), {"shape": (2, 3, 33)}),
    ),
)
def broadcast_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x repeated along axes of extent 1 and along new outer axes, as in NumPy's broadcast_to."""
    target = tuple(shape)
    require(
        x.ndim <= len(target) and broadcast_shape("broadcast_to", x.shape, target) == target,
        f"broadcast_to: x of shape {x.shape} does not fit into {target}.",
    )
    return stage(target, lambda *i: broadcast_load(x, i), "broadcast_to")


@operator(
    "tile",
    kind=Kind.INJECTIVE,
    reference=lambda x, reps: np.tile(x, reps),
    cases=(
        Case(((3, 5),), {"reps": (2, 3)}),
        Case(((7, 1),), {"reps": (1, 4)}),
        Case(((1,),), {"reps": (17,)}),
    ),
)
def tile(x: Tensor, reps: tuple[int, ...]) -> Tensor:
    """x repeated reps[n] times along axis n."""
    times = per_axis("tile", "reps", tuple(reps), x.ndim)

    def body(*i: Expr) -> Expr:
        return x[tuple(v if r == 1 else v % n for v, r, n in zip(i, times, x.shape, strict=True))]

    return stage([n * r for n, r in zip(x.shape, times, strict=True)], body, "tile")


def _upsample_reference(x: Array, scale: Ints, layout: str = "NCHW") -> Array:
    sh, sw = (scale, scale) if isinstance(scale, int) else scale
    h, w = (1, 2) if layout == "NHWC" else (2, 3)
    return np.repeat(np.repeat(x, sh, h), sw, w)


@operator(
    "upsample_nearest",
    kind=Kind.INJECTIVE,
    reference=_upsample_reference,
    cases=(
        Case(((1, 3, 4, 5),), {"scale": 2}),
        Case(((2, 3, 1, 7),), {"scale": (1, 3), "layout": "NHWC"}),
    ),
)
def upsample_nearest(x: Tensor, scale: Ints, layout: str = "NCHW") -> Tensor:
    """Every pixel repeated scale[0] times in h and scale[1] times in w."""
    axes = layout_of("upsample_nearest", layout, ("NCHW", "NHWC"))
    require_rank("upsample_nearest", "x", x, 4, f"({layout})")
    times = by_layout(axes, "hw", (1, 1), per_axis("upsample_nearest", "scale", scale, 2))

    def body(*i: Expr) -> Expr:
        return x[tuple(v if t == 1 else v // t for v, t in zip(i, times, strict=True))]

    return stage([n * t for n, t in zip(x.shape, times, strict=True)], body, "upsample_nearest", axes)


# -- views ---------------------------------------------------------------------------------------------------


def view(x: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """The elements of x in the same order, in another shape."""
    groups = _groups(x.shape, tuple(shape))

    def body(*i: Expr) -> Expr:
        at: list[Any] = []
        for source, target in groups:
            at += _split(i[target], tuple(shape)[target], x.shape[source])
        return x[tuple(at)]

    return stage(shape, body, name)


def _groups(source: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """The smallest runs of axes of both shapes that have the same number of elements.

    >>> _groups((2, 3, 4), (6, 4))
    [(slice(0, 2, None), slice(0, 1, None)), (slice(2, 3, None), slice(1, 2, None))]
    """
    if 0 in source:
        return [(slice(0, len(source)), slice(0, len(target)))]
    out, a, b = [], 0, 0
    while a < len(source) or b < len(target):
        p, q, m, n = a, b, 1, 1
        while p == a or m != n:
            if p < len(source) and (m <= n or q == len(target)):
                m, p = m * source[p], p + 1
            elif q < len(target):
                n, q = n * target[q], q + 1
            else:
                break
        out.append((slice(a, p), slice(b, q)))
        a, b = p, q
    return out


def _split(i: Sequence[Expr], extents: Sequence[int], parts: Sequence[int]) -> list[Any]:
    """The indices over `parts` of the element at index `i` over `extents`; both have as many elements."""
    flat: Any = 0
    for v, n in zip(i, extents, strict=True):
        if n != 1:
            flat = v if isinstance(flat, int) else flat * n + v
    out: list[Any] = []
    below = size(parts)
    for n in parts:
        above, below = below, below // n if n else 0
        place = flat if below <= 1 else flat // below
        out.append(0 if n == 1 else place if above == size(parts) else place % n)
    return out


@operator(
    "reshape",
    kind=Kind.VIEW,
    reference=lambda x, shape: x.reshape(shape),
    cases=(
        Case(((7, 6),), {"shape": (3, 14)}),
        Case(((2, 3, 4),), {"shape": (6, -1)}),
        Case(((6, 4),), {"shape": (2, 3, 1, 4)}),
        Case(((1,),), {"shape": ()}),
        Case(((4, 1, 3),), {"shape": (1, 2, 6)}),
        Case(((2, 3, 5),), {"shape": (5, 3, 2)}),
    ),
)
def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x in another shape; one extent may be -1."""
    wanted = tuple(shape)
    fits = all(is_int(n) and n >= -1 for n in wanted) and wanted.count(-1) <= 1
    require(fits, f"reshape: shape {wanted} must be non-negative integers and at most one -1.")
    if -1 in wanted:
        rest = size([n for n in wanted if n != -1])
        require(
            rest > 0 and size(x.shape) % rest == 0,
            f"reshape: x of shape {x.shape} has {size(x.shape)} elements, which do not fill {wanted}.",
        )
        wanted = tuple(size(x.shape) // rest if n == -1 else n for n in wanted)
    require(
        size(wanted) == size(x.shape),
        f"reshape: x of shape {x.shape} has {size(x.shape)} elements, shape {wanted} has {size(wanted)}.",
    )
    return view(x, wanted, "reshape")


@operator(
    "flatten",
    kind=Kind.VIEW,
    reference=lambda x, start=1: x.reshape(*x.shape[: start % max(x.ndim, 1)], -1),
    cases=(
        Case(((2, 3, 5),)),
        Case(((2, 3, 5),), {"start": 0}),
        Case(((7,),), {"start": 0}),
        Case(((3, 4),)),
    ),
)
def flatten(x: Tensor, start: int = 1) -> Tensor:
    """The axes from `start` on, joined into one."""
    first = axis_of("flatten", start, x.ndim)
    return view(x, (*x.shape[:first], size(x.shape[first:])), "flatten")


def _squeeze_reference(x: Array, axes: tuple[int, ...] = ()) -> Array:
    return np.squeeze(x, tuple(axes) if axes else None)


@operator(
    "squeeze",
    kind=Kind.VIEW,
    reference=_squeeze_reference,
    cases=(Case(((1, 7, 1, 3),)), Case(((1, 7, 1, 3),), {"axes": (-2,)}), Case(((1,),), {"axes": (0,)})),
)
def squeeze(x: Tensor, axes: tuple[int, ...] = ()) -> Tensor:
    """x without these axes, which must have extent 1; () drops all axes of extent 1."""
    drop = axes_of("squeeze", axes, x.ndim) if axes else tuple(a for a, n in enumerate(x.shape) if n == 1)
    for a in drop:
        require(x.shape[a] == 1, f"squeeze: axis {a} of x {x.shape} has extent {x.shape[a]}, expected 1.")
    return view(x, [n for a, n in enumerate(x.shape) if a not in drop], "squeeze")


@operator(
    "unsqueeze",
    kind=Kind.VIEW,
    reference=lambda x, axes: np.expand_dims(x, tuple(axes)),
    cases=(Case(((7, 3),), {"axes": (0, -1)}), Case(((5,),), {"axes": (1,)}), Case(((),), {"axes": (0,)})),
)
def unsqueeze(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """x with axes of extent 1 at these positions of the result."""
    rank = x.ndim + len(axes)
    new = axes_of("unsqueeze", tuple(axes), rank)
    old = iter(x.shape)
    return view(x, [1 if a in new else next(old) for a in range(rank)], "unsqueeze")
