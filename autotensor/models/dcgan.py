"""The generator of DCGAN (Radford et al., 2015), with the names of PyTorch's dcgan (`main.0.weight`, …).

    z: float32[batch, 100] ──▶ 512x4x4 ──▶ 256x8x8 ──▶ 128x16x16 ──▶ 64x32x32 ──▶ image [batch, 3, 64, 64]

The layers are transposed convolutions, each followed by batch norm and ReLU; the last one is followed by a
tanh instead. The first one, over a single pixel, is a matrix product (graph/rules/single_pixel.py).
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import batch_norm
from autotensor.models.weights import Array, Naming, Weights, WeightSource

LATENT, COLOURS, KERNEL = 100, 3, 4
WIDTH = 64  # channels before the last layer
NAMES = Naming("those of PyTorch's dcgan example")


def build(
    batch: int = 1, weights: Weights | None = None, seed: int = 0, *, latent: int = LATENT, width: int = WIDTH
) -> Graph:
    """The graph. weights: `main.0.weight` [100, 512, 4, 4], …; if None, they are drawn from the seed."""
    w = WeightSource("dcgan", weights, seed, NAMES)
    z = input((batch, latent), name="z")
    y: GraphNode = ops.reshape(z, (batch, latent, 1, 1))
    for n, channels in enumerate((width * 8, width * 4, width * 2, width, COLOURS)):
        weight = w(f"main.{3 * n}.weight", y.shape[1], channels, KERNEL, KERNEL)
        stride, padding = (1, 0) if n == 0 else (2, 1)
        y = ops.conv2d_transpose(y, weight, stride=stride, padding=padding)
        y = ops.tanh(y) if channels == COLOURS else ops.relu(batch_norm(y, w, f"main.{3 * n + 1}"))
    return w.graph((z,), (y,), ("image",))


def inputs(rng: np.random.Generator, batch: int = 1, latent: int = LATENT) -> dict[str, Array]:
    """Points of the latent space, drawn from the standard normal distribution."""
    return {"z": rng.standard_normal((batch, latent), dtype=np.float32)}
