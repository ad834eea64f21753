"""The common part of AlexNet and OverFeat: convolutions in a row, then dense layers, from a table.

image ──▶ (conv ─▶ relu ─▶ pool or not) … ──▶ flatten ──▶ dense ─▶ relu … ──▶ logits
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import images, linear, weighted
from autotensor.models.weights import Array, Weights, WeightSource


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution with bias and ReLU, followed by a max pool or none."""

    name: str
    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0
    pool: tuple[int, int] | None = None  # window and stride


@dataclass(frozen=True, slots=True)
class Plain:
    """A network: its convolutions, the names and the widths of its dense layers, and its usual image size.

    The widths are without the last layer's, which is the number of classes. With images of another size, the
    first dense layer has another shape.
    """

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
        """The graph. weights: `features.0.weight`, …; if None, they are drawn from the seed.

        image: height and width. divisor: divides all widths, for small networks of the same form.
        Raises InputError for images that are too small for the convolutions.
        """
        image = image or self.image
        self._check(image)
        w = WeightSource(self.name, weights, seed)
        x = input((batch, 3, image, image), name="x")
        y: GraphNode = x
        for c in self.convs:
            kernel = weighted(w, c.name, c.outputs // divisor, y.shape[1], c.kernel, c.kernel)
            y = ops.relu(ops.conv2d(y, *kernel, stride=c.stride, padding=c.padding))
            y = y if c.pool is None else ops.max_pool2d(y, kernel=c.pool[0], stride=c.pool[1])
        y = ops.flatten(y)
        for name, width in zip(self.dense[:-1], self.widths, strict=True):
            y = ops.relu(linear(y, w, name, width // divisor))
        return w.graph((x,), (linear(y, w, self.dense[-1], classes),), ("logits",))

    def inputs(self, rng: np.random.Generator, batch: int = 1, image: int | None = None) -> dict[str, Array]:
        """A batch of normalised noise."""
        return images(rng, batch, image or self.image)

    def _check(self, image: int) -> None:
        """Raises InputError for images that are too small for the convolutions."""
        n = image
        for c in self.convs:
            n = (n + 2 * c.padding - c.kernel) // c.stride + 1
            n = n if c.pool is None else (n - c.pool[0]) // c.pool[1] + 1
            if n < 1:
                raise InputError(
                    f"{self.name}: image={image} is too small; nothing is left of it at {c.name}."
                )
