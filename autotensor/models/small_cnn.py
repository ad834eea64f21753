"""A small convolutional network for 8x8 digits (scikit-learn's); its trained weights come with the package.

    x: float32[batch, 1, 8, 8] in [0, 1] ──▶ (conv 3x3, bn, relu) ×3, pooled twice ─▶ dense ──▶ [batch, 10]

`examples/train_small_cnn.py` made the weights; `split` says which digits it never saw.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import batch_norm, named, norm_shapes, weighted, weighted_shapes
from autotensor.models.weights import Array, Weights, checked, load_weights

CHANNELS = (1, 16, 32, 32)  # of the input and after each convolution
POOLED = (1, 2)  # convolutions with a 2x2 max pool behind them
CLASSES = 10
DATA = Path(__file__).parent / "data" / "small_cnn.npz"
SPLIT_SEED, TEST_DIGITS = 0, 360


def build(batch: int = 1, weights: Weights | None = None, seed: int = 0, *, widen: int = 1) -> Graph:
    """The graph. weights None: the trained ones; without their file, ones drawn from the seed.

    widen: every hidden layer has so many times its channels; the trained weights are of 1.
    """
    if weights is None and widen == 1 and DATA.is_file():
        weights = load_weights(DATA)
    w = checked("small_cnn", weights, shapes(widen), seed)
    x = input((batch, CHANNELS[0], 8, 8), name="x")
    y: GraphNode = x
    for n in range(1, len(CHANNELS)):
        y = ops.conv2d(y, named(w, f"conv{n}.weight"), padding=1)
        y = ops.relu(batch_norm(y, w, f"bn{n}"))
        y = ops.max_pool2d(y, kernel=2) if n in POOLED else y
    return Graph((x,), (ops.dense(ops.flatten(y), *weighted(w, "fc")),), "small_cnn", ("logits",))


def shapes(widen: int = 1) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name."""
    found: dict[str, tuple[int, ...]] = {}
    channels = (CHANNELS[0], *(widen * c for c in CHANNELS[1:]))
    for n, (depth, width) in enumerate(pairwise(channels), start=1):
        found[f"conv{n}.weight"] = (width, depth, 3, 3)
        found |= norm_shapes(f"bn{n}", width)
    side = 8 >> len(POOLED)
    return found | weighted_shapes("fc", CLASSES, channels[-1] * side * side)


def split(count: int = 1797) -> tuple[Array, Array]:
    """Indices of the digits to train on, and of those to test on: the last 360 after a seeded shuffle."""
    order = np.random.default_rng(SPLIT_SEED).permutation(count)
    return order[:-TEST_DIGITS], order[-TEST_DIGITS:]


def inputs(rng: np.random.Generator, batch: int = 1) -> dict[str, Array]:
    """A batch of numbers in [0, 1), like pixels."""
    return {"x": rng.random((batch, CHANNELS[0], 8, 8), dtype=np.float32)}
