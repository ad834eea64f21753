"""A small convolutional network for 8x8 digits (scikit-learn's); its trained weights come with the package.

    x: float32[batch, 1, 8, 8] in [0, 1] ──▶ (conv 3x3, bn, relu) ×3, pooled twice ─▶ dense ──▶ [batch, 10]

`examples/train_small_cnn.py` made the weights; `split` says which digits the training did not use.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import conv_norm, linear
from autotensor.models.weights import Array, Weights, WeightSource, load_weights

CHANNELS = (1, 16, 32, 32)  # of the input and after each convolution
POOLED = (1, 2)  # convolutions that are followed by a 2x2 max pool
CLASSES = 10
DATA = Path(__file__).parent / "data" / "small_cnn.npz"
SPLIT_SEED, TEST_DIGITS = 0, 360


def build(batch: int = 1, weights: Weights | None = None, seed: int = 0, *, widen: int = 1) -> Graph:
    """The graph. weights: None takes the trained ones or, without their file, draws weights from the seed.

    widen: multiplies the channels of every hidden layer; the trained weights are for 1.
    """
    if weights is None and widen == 1 and DATA.is_file():
        weights = load_weights(DATA)
    w = WeightSource("small_cnn", weights, seed)
    x = input((batch, CHANNELS[0], 8, 8), name="x")
    y: GraphNode = x
    for n, channels in enumerate(CHANNELS[1:], start=1):
        y = ops.relu(conv_norm(y, w, f"conv{n}", f"bn{n}", widen * channels, 3))
        y = ops.max_pool2d(y, kernel=2) if n in POOLED else y
    return w.graph((x,), (linear(ops.flatten(y), w, "fc", CLASSES),), ("logits",))


def split(count: int = 1797) -> tuple[Array, Array]:
    """Indices of the digits for training and of those for testing: the last 360 after a seeded shuffle."""
    order = np.random.default_rng(SPLIT_SEED).permutation(count)
    return order[:-TEST_DIGITS], order[-TEST_DIGITS:]


def inputs(rng: np.random.Generator, batch: int = 1) -> dict[str, Array]:
    """A batch of numbers in [0, 1), like pixels."""
    return {"x": rng.random((batch, CHANNELS[0], 8, 8), dtype=np.float32)}
