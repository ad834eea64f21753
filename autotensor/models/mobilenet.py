"""MobileNetV2 (Sandler et al., 2018) for ImageNet, with torchvision's names.

    x: float32[batch, 3, 224, 224] ──▶ conv 3x3/2 ──▶ 17 inverted residuals ──▶ conv 1x1 ──▶ mean ──▶ logits

An inverted residual: widen by 1x1 (relu6), depthwise 3x3 (relu6), narrow by 1x1, and the shortcut if it fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import batch_norm, classified, images, named, norm_shapes, weighted_shapes
from autotensor.models.weights import Weights, checked

# expansion, channels, blocks, stride of the first of them
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
FIRST, LAST = 32, 1280  # channels of the first and of the last convolution


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution without bias, the batch norm after it, and whether relu6 follows."""

    name: str
    norm: str
    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    relu6: bool = True


@dataclass(frozen=True, slots=True)
class Block:
    """Convolutions in a row, and whether their input is added to what they give."""

    convs: tuple[Conv, ...]
    shortcut: bool = False


def build(
    batch: int = 1, weights: Weights | None = None, seed: int = 0, *, image: int = 224, classes: int = 1000
) -> Graph:
    """The graph. weights: `features.0.0.weight`, …, `classifier.1.bias`; None draws them from the seed."""
    w = checked("mobilenet_v2", weights, shapes(classes), seed)
    x = input((batch, 3, image, image), name="x")
    y: GraphNode = x
    for block in blocks():
        z = y
        for c in block.convs:
            z = _conv(z, c, w)
        y = y + z if block.shortcut else z
    logits = classified(y, w, "classifier.1")
    return Graph((x,), (logits,), "mobilenet_v2", ("logits",))


def blocks() -> Iterator[Block]:
    """All of torchvision's `features`."""
    yield Block((Conv("features.0.0", "features.0.1", 3, FIRST, 3, 2),))
    inputs, place = FIRST, 1
    for expansion, outputs, count, first in STAGES:
        for n in range(count):
            yield _inverted(f"features.{place}.conv", inputs, outputs, first if n == 0 else 1, expansion)
            inputs, place = outputs, place + 1
    yield Block((Conv(f"features.{place}.0", f"features.{place}.1", inputs, LAST),))


def _inverted(at: str, inputs: int, outputs: int, stride: int, expansion: int) -> Block:
    wide = inputs * expansion
    convs = [Conv(f"{at}.0.0", f"{at}.0.1", inputs, wide)] if expansion != 1 else []
    k = len(convs)
    convs.append(Conv(f"{at}.{k}.0", f"{at}.{k}.1", wide, wide, 3, stride, groups=wide))
    convs.append(Conv(f"{at}.{k + 1}", f"{at}.{k + 2}", wide, outputs, relu6=False))
    return Block(tuple(convs), shortcut=stride == 1 and inputs == outputs)


def _conv(x: GraphNode, c: Conv, w: Weights) -> GraphNode:
    kernel = named(w, f"{c.name}.weight")
    y = ops.conv2d(x, kernel, stride=c.stride, padding=c.kernel // 2, groups=c.groups)
    y = batch_norm(y, w, c.norm)
    result: GraphNode = ops.relu6(y) if c.relu6 else y
    return result


def shapes(classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name, in torchvision's order."""
    found: dict[str, tuple[int, ...]] = {}
    for block in blocks():
        for c in block.convs:
            found[f"{c.name}.weight"] = (c.outputs, c.inputs // c.groups, c.kernel, c.kernel)
            found |= norm_shapes(c.norm, c.outputs)
    return found | weighted_shapes("classifier.1", classes, LAST)


inputs = images
