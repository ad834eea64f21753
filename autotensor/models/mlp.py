"""A multi-layer perceptron: dense layers with ReLU between them.

x: float32[batch, 784] ──▶ dense 512 ─▶ relu ─▶ dense 256 ─▶ relu ─▶ dense 10 ──▶ logits
"""

from __future__ import annotations

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import linear
from autotensor.models.weights import Array, Weights, WeightSource

SIZES = (784, 512, 256, 10)


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    sizes: tuple[int, ...] = SIZES,
    widen: int = 1,
) -> Graph:
    """The graph. weights: `fc1.weight` [512, 784], `fc1.bias`, …; if None, they are drawn from the seed.

    widen: multiplies the widths of the hidden layers in `sizes`.
    """
    if len(sizes) < 2:
        raise InputError(f"mlp: sizes {sizes} must be the widths of input, layers and output.")
    sizes = (sizes[0], *(widen * s for s in sizes[1:-1]), sizes[-1])
    w = WeightSource("mlp", weights, seed)
    x = input((batch, sizes[0]), name="x")
    y: GraphNode = x
    for n, width in enumerate(sizes[1:], start=1):
        y = linear(y, w, f"fc{n}", width)
        y = ops.relu(y) if n < len(sizes) - 1 else y
    return w.graph((x,), (y,), ("logits",))


def inputs(rng: np.random.Generator, batch: int = 1, width: int = SIZES[0]) -> dict[str, Array]:
    """A batch of numbers in [0, 1), like pixels."""
    return {"x": rng.random((batch, width), dtype=np.float32)}
