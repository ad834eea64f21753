"""What AlexNet and OverFeat share: convolutions in a row, then dense layers, from a table.

image ──▶ (conv ─▶ relu ─▶ pool or not) … ──▶ flatten ──▶ dense ─▶ relu … ──▶ logits
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import Shapes, images, weighted, weighted_shapes
from autotensor.models.weights import Array, Weights, checked


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution with bias and ReLU, and the max pool after it."""

    name: str
    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0
    pool: tuple[int, int] | None = None  # window and stride


@dataclass(frozen=True, slots=True)
class Plain:
    """A network: its convolutions, the names of its dense layers, their widths without the classes, and
    height and width of the images that it is made for. Other images make another first dense layer."""

    name: str
    convs: tuple[Conv, ...]
    dense: tuple[str, ...]
    widths: tuple[int, ...]
    image: int = 224

    def build(
        self,
        batch: int = 1,
        weights: Weights | None = None,
        seed: int = 0,
        *,
        image: int | None = None,
        divisor: int = 1,
        classes: int = 1000,
    ) -> Graph:
        """The graph. weights: `features.0.weight`, …; None draws them from the seed.

        image: height and width. divisor: of all widths, for small networks of the same form.
        """
        image = image or self.image
        w = checked(self.name, weights, self.shapes(image, divisor, classes), seed)
        x = input((batch, 3, image, image), name="x")
        y: GraphNode = x
        for c in self.convs:
            y = ops.relu(ops.conv2d(y, *weighted(w, c.name), stride=c.stride, padding=c.padding))
            y = y if c.pool is None else ops.max_pool2d(y, kernel=c.pool[0], stride=c.pool[1])
        y = ops.flatten(y)
        for name in self.dense[:-1]:
            y = ops.relu(ops.dense(y, *weighted(w, name)))
        return Graph((x,), (ops.dense(y, *weighted(w, self.dense[-1])),), self.name, ("logits",))

    def shapes(self, image: int | None = None, divisor: int = 1, classes: int = 1000) -> Shapes:
        """Every weight's shape, by name. Raises InputError for images that the convolutions use up."""
        found: Shapes = {}
        channels = 3
        for c in self.convs:
            outputs = c.outputs // divisor
            found |= weighted_shapes(c.name, outputs, channels, c.kernel, c.kernel)
            channels = outputs
        side = self.side(image or self.image)
        widths = (channels * side * side, *(n // divisor for n in self.widths), classes)
        for name, (depth, width) in zip(self.dense, pairwise(widths), strict=True):
            found |= weighted_shapes(name, width, depth)
        return found

    def inputs(self, rng: np.random.Generator, batch: int = 1, image: int | None = None) -> dict[str, Array]:
        """A batch of normalised noise."""
        return images(rng, batch, image or self.image)

    def side(self, image: int) -> int:
        """Pixels across the picture that the dense layers see."""
        n = image
        for c in self.convs:
            n = (n + 2 * c.padding - c.kernel) // c.stride + 1
            n = n if c.pool is None else (n - c.pool[0]) // c.pool[1] + 1
            if n < 1:
                raise InputError(
                    f"{self.name}: image={image} is too small; nothing is left of it at {c.name}."
                )
        return n
