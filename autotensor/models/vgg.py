"""VGG-16 and VGG-19 (Simonyan and Zisserman, 2014) for ImageNet, with torchvision's names; no batch norm.

    x: float32[batch, 3, 224, 224] ──▶ 13 or 16 convolutions, five pools ──▶ dense ×3 ──▶ logits [batch, 1000]

torchvision's average pool before the dense layers is left out, because it would turn 7x7 into 7x7.
"""

from __future__ import annotations

from autotensor.base.errors import InputError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import images, linear, weighted
from autotensor.models.weights import Weights, WeightSource

WIDTHS = (64, 128, 256, 512, 512)  # widths of the five stages; a pool ends each stage
STAGES = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # depth → number of convolutions in each stage
SHRINK = 32  # factor by which five pools shrink an image


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
    """The graph. weights: `features.0.weight`, …, `classifier.6.bias`; if None, they are drawn from the seed.

    image: height and width, a multiple of 32; with another size than 224, the first dense layer is different.
    """
    name = f"vgg{depth}"
    if depth not in STAGES:
        raise InputError(f"there is no {name}.", fix=f"Known: {', '.join(f'vgg{d}' for d in STAGES)}.")
    if image % SHRINK:
        raise InputError(f"{name}: image={image} must be a multiple of {SHRINK}.")
    w = WeightSource(name, weights, seed)
    x = input((batch, 3, image, image), name="x")
    y: GraphNode = x
    # position in torchvision's `features`, where a convolution takes two places: itself and its ReLU
    place = 0
    for width, count in zip(WIDTHS, STAGES[depth], strict=True):
        for _ in range(count):
            kernel = weighted(w, f"features.{place}", width, y.shape[1], 3, 3)
            y = ops.relu(ops.conv2d(y, *kernel, padding=1))
            place += 2
        y = ops.max_pool2d(y, kernel=2)
        place += 1
    y = ops.flatten(y)
    for place in (0, 3):
        y = ops.relu(linear(y, w, f"classifier.{place}", hidden))
    return w.graph((x,), (linear(y, w, "classifier.6", classes),), ("logits",))


inputs = images
