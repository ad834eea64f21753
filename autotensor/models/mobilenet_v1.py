"""MobileNetV1 (Howard et al., 2017) for ImageNet; layers are named `features.N.depthwise` and `.pointwise`.

x: float32[batch, 3, 224, 224] ──▶ conv 3x3/2 ──▶ 13 × (depthwise 3x3 ─▶ 1x1) ──▶ mean ──▶ logits

A batch norm and a ReLU follow each convolution.
"""

from __future__ import annotations

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import classified, conv_norm, images
from autotensor.models.weights import Naming, Weights, WeightSource

FIRST = 32
# channels, stride of the depthwise convolution
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
NAMES = Naming("this model's own")


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    image: int = 224,
    divisor: int = 1,
    classes: int = 1000,
) -> Graph:
    """The graph. weights: `features.0.conv.weight`, …, `fc.bias`; if None, they are drawn from the seed.

    divisor: divides all numbers of channels, for small networks of the same form.
    """
    w = WeightSource("mobilenet_v1", weights, seed, NAMES)

    def step(x: GraphNode, name: str, outputs: int, kernel: int = 1, **how: int) -> GraphNode:
        return ops.relu(conv_norm(x, w, name, f"{name}_norm", outputs, kernel, **how))

    x = input((batch, 3, image, image), name="x")
    y = step(x, "features.0.conv", FIRST // divisor, 3, stride=2)
    for n, (wide, stride) in enumerate(BLOCKS, start=1):
        channels = y.shape[1]
        y = step(y, f"features.{n}.depthwise", channels, 3, stride=stride, groups=channels)
        y = step(y, f"features.{n}.pointwise", wide // divisor)
    return w.graph((x,), (classified(y, w, "fc", classes),), ("logits",))


inputs = images
