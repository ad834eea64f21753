"""OverFeat (Sermanet et al., 2013), the fast model, for ImageNet; named as layers of two nn.Sequential.

x: float32[batch, 3, 231, 231] ──▶ conv 11x11/4 ─▶ 5x5 ─▶ 3x3 ×3, three pools ──▶ dense ×3 ──▶ logits
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.ir import Graph
from autotensor.models.plain import Conv, Plain
from autotensor.models.weights import Array, Weights

POOL = (2, 2)
NET = Plain(
    "overfeat",
    (
        Conv("features.0", 96, 11, stride=4, pool=POOL),
        Conv("features.3", 256, 5, pool=POOL),
        Conv("features.6", 512, 3, padding=1),
        Conv("features.8", 1024, 3, padding=1),
        Conv("features.10", 1024, 3, padding=1, pool=POOL),
    ),
    ("classifier.0", "classifier.2", "classifier.4"),
    (3072, 4096),
)


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    image: int = 231,
    divisor: int = 1,
    classes: int = 1000,
) -> Graph:
    """The graph. weights: `features.0.weight`, …, `classifier.4.bias`; None draws them from the seed.

    image: height and width; the dense layers follow it. divisor: of all widths.
    """
    return NET.build(batch, weights, seed, image, divisor, classes)


def shapes(image: int = 231, divisor: int = 1, classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name."""
    return NET.shapes(image, divisor, classes)


def inputs(rng: np.random.Generator, batch: int = 1, image: int = 231) -> dict[str, Array]:
    """A batch of normalised noise."""
    return {"x": rng.standard_normal((batch, 3, image, image), dtype=np.float32)}
