"""VGG-16 and VGG-19 (Simonyan and Zisserman, 2014) for ImageNet, with torchvision's names; no batch norm.

    x: float32[batch, 3, 224, 224] ──▶ 13 or 16 convolutions, five pools ──▶ dense ×3 ──▶ logits [batch, 1000]

torchvision's average pool in front of the dense layers is left out: here it is from 7x7 to 7x7.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.errors import InputError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import images, weighted, weighted_shapes
from autotensor.models.weights import Weights, checked

POOL = 0
WIDTHS = (64, 128, 256, 512, 512)  # of the five stages; a pool ends each
STAGES = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # convolutions, by depth
SHRINK = 32  # five pools


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    image: int = 224,
    hidden: int = 4096,
    classes: int = 1000,
    depth: int = 16,
) -> Graph:
    """The graph. weights: `features.0.weight`, …, `classifier.6.bias`; None draws them from the seed.

    image: height and width, a multiple of 32; another one than 224 has another first dense layer.
    """
    name = f"vgg{depth}"
    if depth not in STAGES:
        raise InputError(f"there is no {name}.", fix=f"Known: {', '.join(f'vgg{d}' for d in STAGES)}.")
    if image % SHRINK:
        raise InputError(f"{name}: image={image} must be a multiple of {SHRINK}.")
    w = checked(name, weights, shapes(image, hidden, classes, depth), seed)

    x = input((batch, 3, image, image), name="x")
    y: GraphNode = x
    for place, channels in _features(depth):
        y = ops.max_pool2d(y, kernel=2) if channels == POOL else _conv(y, *weighted(w, f"features.{place}"))
    y = ops.flatten(y)
    y = ops.relu(ops.dense(y, *weighted(w, "classifier.0")))
    y = ops.relu(ops.dense(y, *weighted(w, "classifier.3")))
    return Graph((x,), (ops.dense(y, *weighted(w, "classifier.6")),), name, ("logits",))


def _conv(x: GraphNode, weight: GraphNode, bias: GraphNode) -> GraphNode:
    result: GraphNode = ops.relu(ops.conv2d(x, weight, bias, padding=1))
    return result


def _features(depth: int) -> Iterator[tuple[int, int]]:
    """(place in torchvision's `features`, channels): a convolution takes two places, itself and its ReLU."""
    place = 0
    for width, count in zip(WIDTHS, STAGES[depth], strict=True):
        for _ in range(count):
            yield place, width
            place += 2
        yield place, POOL
        place += 1


def shapes(
    image: int = 224, hidden: int = 4096, classes: int = 1000, depth: int = 16
) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name, in torchvision's order."""
    found: dict[str, tuple[int, ...]] = {}
    inputs = 3
    for place, channels in _features(depth):
        if channels != POOL:
            found |= weighted_shapes(f"features.{place}", channels, inputs, 3, 3)
            inputs = channels
    widths = (inputs * (image // SHRINK) ** 2, hidden, hidden, classes)
    for n, place in enumerate((0, 3, 6)):
        found |= weighted_shapes(f"classifier.{place}", widths[n + 1], widths[n])
    return found


inputs = images
