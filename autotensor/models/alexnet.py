"""AlexNet (Krizhevsky, 2014: "One weird trick") for ImageNet, with torchvision's names; no response norms.

    x: float32[batch, 3, 224, 224] ──▶ conv 11x11/4 ─▶ 5x5 ─▶ 3x3 ×3, three pools ──▶ dense ×3 ──▶ logits

torchvision's average pool in front of the dense layers is left out: here it is from 6x6 to 6x6.
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.ir import Graph
from autotensor.models.plain import Conv, Plain
from autotensor.models.weights import Array, Weights

POOL = (3, 2)
NET = Plain(
    "alexnet",
    (
        Conv("features.0", 64, 11, stride=4, padding=2, pool=POOL),
        Conv("features.3", 192, 5, padding=2, pool=POOL),
        Conv("features.6", 384, 3, padding=1),
        Conv("features.8", 256, 3, padding=1),
        Conv("features.10", 256, 3, padding=1, pool=POOL),
    ),
    ("classifier.1", "classifier.4", "classifier.6"),
    (4096, 4096),
)


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    image: int = 224,
    divisor: int = 1,
    classes: int = 1000,
) -> Graph:
    """The graph. weights: `features.0.weight`, …, `classifier.6.bias`; None draws them from the seed.

    image: height and width; the dense layers follow it. divisor: of all widths.
    """
    return NET.build(batch, weights, seed, image, divisor, classes)


def shapes(image: int = 224, divisor: int = 1, classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name, in torchvision's order."""
    return NET.shapes(image, divisor, classes)


def inputs(rng: np.random.Generator, batch: int = 1, image: int = 224) -> dict[str, Array]:
    """A batch of normalised noise."""
    return {"x": rng.standard_normal((batch, 3, image, image), dtype=np.float32)}
