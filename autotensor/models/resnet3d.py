"""3D-ResNet-18 (Tran et al., 2018) for clips of video, with the names of torchvision's r3d_18.

    x: float32[batch, 3, 16, 112, 112] ──▶ logits: float32[batch, 400]     frames, height, width

This is a ResNet-18 with 3x3x3 kernels. There is no pool after the first convolution, which keeps all frames.
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import batch_norm, linear
from autotensor.models.weights import Array, Weights, WeightSource

WIDTHS, BLOCKS = (64, 128, 256, 512), 2
FRAMES, IMAGE, CLASSES = 16, 112, 400

Triple = tuple[int, int, int]


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    frames: int = FRAMES,
    image: int = IMAGE,
    classes: int = CLASSES,
) -> Graph:
    """The graph. weights: `stem.0.weight`, …, `fc.bias`; if None, they are drawn from the seed."""
    w = WeightSource("r3d_18", weights, seed)
    x = input((batch, 3, frames, image, image), name="x")
    y: GraphNode = ops.relu(_conv(x, w, "stem", WIDTHS[0], (3, 7, 7), (1, 2, 2)))
    for stage, width in enumerate(WIDTHS, start=1):
        for n in range(BLOCKS):
            at, stride = f"layer{stage}.{n}", 2 if stage > 1 and n == 0 else 1
            z = _conv(y, w, f"{at}.conv1", width, stride=stride)
            z = _conv(ops.relu(z), w, f"{at}.conv2", width)
            if y.shape != z.shape:
                y = _conv(y, w, f"{at}.downsample", width, (1, 1, 1), stride)
            y = ops.relu(z + y)
    return w.graph((x,), (linear(ops.mean(y, axis=(2, 3, 4)), w, "fc", classes),), ("logits",))


def _conv(
    x: GraphNode,
    w: WeightSource,
    name: str,
    outputs: int,
    kernel: Triple = (3, 3, 3),
    stride: int | Triple = 1,
) -> GraphNode:
    """A convolution without bias, and the batch norm after it: `name.0` and `name.1` in torchvision."""
    weight = w(f"{name}.0.weight", outputs, x.shape[1], *kernel)
    y = ops.conv3d(x, weight, stride=stride, padding=tuple(k // 2 for k in kernel))
    return batch_norm(y, w, f"{name}.1")


def inputs(
    rng: np.random.Generator, batch: int = 1, frames: int = FRAMES, image: int = IMAGE
) -> dict[str, Array]:
    """A batch of clips of normalised noise."""
    return {"x": rng.standard_normal((batch, 3, frames, image, image), dtype=np.float32)}
