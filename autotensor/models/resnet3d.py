"""3D-ResNet-18 (Tran et al., 2018) for clips of video, with the names of torchvision's r3d_18.

    x: float32[batch, 3, 16, 112, 112] ──▶ logits: float32[batch, 400]     frames, height, width

A ResNet-18 whose kernels are 3x3x3. No pool behind the first convolution, which keeps all frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import batch_norm, named, norm_shapes, weighted, weighted_shapes
from autotensor.models.weights import Array, Weights, checked

WIDTHS, BLOCKS = (64, 128, 256, 512), 2
FRAMES, IMAGE, CLASSES = 16, 112, 400

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution without bias, and the batch norm after it: `name.0` and `name.1` in torchvision."""

    name: str
    inputs: int
    outputs: int
    kernel: Triple = (3, 3, 3)
    stride: int | Triple = 1


@dataclass(frozen=True, slots=True)
class Block:
    """Two convolutions, and the projection of the shortcut if it needs one."""

    first: Conv
    second: Conv
    shortcut: Conv | None


STEM = Conv("stem", 3, WIDTHS[0], (3, 7, 7), (1, 2, 2))


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    frames: int = FRAMES,
    image: int = IMAGE,
    classes: int = CLASSES,
) -> Graph:
    """The graph. weights: `stem.0.weight`, …, `fc.bias`; None draws them from the seed."""
    w = checked("r3d_18", weights, shapes(classes), seed)
    x = input((batch, 3, frames, image, image), name="x")
    y: GraphNode = ops.relu(_conv(x, STEM, w))
    for block in blocks():
        z = _conv(ops.relu(_conv(y, block.first, w)), block.second, w)
        y = ops.relu(z + (y if block.shortcut is None else _conv(y, block.shortcut, w)))
    logits = ops.dense(ops.mean(y, axis=(2, 3, 4)), *weighted(w, "fc"))
    return Graph((x,), (logits,), "r3d_18", ("logits",))


def blocks() -> Iterator[Block]:
    """The residual blocks of all four stages."""
    inputs = WIDTHS[0]
    for stage, width in enumerate(WIDTHS, start=1):
        for n in range(BLOCKS):
            at, stride = f"layer{stage}.{n}", 2 if stage > 1 and n == 0 else 1
            project = stride != 1 or inputs != width
            shortcut = Conv(f"{at}.downsample", inputs, width, (1, 1, 1), stride) if project else None
            first = Conv(f"{at}.conv1", inputs, width, stride=stride)
            yield Block(first, Conv(f"{at}.conv2", width, width), shortcut)
            inputs = width


def _conv(x: GraphNode, c: Conv, w: Weights) -> GraphNode:
    y = ops.conv3d(
        x, named(w, f"{c.name}.0.weight"), stride=c.stride, padding=tuple(k // 2 for k in c.kernel)
    )
    return batch_norm(y, w, f"{c.name}.1")


def shapes(classes: int = CLASSES) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name, in torchvision's order."""
    found: dict[str, tuple[int, ...]] = {}
    convs = [STEM]
    for block in blocks():
        convs += [block.first, block.second, *([block.shortcut] if block.shortcut else [])]
    for c in convs:
        found[f"{c.name}.0.weight"] = (c.outputs, c.inputs, *c.kernel)
        found |= norm_shapes(f"{c.name}.1", c.outputs)
    return found | weighted_shapes("fc", classes, WIDTHS[-1])


def inputs(
    rng: np.random.Generator, batch: int = 1, frames: int = FRAMES, image: int = IMAGE
) -> dict[str, Array]:
    """A batch of clips of normalised noise."""
    return {"x": rng.standard_normal((batch, 3, frames, image, image), dtype=np.float32)}
