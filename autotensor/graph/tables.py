"""Tables whose elements follow from an index and from a few numbers: places and shares of a resize.

    nearest_places(3, 6) ──▶ [0, 0, 1, 1, 2, 2]        elements, places

A front end writes such a table as a te function of its numbers. Where the numbers are known, folding makes it
a constant. Where they follow run-time extents, the function is computed at run time, and nothing about it has
to be found out from samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor import te
from autotensor.graph.build import call, ops
from autotensor.graph.ir import Array, GraphNode, constant


def table(name: str, extent: int, element: Callable[..., Any], *numbers: float) -> Any:
    """The node of the elements `element(index, *numbers)` at all indices below `extent`.

    numbers: whole numbers become int64, all others float64.
    """

    def made(*of: te.Tensor) -> Any:
        return te.compute((extent,), lambda i: element(i, *(x[0] for x in of)), name="table")

    given = (np.array([n], "int64" if isinstance(n, int) else "float64") for n in numbers)
    return call(made, *map(constant, given), name=name)


def nearest_places(count: int, wanted: int, scale: float | None = None) -> Any:
    """Which of `count` elements lies at each of so many places, as torch rounds: floor(place / scale).

    scale: the quotient of places and elements if it is None.
    """
    if scale is None:
        return table("nearest_places", wanted, _nearest_of_sizes, count, wanted)
    return table("nearest_places", wanted, _nearest_of_step, count, float(np.float32(1 / scale)))


def _nearest_of_sizes(i: Any, count: Any, wanted: Any) -> Any:
    return _nearest(i, count, te.cast("float32", count) / te.cast("float32", wanted))


def _nearest_of_step(i: Any, count: Any, step: Any) -> Any:
    return _nearest(i, count, te.cast("float32", step))


def _nearest(i: Any, count: Any, step: Any) -> Any:
    return te.minimum(te.cast("int64", te.floor(te.cast("float32", i) * step)), count - 1)


def windows(extent: int, count: int) -> Array:
    """Weights [count, extent] of the means over windows that differ by at most one element, as in torch.

    Window o of n covers floor(o*extent/n) … ceil((o+1)*extent/n) - 1.
    """
    w = np.zeros((count, extent), np.float32)
    for o in range(count):
        first, last = o * extent // count, -(-(o + 1) * extent // count)
        w[o, first:last] = 1 / (last - first)
    return w


def resized(x: GraphNode, rows: Array, columns: Array) -> Any:
    """rows @ x @ columnsᵀ over the last two axes."""
    dtype = x.dtype.numpy
    y = ops.batch_matmul(constant(rows.astype(dtype)), x)
    flat = ops.reshape(y, shape=(-1, y.shape[-1]))
    wide = ops.dense(flat, constant(columns.astype(dtype)))
    return ops.reshape(wide, shape=(*y.shape[:-1], columns.shape[0]))


__all__ = ["nearest_places", "resized", "table", "windows"]
