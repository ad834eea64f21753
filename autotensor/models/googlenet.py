"""GoogLeNet (Szegedy et al., 2014) for ImageNet, with torchvision's names: batch norms, no auxiliary heads.

    x: float32[batch, 3, 224, 224] ──▶ conv 7x7/2 ─▶ 1x1 ─▶ 3x3 ──▶ nine inceptions ──▶ mean ──▶ logits

    inception:  1x1 │ 1x1 ─▶ 3x3 │ 1x1 ─▶ 3x3 │ pool 3x3 ─▶ 1x1      side by side

The third branch has 3x3 kernels instead of the paper's 5x5, because torchvision's weights have 3x3.
"""

from __future__ import annotations

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import classified, conv_norm, images
from autotensor.models.weights import Naming, Weights, WeightSource

# widths: 1x1; 1x1 and 3x3; 1x1 and 3x3; after the pool. A single number is the window of a max pool.
BLOCKS: tuple[tuple[str, tuple[int, ...] | int], ...] = (
    ("inception3a", (64, 96, 128, 16, 32, 32)),
    ("inception3b", (128, 128, 192, 32, 96, 64)),
    ("", 3),
    ("inception4a", (192, 96, 208, 16, 48, 64)),
    ("inception4b", (160, 112, 224, 24, 64, 64)),
    ("inception4c", (128, 128, 256, 24, 64, 64)),
    ("inception4d", (112, 144, 288, 32, 64, 64)),
    ("inception4e", (256, 160, 320, 32, 128, 128)),
    ("", 2),
    ("inception5a", (256, 160, 320, 32, 128, 128)),
    ("inception5b", (384, 192, 384, 48, 128, 128)),
)
EPS = 1e-3
NAMES = Naming(unused=("aux1.", "aux2."))


def build(
    batch: int = 1, weights: Weights | None = None, seed: int = 0, *, image: int = 224, classes: int = 1000
) -> Graph:
    """The graph. weights: `conv1.conv.weight`, …, `fc.bias`; if None, they are drawn from the seed."""
    w = WeightSource("googlenet", weights, seed, NAMES)
    x = input((batch, 3, image, image), name="x")
    y = _pool(_conv(x, w, "conv1", 64, 7, stride=2), 3)
    y = _pool(_conv(_conv(y, w, "conv2", 64), w, "conv3", 192, 3), 3)
    for name, widths in BLOCKS:
        y = _pool(y, widths) if isinstance(widths, int) else _inception(y, w, name, widths)
    return w.graph((x,), (classified(y, w, "fc", classes),), ("logits",))


def _inception(x: GraphNode, w: WeightSource, name: str, widths: tuple[int, ...]) -> GraphNode:
    one, before3, three, before5, five, pooled = widths
    first = _conv(x, w, f"{name}.branch1", one)
    second = _conv(_conv(x, w, f"{name}.branch2.0", before3), w, f"{name}.branch2.1", three, 3)
    third = _conv(_conv(x, w, f"{name}.branch3.0", before5), w, f"{name}.branch3.1", five, 3)
    pool = ops.max_pool2d(x, kernel=3, stride=1, padding=1)
    fourth = _conv(pool, w, f"{name}.branch4.1", pooled)
    return ops.concat(first, second, third, fourth, axis=1)


def _conv(
    x: GraphNode, w: WeightSource, name: str, outputs: int, kernel: int = 1, stride: int = 1
) -> GraphNode:
    y = conv_norm(x, w, f"{name}.conv", f"{name}.bn", outputs, kernel, stride=stride, eps=EPS)
    return ops.relu(y)


def _pool(x: GraphNode, window: int) -> GraphNode:
    return ops.max_pool2d(x, kernel=window, stride=2, ceil_mode=True)


inputs = images
