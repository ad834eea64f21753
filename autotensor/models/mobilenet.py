"""MobileNetV2 (Sandler et al., 2018) for ImageNet, with torchvision's names.

    x: float32[batch, 3, 224, 224] ──▶ conv 3x3/2 ──▶ 17 inverted residuals ──▶ conv 1x1 ──▶ mean ──▶ logits

An inverted residual is a 1x1 that widens (relu6), a depthwise 3x3 (relu6) and a 1x1 that narrows. If the
shapes fit, its input is added.
"""

from __future__ import annotations

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import classified, conv_norm, images
from autotensor.models.weights import Weights, WeightSource

# expansion, channels, blocks, stride of the first block
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


def build(
    batch: int = 1, weights: Weights | None = None, seed: int = 0, *, image: int = 224, classes: int = 1000
) -> Graph:
    """The graph. weights: `features.0.0.weight`, …, `classifier.1.bias`; if None, drawn from the seed."""
    w = WeightSource("mobilenet_v2", weights, seed)
    x = input((batch, 3, image, image), name="x")
    y: GraphNode = ops.relu6(conv_norm(x, w, "features.0.0", "features.0.1", FIRST, 3, stride=2))
    place = 1
    for expansion, outputs, count, first in STAGES:
        for n in range(count):
            y = _inverted(y, w, f"features.{place}.conv", outputs, first if n == 0 else 1, expansion)
            place += 1
    y = ops.relu6(conv_norm(y, w, f"features.{place}.0", f"features.{place}.1", LAST))
    return w.graph((x,), (classified(y, w, "classifier.1", classes),), ("logits",))


def _inverted(x: GraphNode, w: WeightSource, at: str, outputs: int, stride: int, expansion: int) -> GraphNode:
    y, k = x, 0
    wide = x.shape[1] * expansion
    if expansion != 1:
        y, k = ops.relu6(conv_norm(y, w, f"{at}.0.0", f"{at}.0.1", wide)), 1
    y = ops.relu6(conv_norm(y, w, f"{at}.{k}.0", f"{at}.{k}.1", wide, 3, stride=stride, groups=wide))
    y = conv_norm(y, w, f"{at}.{k + 1}", f"{at}.{k + 2}", outputs)
    return x + y if x.shape == y.shape else y


inputs = images
