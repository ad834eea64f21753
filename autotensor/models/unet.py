"""U-Net (Ronneberger et al., 2015) for segmentation, with the names of milesial's Pytorch-UNet.

    x: float32[batch, 3, 256, 256] ──▶ 64 ─▶ 128 ─▶ 256 ─▶ 512 ─▶ 1024 channels, half the picture each time
                                        │      │      │      │      │
       mask logits [batch, 2, 256, 256] ◀ 64 ◀ 128 ◀─ 256 ◀─ 512 ◀──┘      transposed convolutions; each level
                                                                           also reads its value from above
Each level has two 3x3 convolutions with batch norm and ReLU; they are padded, so that nothing is cropped.
"""

from __future__ import annotations

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import conv_norm, weighted
from autotensor.models.weights import Array, Naming, Weights, WeightSource

LEVELS = 4  # halvings
WIDTH, COLOURS, CLASSES = 64, 3, 2
NAMES = Naming("those of Pytorch-UNet", unused=("mask_values",))


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    image: int = 256,
    width: int = WIDTH,
    classes: int = CLASSES,
) -> Graph:
    """The graph. weights: `inc.double_conv.0.weight`, …, `outc.conv.bias`; if None, drawn from the seed.

    image: height and width, a multiple of 16. width: channels of the first level.
    """
    if image % 2**LEVELS:
        raise InputError(f"unet: image={image} must be a multiple of {2**LEVELS}.")
    w = WeightSource("unet", weights, seed, NAMES)
    x = input((batch, COLOURS, image, image), name="x")
    y = _twice(x, w, "inc", width)
    seen: list[GraphNode] = []
    for n in range(1, LEVELS + 1):
        seen.append(y)
        y = _twice(ops.max_pool2d(y, kernel=2), w, f"down{n}.maxpool_conv.1", width * 2**n)
    for n in range(1, LEVELS + 1):
        wide = y.shape[1]
        kernel = w(f"up{n}.up.weight", wide, wide // 2, 2, 2), w(f"up{n}.up.bias", wide // 2)
        up = ops.conv2d_transpose(y, *kernel, stride=2)
        y = _twice(ops.concat(seen.pop(), up, axis=1), w, f"up{n}.conv", wide // 2)
    masks = ops.conv2d(y, *weighted(w, "outc.conv", classes, width, 1, 1))
    return w.graph((x,), (masks,), ("masks",))


def _twice(x: GraphNode, w: WeightSource, name: str, outputs: int) -> GraphNode:
    at = f"{name}.double_conv"
    for place in (0, 3):
        x = ops.relu(conv_norm(x, w, f"{at}.{place}", f"{at}.{place + 1}", outputs, 3))
    return x


def inputs(rng: np.random.Generator, batch: int = 1, image: int = 256) -> dict[str, Array]:
    """A batch of pictures with values in [0, 1)."""
    return {"x": rng.random((batch, COLOURS, image, image), dtype=np.float32)}
