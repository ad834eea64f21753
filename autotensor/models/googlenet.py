"""GoogLeNet (Szegedy et al., 2014) for ImageNet, with torchvision's names: batch norms, no auxiliary heads.

    x: float32[batch, 3, 224, 224] ──▶ conv 7x7/2 ─▶ 1x1 ─▶ 3x3 ──▶ nine inceptions ──▶ mean ──▶ logits

    inception:  1x1 │ 1x1 ─▶ 3x3 │ 1x1 ─▶ 3x3 │ pool 3x3 ─▶ 1x1      beside one another

The third branch has 3x3 kernels where the paper has 5x5: torchvision's weights are so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import batch_norm, classified, images, named, norm_shapes, weighted_shapes
from autotensor.models.weights import Naming, Weights, checked

# widths: 1x1; 1x1 and 3x3; 1x1 and 3x3; after the pool. A number: a max pool of that window
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
STEM = 192  # channels in front of the first inception
EPS = 1e-3
NAMES = Naming(unused=("aux1.", "aux2."))


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution without bias, its batch norm and ReLU."""

    name: str
    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1


STEMS = (Conv("conv1", 3, 64, 7, 2), Conv("conv2", 64, 64), Conv("conv3", 64, STEM, 3))


def build(
    batch: int = 1, weights: Weights | None = None, seed: int = 0, *, image: int = 224, classes: int = 1000
) -> Graph:
    """The graph. weights: `conv1.conv.weight`, …, `fc.bias`; None draws them from the seed."""
    w = checked("googlenet", weights, shapes(classes), seed, NAMES)
    x = input((batch, 3, image, image), name="x")
    y = _pool(_conv(x, STEMS[0], w), 3)
    y = _pool(_conv(_conv(y, STEMS[1], w), STEMS[2], w), 3)
    for name, widths in BLOCKS:
        y = _pool(y, widths) if isinstance(widths, int) else _inception(y, name, widths, w)
    logits = classified(y, w, "fc")
    return Graph((x,), (logits,), "googlenet", ("logits",))


def _inception(x: GraphNode, name: str, widths: tuple[int, ...], w: Weights) -> GraphNode:
    first, *second = branches(name, x.shape[1], widths)
    parts = [_conv(x, first[0], w)]
    for branch in second:
        y = x if len(branch) == 2 else ops.max_pool2d(x, kernel=3, stride=1, padding=1)
        for c in branch:
            y = _conv(y, c, w)
        parts.append(y)
    result: GraphNode = ops.concat(*parts, axis=1)
    return result


def branches(name: str, inputs: int, widths: tuple[int, ...]) -> tuple[tuple[Conv, ...], ...]:
    """The convolutions of an inception's four branches."""
    one, before3, three, before5, five, pooled = widths
    return (
        (Conv(f"{name}.branch1", inputs, one),),
        (Conv(f"{name}.branch2.0", inputs, before3), Conv(f"{name}.branch2.1", before3, three, 3)),
        (Conv(f"{name}.branch3.0", inputs, before5), Conv(f"{name}.branch3.1", before5, five, 3)),
        (Conv(f"{name}.branch4.1", inputs, pooled),),
    )


def _conv(x: GraphNode, c: Conv, w: Weights) -> GraphNode:
    y = ops.conv2d(x, named(w, f"{c.name}.conv.weight"), stride=c.stride, padding=c.kernel // 2)
    result: GraphNode = ops.relu(batch_norm(y, w, f"{c.name}.bn", EPS))
    return result


def _pool(x: GraphNode, window: int) -> GraphNode:
    result: GraphNode = ops.max_pool2d(x, kernel=window, stride=2, ceil_mode=True)
    return result


def _convs() -> Iterator[Conv]:
    yield from STEMS
    inputs = STEM
    for name, widths in BLOCKS:
        if not isinstance(widths, int):
            for branch in branches(name, inputs, widths):
                yield from branch
            inputs = widths[0] + widths[2] + widths[4] + widths[5]


def shapes(classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name, in torchvision's order."""
    found: dict[str, tuple[int, ...]] = {}
    for c in _convs():
        found[f"{c.name}.conv.weight"] = (c.outputs, c.inputs, c.kernel, c.kernel)
        found |= norm_shapes(f"{c.name}.bn", c.outputs)
    widths = BLOCKS[-1][1]
    assert not isinstance(widths, int)
    last = widths[0] + widths[2] + widths[4] + widths[5]
    return found | weighted_shapes("fc", classes, last)


inputs = images
