"""Pools and resizing of pictures.

Resizing, and adaptive pools whose windows differ, become products with a constant matrix along each axis:
out = rows @ x @ columnsᵀ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from autotensor import te
from autotensor.frontends.torch.element_types import Ints, per_axis
from autotensor.frontends.torch.registry import converts
from autotensor.graph.build import call, ops
from autotensor.graph.ir import Array, GraphNode, constant
from autotensor.graph.tables import nearest_places, resized, windows
from autotensor.operators.reduce import argmax_pair
from autotensor.te import Tensor

F = TypeVar("F", bound=Callable[..., Any])


def _batched(pool: Callable[[GraphNode], Any], x: GraphNode, axes: int) -> Any:
    """The pool's result for x, which may lack the batch axis."""
    if x.ndim == axes + 2:
        return pool(x)
    return ops.squeeze(pool(ops.unsqueeze(x, axes=(0,))), axes=(0,))


def _pooled(
    x: GraphNode,
    mode: str,
    axes: int,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints = (1,),
    ceil_mode: bool = False,
    **counted: bool,
) -> Any:
    """x: channels and `axes` spatial axes, with or without a batch. Plain pools of pictures are separate
    operators with their own schedules; `pool` is for all others."""
    sizes = {
        "kernel": per_axis(kernel, axes),
        "stride": per_axis(stride or kernel, axes),
        "padding": per_axis(padding, axes),
        "ceil_mode": ceil_mode,
    }
    if axes == 2 and all(d == 1 for d in dilation) and mode in _PLAIN:
        pool = partial(getattr(ops, _PLAIN[mode]), **sizes, **counted)
    else:
        sizes["dilation"] = per_axis(dilation, axes)
        if mode == "positions":
            pool = partial(ops.max_positions, **sizes)
        else:
            pool = partial(ops.pool, mode=mode, **sizes, **counted)
    return _batched(pool, x, axes)


_PLAIN = {"max": "max_pool2d", "average": "avg_pool2d"}


def _max_pool(aten: str, axes: int) -> None:
    @converts(f"aten.{aten}.default")
    def convert(
        x: GraphNode,
        kernel: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        dilation: Ints = (1,),
        ceil_mode: bool = False,
    ) -> Any:
        sizes = (kernel, stride, padding, dilation, ceil_mode)
        y = _pooled(x, "max", axes, *sizes)
        return (y, _pooled(x, "positions", axes, *sizes)) if "indices" in aten else y


def _avg_pool(aten: str, axes: int) -> None:
    @converts(f"aten.{aten}.default")
    def convert(
        x: GraphNode,
        kernel: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        sizes = (kernel, stride, padding)
        if divisor_override is not None:
            return _pooled(x, "sum", axes, *sizes, ceil_mode=ceil_mode) * (1 / divisor_override)
        return _pooled(x, "average", axes, *sizes, ceil_mode=ceil_mode, count_include_pad=count_include_pad)


for _aten, _axes in (
    ("max_pool2d", 2),
    ("max_pool2d_with_indices", 2),
    ("max_pool3d_with_indices", 3),
):
    _max_pool(_aten, _axes)
for _aten, _axes in (("avg_pool1d", 1), ("avg_pool2d", 2), ("avg_pool3d", 3)):
    _avg_pool(_aten, _axes)


@converts("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(x: GraphNode, output_size: Ints) -> Any:
    """Window o of n covers floor(o*extent/n) … ceil((o+1)*extent/n) - 1."""
    extents, wanted = x.shape[-2:], per_axis(output_size, 2)
    if all(n % o == 0 for n, o in zip(extents, wanted, strict=True)):
        return _batched(partial(ops.adaptive_avg_pool2d, output_size=wanted), x, 2)
    return resized(x, *(windows(n, o) for n, o in zip(extents, wanted, strict=True)))


@converts("aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool1d(x: GraphNode, output_size: Ints) -> Any:
    tall = adaptive_avg_pool2d(ops.unsqueeze(x, axes=(-2,)), (1, *output_size))
    return ops.squeeze(tall, axes=(-2,))


@converts("aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool3d(x: GraphNode, output_size: Ints) -> Any:
    extents, wanted = x.shape[-3:], per_axis(output_size, 3)
    if all(n % o == 0 for n, o in zip(extents, wanted, strict=True)):
        sizes = tuple(n // o for n, o in zip(extents, wanted, strict=True))
        return _pooled(x, "average", 3, sizes, sizes, (0,))
    y: Any = x
    for n, (extent, count) in enumerate(zip(extents, wanted, strict=True)):
        y = _weighted(y, x.ndim - 3 + n, windows(extent, count))
    return y


def _weighted(x: GraphNode, axis: int, w: Array) -> Any:
    """The product with w [out, extent] along one axis."""
    order = (*(a for a in range(x.ndim) if a != axis), axis)
    last = ops.transpose(x, axes=order)
    y = ops.dense(ops.reshape(last, shape=(-1, w.shape[1])), constant(w.astype(x.dtype.numpy)))
    wide = ops.reshape(y, shape=(*last.shape[:-1], w.shape[0]))
    return ops.transpose(wide, axes=tuple(order.index(a) for a in range(len(order))))


@converts("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(x: GraphNode, output_size: Ints) -> Any:
    """The greatest element of each window and its index in the channel. The windows are those of
    adaptive_avg_pool2d."""
    axes = len(output_size)
    best = call(lambda t: _greatest(t, tuple(output_size)), x, name=f"adaptive_max_pool{axes}d")
    return best[1], best[0]


def _greatest(x: Tensor, wanted: tuple[int, ...]) -> Any:
    lead = x.ndim - len(wanted)
    extents = x.shape[lead:]
    lines = list(zip(extents, wanted, strict=True))
    # at most one more than the largest window has: a quotient, which may follow a run-time extent
    reach = [(n + w - 2) // w + 1 for n, w in lines]
    ks = [te.reduce_axis(r, f"k{a}") for a, r in enumerate(reach)]

    def body(*i: Any) -> Any:
        number: Any = te.const(0, "int64")
        inside, at = [], []
        for o, k, (n, w) in zip(i[lead:], ks, lines, strict=True):
            place = (o * n) // w + k.var
            inside.append(place < ((o + 1) * n + (w - 1)) // w)
            at.append(te.minimum(place, n - 1))
            number = number * n + at[-1]
        within = te.all(*inside)
        value = te.select(within, x[(*i[:lead], *at)], te.min_value(x.dtype))
        return argmax_pair((te.select(within, number, te.max_value("int64")), value), axis=ks)

    names = tuple(f"i{a}" for a in range(x.ndim))
    return te.compute((*x.shape[:lead], *wanted), body, name="greatest", axis_names=names)


# -- resizing --------------------------------------------------------------------------------------------


def resizes(aten: str) -> Callable[[F], F]:
    """Registers a resizing function (sizes, and a scale or None for each axis) for both forms of the
    operator.

    The form `vec` has either the sizes or the scales.
    """

    def file(by_sizes: F) -> F:
        @converts(f"aten.{aten}.vec")
        def vec(x: GraphNode, output_size: Ints | None, *rest: Any) -> Any:
            *corners, scales = rest
            sizes = output_size
            if sizes is None:
                sizes = [int(n * s) for n, s in zip(x.shape[-2:], scales or (), strict=True)]
            return by_sizes(x, sizes, *corners, *(scales or ()))

        return converts(f"aten.{aten}.default")(by_sizes)

    return file


@resizes("upsample_nearest2d")
def upsample_nearest2d(
    x: GraphNode, output_size: Ints, scale_h: float | None = None, scale_w: float | None = None
) -> Any:
    """Pixel o of the result is pixel floor(o / scale) of x."""
    wanted = tuple(output_size)
    times = [o // n for n, o in zip(x.shape[-2:], wanted, strict=True)]
    if all(t * n == o for t, n, o in zip(times, x.shape[-2:], wanted, strict=True)):
        return ops.upsample_nearest(x, scale=tuple(times))
    y: Any = x
    for axis, n, o, scale in zip((2, 3), x.shape[-2:], wanted, (scale_h, scale_w), strict=True):
        y = ops.take(y, nearest_places(n, o, scale), axis=axis)
    return y


@resizes("upsample_bilinear2d")
def upsample_bilinear2d(
    x: GraphNode,
    output_size: Ints,
    align_corners: bool,
    scale_h: float | None = None,
    scale_w: float | None = None,
) -> Any:
    lines = zip(x.shape[-2:], output_size, (scale_h, scale_w), strict=True)
    return resized(x, *(_linear(n, o, align_corners, scale) for n, o, scale in lines))


def _linear(extent: int, wanted: int, align_corners: bool, scale: float | None) -> Array:
    """Weights [new extent, extent] of linear interpolation, two in each row."""
    at = np.arange(wanted, dtype=np.float64)
    if align_corners:
        source = at * ((extent - 1) / (wanted - 1) if wanted > 1 else 0.0)
    else:
        step = extent / wanted if scale is None else 1 / scale
        source = np.maximum((at + 0.5) * step - 0.5, 0.0)
    low = np.minimum(np.floor(source).astype(np.int64), extent - 1)
    share = source - low
    w = np.zeros((wanted, extent), np.float32)
    rows = np.arange(wanted)
    np.add.at(w, (rows, low), 1 - share)
    np.add.at(w, (rows, np.minimum(low + 1, extent - 1)), share)
    return w
