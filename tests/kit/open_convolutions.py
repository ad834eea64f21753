"""A 3x3 convolution over images whose sizes a call chooses, for tests of its schedules."""

from __future__ import annotations

from typing import Any

from autotensor import te
from autotensor.te.dag import ComputeDAG


def open_convolution(least: int, most: int, channels: int = 16) -> ComputeDAG:
    """3x3 with a border of zeros, height and width from `least` to `most`."""
    height, width = te.var("height", range=(least, most)), te.var("width", range=(least, most))
    x = te.placeholder((1, height, width, channels), name="x")
    w = te.placeholder((channels, channels, 3, 3), name="w", constant=True)
    r, q, c = (te.reduce_axis(e, name=a) for a, e in (("r", 3), ("q", 3), ("c", channels)))

    def padded(n: Any, i: Any, j: Any, k: Any) -> Any:
        inside = te.all(i >= 1, i < height + 1, j >= 1, j < width + 1)
        return te.if_then_else(inside, x[n, i - 1, j - 1, k], 0.0)

    p = te.compute((1, height + 2, width + 2, channels), padded, name="p")
    y = te.compute(
        (1, height, width, channels),
        lambda n, i, j, o: te.sum(p[n, i + r, j + q, c] * w[o, c, r, q], axis=[r, q, c]),
        name="y",
    )
    return ComputeDAG.of([x, w, y])
