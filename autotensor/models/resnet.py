"""ResNet-18 to 152 (He et al., 2015) for ImageNet, with torchvision's names and its placement of strides.

    x: float32[batch, 3, 224, 224] ──▶ logits: float32[batch, 1000]

"v1.5": in a bottleneck the 3x3 convolution has the stride, not the first 1x1.
"""

from __future__ import annotations

from autotensor.base.errors import InputError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import classified, conv_norm, images
from autotensor.models.weights import Weights, WeightSource

STAGES = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
WIDTHS = (64, 128, 256, 512)


def build(
    depth: int = 50,
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    image: int = 224,
    classes: int = 1000,
) -> Graph:
    """The model's graph. weights: by torchvision's names; if None, they are drawn from the seed.

    Raises InputError for an unknown depth, or for weights that are missing, misshaped or of another model.
    """
    if depth not in STAGES:
        raise InputError(
            f"there is no resnet{depth}.", fix=f"Known: {', '.join(f'resnet{d}' for d in STAGES)}."
        )
    name = f"resnet{depth}"
    w = WeightSource(name, weights, seed)
    x = input((batch, 3, image, image), name="x")
    y = ops.relu(conv_norm(x, w, "conv1", "bn1", 64, 7, stride=2))
    y = ops.max_pool2d(y, kernel=3, stride=2, padding=1)
    block = _bottleneck if depth >= 50 else _basic
    for stage, (count, width) in enumerate(zip(STAGES[depth], WIDTHS, strict=True), start=1):
        for n in range(count):
            y = block(y, w, f"layer{stage}.{n}", width, stride=2 if stage > 1 and n == 0 else 1)
    return w.graph((x,), (classified(y, w, "fc", classes),), ("logits",))


def _basic(x: GraphNode, w: WeightSource, at: str, width: int, stride: int) -> GraphNode:
    y = conv_norm(x, w, f"{at}.conv1", f"{at}.bn1", width, 3, stride=stride)
    return _joined(x, conv_norm(ops.relu(y), w, f"{at}.conv2", f"{at}.bn2", width, 3), w, at, stride)


def _bottleneck(x: GraphNode, w: WeightSource, at: str, width: int, stride: int) -> GraphNode:
    y = conv_norm(x, w, f"{at}.conv1", f"{at}.bn1", width)
    y = conv_norm(ops.relu(y), w, f"{at}.conv2", f"{at}.bn2", width, 3, stride=stride)
    return _joined(x, conv_norm(ops.relu(y), w, f"{at}.conv3", f"{at}.bn3", width * 4), w, at, stride)


def _joined(x: GraphNode, y: GraphNode, w: WeightSource, at: str, stride: int) -> GraphNode:
    """The sum of a block's result and its shortcut, which is projected if their sizes differ."""
    if x.shape != y.shape:
        x = conv_norm(x, w, f"{at}.downsample.0", f"{at}.downsample.1", y.shape[1], stride=stride)
    return ops.relu(y + x)


inputs = images
