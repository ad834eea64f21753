"""What AlexNet and OverFeat share: convolutions in a row, then dense layers, from a table.

image ──▶ (conv ─▶ relu ─▶ pool or not) … ──▶ flatten ──▶ dense ─▶ relu … ──▶ logits
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from autotensor.base.errors import InputError
from autotensor.graph.build import constant, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.weights import Weights, checked


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
    """A network: its convolutions, the names of its dense layers, and their widths without the classes."""

    name: str
    convs: tuple[Conv, ...]
    dense: tuple[str, ...]
    widths: tuple[int, ...]

    def build(
        self, batch: int, weights: Weights | None, seed: int, image: int, divisor: int, classes: int
    ) -> Graph:
        """divisor: of all widths, for small networks of the same form."""
        w = checked(self.name, weights, self.shapes(image, divisor, classes), seed)

        def layer(name: str) -> tuple[GraphNode, GraphNode]:
            weight, bias = (f"{name}.{part}" for part in ("weight", "bias"))
            return constant(w[weight], weight), constant(w[bias], bias)

        x = input((batch, 3, image, image), name="x")
        y: GraphNode = x
        for c in self.convs:
            y = ops.relu(ops.conv2d(y, *layer(c.name), stride=c.stride, padding=c.padding))
            y = y if c.pool is None else ops.max_pool2d(y, kernel=c.pool[0], stride=c.pool[1])
        y = ops.flatten(y)
        for name in self.dense[:-1]:
            y = ops.relu(ops.dense(y, *layer(name)))
        return Graph((x,), (ops.dense(y, *layer(self.dense[-1])),), self.name, ("logits",))

    def shapes(self, image: int, divisor: int, classes: int) -> dict[str, tuple[int, ...]]:
        """Every weight's shape, by name. Raises InputError for images that the convolutions use up."""
        found: dict[str, tuple[int, ...]] = {}
        channels = 3
        for c in self.convs:
            outputs = c.outputs // divisor
            found[f"{c.name}.weight"] = (outputs, channels, c.kernel, c.kernel)
            found[f"{c.name}.bias"] = (outputs,)
            channels = outputs
        side = self.side(image)
        widths = (channels * side * side, *(n // divisor for n in self.widths), classes)
        for name, (depth, width) in zip(self.dense, pairwise(widths), strict=True):
            found[f"{name}.weight"], found[f"{name}.bias"] = (width, depth), (width,)
        return found

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
