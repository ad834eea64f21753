"""ResNet-18 to 152 (He et al., 2015) for ImageNet, with torchvision's names and its stride placement.

    x: float32[batch, 3, 224, 224] ──▶ logits: float32[batch, 1000]

"v1.5": in a bottleneck the 3x3 convolution has the stride, not the first 1x1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotensor.base.errors import InputError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import batch_norm, classified, images, named, norm_shapes, weighted_shapes
from autotensor.models.weights import Weights, checked

STAGES = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
WIDTHS = (64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Block:
    """One residual block: its convolutions in order, and the projection of its shortcut."""

    name: str
    convs: tuple[Conv, ...]
    shortcut: Conv | None


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution without bias, and the batch norm after it."""

    name: str
    norm: str
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1


def build(
    depth: int = 50,
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    image: int = 224,
    classes: int = 1000,
) -> Graph:
    """The model's graph. weights: by torchvision's names; None draws them from the seed.

    Raises InputError for an unknown depth, or weights that are missing, misshaped or of another model.
    """
    if depth not in STAGES:
        raise InputError(
            f"there is no resnet{depth}.", fix=f"Known: {', '.join(f'resnet{d}' for d in STAGES)}."
        )
    name = f"resnet{depth}"
    w = checked(name, weights, shapes(depth, classes), seed)
    x = input((batch, 3, image, image), name="x")
    y = ops.max_pool2d(ops.relu(_conv(x, STEM, w)), kernel=3, stride=2, padding=1)
    for block in blocks(depth):
        y = _block(y, block, w)
    logits = classified(y, w, "fc")
    return Graph((x,), (logits,), name, ("logits",))


STEM = Conv("conv1", "bn1", 3, 64, 7, 2)


def blocks(depth: int) -> Iterator[Block]:
    """The residual blocks of all four stages."""
    inputs = 64
    for stage, (count, width) in enumerate(zip(STAGES[depth], WIDTHS, strict=True), start=1):
        for n in range(count):
            at = f"layer{stage}.{n}"
            stride = 2 if stage > 1 and n == 0 else 1
            outputs = width * 4 if depth >= 50 else width
            convs = (
                _bottleneck(at, inputs, width, stride) if depth >= 50 else _basic(at, inputs, width, stride)
            )
            project = stride != 1 or inputs != outputs
            down = (
                Conv(f"{at}.downsample.0", f"{at}.downsample.1", inputs, outputs, 1, stride)
                if project
                else None
            )
            yield Block(at, convs, down)
            inputs = outputs


def _basic(at: str, inputs: int, width: int, stride: int) -> tuple[Conv, ...]:
    return (
        Conv(f"{at}.conv1", f"{at}.bn1", inputs, width, 3, stride),
        Conv(f"{at}.conv2", f"{at}.bn2", width, width, 3),
    )


def _bottleneck(at: str, inputs: int, width: int, stride: int) -> tuple[Conv, ...]:
    return (
        Conv(f"{at}.conv1", f"{at}.bn1", inputs, width, 1),
        Conv(f"{at}.conv2", f"{at}.bn2", width, width, 3, stride),
        Conv(f"{at}.conv3", f"{at}.bn3", width, width * 4, 1),
    )


def blocks_width(depth: int) -> int:
    return WIDTHS[-1] * (4 if depth >= 50 else 1)


def shapes(depth: int, classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name, in torchvision's order."""
    found: dict[str, tuple[int, ...]] = {}
    convs = [STEM]
    for block in blocks(depth):
        convs += [*block.convs, *([block.shortcut] if block.shortcut else [])]
    for c in convs:
        found[f"{c.name}.weight"] = (c.outputs, c.inputs, c.kernel, c.kernel)
        found |= norm_shapes(c.norm, c.outputs)
    return found | weighted_shapes("fc", classes, blocks_width(depth))


def _block(x: GraphNode, block: Block, w: Weights) -> GraphNode:
    y = _conv(x, block.convs[0], w)
    for conv in block.convs[1:]:
        y = _conv(ops.relu(y), conv, w)
    shortcut = x if block.shortcut is None else _conv(x, block.shortcut, w)
    result: GraphNode = ops.relu(y + shortcut)
    return result


def _conv(x: GraphNode, c: Conv, w: Weights) -> GraphNode:
    y = ops.conv2d(x, named(w, f"{c.name}.weight"), stride=c.stride, padding=c.kernel // 2)
    return batch_norm(y, w, c.norm)


inputs = images
