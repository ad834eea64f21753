"""MobileNetV1 (Howard et al., 2017) for ImageNet; layers are named `features.N.depthwise` and `.pointwise`.

x: float32[batch, 3, 224, 224] ──▶ conv 3x3/2 ──▶ 13 × (depthwise 3x3 ─▶ 1x1) ──▶ mean ──▶ logits

A batch norm and a ReLU follow each convolution.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import batch_norm, classified, images, named, norm_shapes, weighted_shapes
from autotensor.models.weights import Naming, Weights, checked

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
    """The graph. weights: `features.0.conv.weight`, …, `fc.bias`; None draws them from the seed.

    divisor: of all channels, for small networks of the same form.
    """
    w = checked("mobilenet_v1", weights, shapes(divisor, classes), seed, NAMES)

    def step(x: GraphNode, name: str, **how: int) -> GraphNode:
        y = ops.conv2d(x, named(w, f"{name}.weight"), **how)
        result: GraphNode = ops.relu(batch_norm(y, w, f"{name}_norm"))
        return result

    x = input((batch, 3, image, image), name="x")
    y = step(x, "features.0.conv", stride=2, padding=1)
    for at, channels, _, stride in _blocks(divisor):
        y = step(y, f"{at}.depthwise", stride=stride, padding=1, groups=channels)
        y = step(y, f"{at}.pointwise")
    logits = classified(y, w, "fc")
    return Graph((x,), (logits,), "mobilenet_v1", ("logits",))


def _blocks(divisor: int) -> Iterator[tuple[str, int, int, int]]:
    """Name, channels before and after, stride."""
    channels = FIRST // divisor
    for n, (wide, stride) in enumerate(BLOCKS, start=1):
        yield f"features.{n}", channels, wide // divisor, stride
        channels = wide // divisor


def shapes(divisor: int = 1, classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name."""
    found: dict[str, tuple[int, ...]] = {}

    def conv(name: str, *shape: int) -> None:
        found[f"{name}.weight"] = shape
        found.update(norm_shapes(f"{name}_norm", shape[0]))

    conv("features.0.conv", FIRST // divisor, 3, 3, 3)
    outputs = 0
    for at, channels, outputs, _ in _blocks(divisor):
        conv(f"{at}.depthwise", channels, 1, 3, 3)
        conv(f"{at}.pointwise", outputs, channels, 1, 1)
    return found | weighted_shapes("fc", classes, outputs)


inputs = images
