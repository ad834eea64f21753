"""Convolutions of one to three axes: grouped, depthwise, dilated, transposed.

Peers get channels first, or channels last if torch supports it. autotensor's convolutions are channels last.
Weights are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod, sqrt
from typing import Any

import numpy as np

from suite.case import Array, Case

LAYOUTS = {1: "NWC", 2: "NHWC", 3: "NDHWC"}

# Ansor's set: extents, channels in and out, kernel, stride, padding[, dilation, groups]
C1D = ((256, 64, 128, 3, 2, 1), (128, 128, 256, 1, 2, 0), (64, 256, 256, 5, 1, 2), (32, 512, 512, 3, 1, 1))
C2D = ((224, 3, 64, 7, 2, 3), (56, 64, 64, 1, 1, 0), (14, 256, 256, 3, 1, 1), (7, 512, 512, 3, 1, 1))
GRP = (
    (56, 64, 128, 3, 2, 1, 1, 4), (56, 64, 64, 1, 1, 0, 1, 4),
    (14, 256, 256, 3, 1, 1, 1, 4), (7, 512, 512, 3, 1, 1, 1, 4),
)  # fmt: skip
DIL = tuple((*shape, 2) for shape in C2D)
T2D = ((4, 512, 256, 4, 2, 1), (8, 256, 128, 4, 2, 1), (16, 128, 64, 4, 2, 1), (32, 64, 3, 4, 2, 1))
DEP = ((112, 32, 3, 1, 1), (112, 64, 3, 2, 1), (14, 512, 3, 2, 1), (7, 1024, 3, 1, 1))
DEPTH = 16  # depth of the three-dimensional convolutions

RESNET50 = {
    "r50_3x3_56x64": (56, 64, 64, 3, 1, 1),
    "r50_3x3_28x128": (28, 128, 128, 3, 1, 1),
    "r50_3x3_14x256": (14, 256, 256, 3, 1, 1),
    "r50_3x3_7x512": (7, 512, 512, 3, 1, 1),
    "r50_1x1_56_64_256": (56, 64, 256, 1, 1, 0),
    "r50_1x1_14_1024_256": (14, 1024, 256, 1, 1, 0),
    "r50_7x7s2": (224, 3, 64, 7, 2, 3),
}


@dataclass
class Conv(Case):
    """x: [batch, cin, *extents], w: [cout, cin / groups, *kernel]; transposed: [cin, cout, *kernel]."""

    name: str
    batch: int
    extents: tuple[int, ...]
    cin: int
    cout: int
    kernel: int
    stride: int
    padding: int
    dilation: int = 1
    groups: int = 1
    transposed: bool = False

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def channels_last(self) -> int:  # type: ignore[override]
        return self.rank if self.rank > 1 else 0

    @property
    def weight_shape(self) -> tuple[int, ...]:
        kernel = (self.kernel,) * self.rank
        if self.transposed:
            return (self.cin, self.cout, *kernel)
        return (self.cout, self.cin // self.groups, *kernel)

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        x = rng.standard_normal((self.batch, self.cin, *self.extents), dtype=np.float32)
        terms = self.cin // self.groups * self.kernel**self.rank
        w = rng.standard_normal(self.weight_shape, dtype=np.float32) / np.float32(sqrt(terms))
        return [x], {"w": w}

    @property
    def results(self) -> tuple[int, ...]:
        """The spatial extents of the result."""
        if self.transposed:
            return tuple((n - 1) * self.stride - 2 * self.padding + self.kernel for n in self.extents)
        reach = self.dilation * (self.kernel - 1) + 1
        return tuple((n + 2 * self.padding - reach) // self.stride + 1 for n in self.extents)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.batch, self.cout, *self.results)

    @property
    def flops(self) -> int:
        points = prod(self.extents if self.transposed else self.results)
        return 2 * self.batch * points * self.cout * (self.cin // self.groups) * self.kernel**self.rank

    @property
    def useful(self) -> float:
        pairs = zip(self.extents, self.results, strict=True)
        return prod(self._useful(n, m) for n, m in pairs)

    def _useful(self, extent: int, result: int) -> float:
        """The share of the (position, tap) pairs of one axis that read data, not padding."""
        if self.transposed:
            at = [i * self.stride - self.padding + j for i in range(extent) for j in range(self.kernel)]
            return sum(0 <= p < result for p in at) / len(at)
        taps = [j * self.dilation - self.padding for j in range(self.kernel)]
        at = [i * self.stride + t for i in range(result) for t in taps]
        return sum(0 <= p < extent for p in at) / len(at)

    def compute(self, *tensors: Any) -> Any:
        import torch.nn.functional as F

        if self.transposed:
            return F.conv_transpose2d(*tensors, None, self.stride, self.padding)
        function = (F.conv1d, F.conv2d, F.conv3d)[self.rank - 1]
        return function(*tensors, None, self.stride, self.padding, self.dilation, self.groups)

    def nodes(self) -> list[Any]:
        from onnx import helper

        strides, pads = [self.stride] * self.rank, [self.padding] * 2 * self.rank
        common: dict[str, Any] = {"strides": strides, "pads": pads}
        if self.transposed:
            return [helper.make_node("ConvTranspose", ["in0", "w"], ["out"], **common)]
        common |= {"dilations": [self.dilation] * self.rank, "group": self.groups}
        return [helper.make_node("Conv", ["in0", "w"], ["out"], **common)]

    def tensors(self) -> list[Any]:
        from autotensor import te
        from autotensor.operators import OPERATORS

        x = te.placeholder((self.batch, *self.extents, self.cin), name="x")
        w = te.placeholder(self.weight_shape, name="w", constant=True)
        layout = LAYOUTS[self.rank]
        common: dict[str, Any] = {"stride": self.stride, "padding": self.padding, "layout": layout}
        if self.transposed:
            return [x, w, OPERATORS.get("conv2d_transpose").compute(x, w, **common)]
        common |= {"dilation": self.dilation, "groups": self.groups}
        return [x, w, OPERATORS.get(f"conv{self.rank}d").compute(x, w, **common)]

    def to_ours(self, array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1))

    def from_ours(self, array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def convolutions() -> dict[str, Callable[[], Case]]:
    """All convolutions by name."""
    found: dict[str, Callable[[], Case]] = {}

    def add(name: str, batch: int, extents: tuple[int, ...], *rest: int, transposed: bool = False) -> None:
        found[name] = partial(Conv, name, batch, extents, *rest, transposed=transposed)

    for name, (n, *rest) in RESNET50.items():
        add(name, 1, (n, n), *rest)
    for n, c in ((112, 32), (14, 512)):
        add(f"mbv1_dw_{n}x{c}", 1, (n, n), c, c, 3, 1, 1, 1, c)
    for batch in (1, 16):
        for s in range(4):
            end = f"s{s}.b{batch}"
            add(f"C1D.{end}", batch, C1D[s][:1], *C1D[s][1:])
            add(f"C2D.{end}", batch, C2D[s][:1] * 2, *C2D[s][1:])
            add(f"C3D.{end}", batch, (DEPTH, *C2D[s][:1] * 2), *C2D[s][1:])
            add(f"GRP.{end}", batch, GRP[s][:1] * 2, *GRP[s][1:])
            add(f"DIL.{end}", batch, DIL[s][:1] * 2, *DIL[s][1:])
            add(f"T2D.{end}", batch, T2D[s][:1] * 2, *T2D[s][1:], transposed=True)
            n, c, k, st, p = DEP[s]
            add(f"DEP.{end}", batch, (n, n), c, c, k, st, p, 1, c)
    return found
