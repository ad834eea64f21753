"""A perceptron and rows for it, small enough to be trained by several processes in a test."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

import autotensor as at
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode

Array = np.ndarray[Any, Any]
ROWS = 8  # of one worker
SIZES = (6, 16, 3)


def perceptron(rows: int) -> GraphNode:
    """Its mean squared error; the same weights each time."""
    rng = np.random.default_rng(0)
    x, y = at.input((rows, SIZES[0]), name="x"), at.input((rows, SIZES[-1]), name="y")
    h: GraphNode = x
    for n, (k, m) in enumerate(pairwise(SIZES)):
        w = at.parameter((rng.standard_normal((m, k)) / np.sqrt(k)).astype(np.float32), f"w{n}")
        h = ops.dense(h if n == 0 else ops.tanh(h), w, at.parameter(np.zeros(m, np.float32), f"b{n}"))
    return ops.mean((h - y) * (h - y))  # type: ignore[no-any-return]


def batch(seed: int, rows: int) -> tuple[Array, Array]:
    """Values of x and y."""
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal((rows, n)).astype(np.float32) for n in (SIZES[0], SIZES[-1]))
    return x, y
