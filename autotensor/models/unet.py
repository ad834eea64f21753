"""U-Net (Ronneberger et al., 2015) for segmentation, with the names of milesial's Pytorch-UNet.

    x: float32[batch, 3, 256, 256] ──▶ 64 ─▶ 128 ─▶ 256 ─▶ 512 ─▶ 1024 channels, half the picture each time
                                        │      │      │      │      │
       mask logits [batch, 2, 256, 256] ◀ 64 ◀ 128 ◀─ 256 ◀─ 512 ◀──┘      transposed convolutions, and what
                                                                           stood there on the way down
Two convolutions 3x3 with batch norm and ReLU at each level; padded, so that nothing is cropped.
"""

from __future__ import annotations

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import batch_norm, named, norm_shapes, weighted, weighted_shapes
from autotensor.models.weights import Array, Naming, Weights, checked

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
    """The graph. weights: `inc.double_conv.0.weight`, …, `outc.conv.bias`; None draws them from the seed.

    image: height and width, a multiple of 16. width: channels of the first level.
    """
    if image % 2**LEVELS:
        raise InputError(f"unet: image={image} must be a multiple of {2**LEVELS}.")
    w = checked("unet", weights, shapes(width, classes), seed, NAMES)
    x = input((batch, COLOURS, image, image), name="x")
    y = _twice(x, "inc", w)
    seen: list[GraphNode] = []
    for n in range(1, LEVELS + 1):
        seen.append(y)
        y = _twice(ops.max_pool2d(y, kernel=2), f"down{n}.maxpool_conv.1", w)
    for n in range(1, LEVELS + 1):
        up = ops.conv2d_transpose(y, *weighted(w, f"up{n}.up"), stride=2)
        y = _twice(ops.concat(seen.pop(), up, axis=1), f"up{n}.conv", w)
    masks = ops.conv2d(y, *weighted(w, "outc.conv"))
    return Graph((x,), (masks,), "unet", ("masks",))


def _twice(x: GraphNode, name: str, w: Weights) -> GraphNode:
    y = x
    for place in (0, 3):
        y = ops.conv2d(y, named(w, f"{name}.double_conv.{place}.weight"), padding=1)
        y = ops.relu(batch_norm(y, w, f"{name}.double_conv.{place + 1}"))
    return y


def shapes(width: int = WIDTH, classes: int = CLASSES) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name, in Pytorch-UNet's order."""
    found: dict[str, tuple[int, ...]] = {}

    def twice(name: str, inputs: int, outputs: int) -> None:
        for place, depth in ((0, inputs), (3, outputs)):
            found[f"{name}.double_conv.{place}.weight"] = (outputs, depth, 3, 3)
            found.update(norm_shapes(f"{name}.double_conv.{place + 1}", outputs))

    twice("inc", COLOURS, width)
    for n in range(1, LEVELS + 1):
        twice(f"down{n}.maxpool_conv.1", width * 2 ** (n - 1), width * 2**n)
    for n in range(1, LEVELS + 1):
        wide = width * 2 ** (LEVELS + 1 - n)
        found[f"up{n}.up.weight"], found[f"up{n}.up.bias"] = (wide, wide // 2, 2, 2), (wide // 2,)
        twice(f"up{n}.conv", wide, wide // 2)
    return found | weighted_shapes("outc.conv", classes, width, 1, 1)


def inputs(rng: np.random.Generator, batch: int = 1, image: int = 256) -> dict[str, Array]:
    """A batch of pictures with values in [0, 1)."""
    return {"x": rng.random((batch, COLOURS, image, image), dtype=np.float32)}
