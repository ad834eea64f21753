"""VGG-16 (Simonyan and Zisserman, 2014) for ImageNet, with torchvision's names; no batch norm.

    x: float32[batch, 3, 224, 224] ──▶ 13 convolutions 3x3, five pools ──▶ dense ×3 ──▶ logits [batch, 1000]

torchvision's average pool in front of the dense layers is left out: here it is from 7x7 to 7x7.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import constant, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.weights import Array, Weights, checked

POOL = 0
LAYERS = (64, 64, POOL, 128, 128, POOL, 256, 256, 256, POOL, 512, 512, 512, POOL, 512, 512, 512, POOL)
SHRINK = 32  # five pools


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    image: int = 224,
    hidden: int = 4096,
    classes: int = 1000,
) -> Graph:
    """The graph. weights: `features.0.weight`, …, `classifier.6.bias`; None draws them from the seed.

    image: height and width, a multiple of 32; another one than 224 has another first dense layer.
    """
    if image % SHRINK:
        raise InputError(f"vgg16: image={image} must be a multiple of {SHRINK}.")
    w = checked("vgg16", weights, shapes(image, hidden, classes), seed)

    def weighted(name: str) -> Iterator[GraphNode]:
        return (constant(w[n], n) for n in (f"{name}.weight", f"{name}.bias"))

    x = input((batch, 3, image, image), name="x")
    y: GraphNode = x
    for place, channels in _features():
        y = ops.max_pool2d(y, kernel=2) if channels == POOL else _conv(y, *weighted(f"features.{place}"))
    y = ops.flatten(y)
    y = ops.relu(ops.dense(y, *weighted("classifier.0")))
    y = ops.relu(ops.dense(y, *weighted("classifier.3")))
    return Graph((x,), (ops.dense(y, *weighted("classifier.6")),), "vgg16", ("logits",))


def _conv(x: GraphNode, weight: GraphNode, bias: GraphNode) -> GraphNode:
    result: GraphNode = ops.relu(ops.conv2d(x, weight, bias, padding=1))
    return result


def _features() -> Iterator[tuple[int, int]]:
    """(place in torchvision's `features`, channels): a convolution takes two places, itself and its ReLU."""
    place = 0
    for channels in LAYERS:
        yield place, channels
        place += 1 if channels == POOL else 2


def shapes(image: int = 224, hidden: int = 4096, classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name, in torchvision's order."""
    found: dict[str, tuple[int, ...]] = {}
    inputs = 3
    for place, channels in _features():
        if channels != POOL:
            found[f"features.{place}.weight"] = (channels, inputs, 3, 3)
            found[f"features.{place}.bias"] = (channels,)
            inputs = channels
    widths = (inputs * (image // SHRINK) ** 2, hidden, hidden, classes)
    for n, place in enumerate((0, 3, 6)):
        found[f"classifier.{place}.weight"] = (widths[n + 1], widths[n])
        found[f"classifier.{place}.bias"] = (widths[n + 1],)
    return found


def inputs(rng: np.random.Generator, batch: int = 1, image: int = 224) -> dict[str, Array]:
    """A batch of normalised noise."""
    return {"x": rng.standard_normal((batch, 3, image, image), dtype=np.float32)}
