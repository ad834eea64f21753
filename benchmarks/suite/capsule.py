"""Ansor's capsule convolution: its elements are 4x4 matrices, and it sums products of matrices.

    out[n, h, w, i, j, co] = sum in[n, h*s + rh, w*s + rw, i, k, ci] * weight[rh, rw, k, j, ci, co]

Peers compute a convolution over the batch (n, i) with channels (k, ci) and (j, co). They get and return the
layout of this definition, so the two permutations are part of their time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from suite.case import Array, Case

SIDE = 4  # rows and columns of the matrices
# extent, channels in and out, kernel, stride, padding
SHAPES = ((16, 32, 32, 3, 2, 1), (8, 32, 32, 3, 1, 1), (16, 8, 16, 3, 2, 1), (8, 16, 16, 3, 1, 1))


@dataclass
class Capsule(Case):
    """x: [batch, n, n, 4, 4, cin], w: [4 cout, 4 cin, k, k] as in a convolution."""

    name: str
    batch: int
    extent: int
    cin: int
    cout: int
    kernel: int
    stride: int
    padding: int

    @property
    def result(self) -> int:
        return (self.extent + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.batch, self.result, self.result, SIDE, SIDE, self.cout)

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.result**2 * SIDE**3 * self.cout * self.cin * self.kernel**2

    @property
    def useful(self) -> float:
        at = [i * self.stride - self.padding + j for i in range(self.result) for j in range(self.kernel)]
        return (sum(0 <= p < self.extent for p in at) / len(at)) ** 2

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        shape = (self.batch, self.extent, self.extent, SIDE, SIDE, self.cin)
        terms = SIDE * self.cin * self.kernel**2
        w = rng.standard_normal(
            (SIDE * self.cout, SIDE * self.cin, self.kernel, self.kernel), dtype=np.float32
        )
        return [rng.standard_normal(shape, dtype=np.float32)], {"w": w / np.float32(sqrt(terms))}

    def compute(self, *tensors: Any) -> Any:
        import torch.nn.functional as F

        x, w = tensors
        b, n, m = self.batch, self.extent, self.result
        y = x.permute(0, 3, 1, 2, 4, 5).reshape(b * SIDE, n, n, SIDE * self.cin).permute(0, 3, 1, 2)
        y = F.conv2d(y, w, None, self.stride, self.padding)
        y = y.permute(0, 2, 3, 1).reshape(b, SIDE, m, m, SIDE, self.cout)
        return y.permute(0, 2, 3, 1, 4, 5).contiguous()

    def integers(self) -> dict[str, Sequence[int]]:
        b, n, m = self.batch, self.extent, self.result
        return {"s0": (b * SIDE, SIDE * self.cin, n, n), "s1": (b, SIDE, SIDE, self.cout, m, m)}

    def nodes(self) -> list[Any]:
        from onnx import helper

        node = helper.make_node
        return [
            node("Transpose", ["in0"], ["t0"], perm=[0, 3, 4, 5, 1, 2]),
            node("Reshape", ["t0", "s0"], ["t1"]),
            node("Conv", ["t1", "w"], ["t2"], strides=[self.stride] * 2, pads=[self.padding] * 4),
            node("Reshape", ["t2", "s1"], ["t3"]),
            node("Transpose", ["t3"], ["out"], perm=[0, 4, 5, 1, 2, 3]),
        ]

    def tensors(self) -> list[Any]:
        """The definition above."""
        from autotensor import te

        b, n, m, s, p = self.batch, self.extent, self.result, self.stride, self.padding
        cin, cout, k = self.cin, self.cout, self.kernel
        x = te.placeholder((b, n, n, SIDE, SIDE, cin), name="x")
        w = te.placeholder((k, k, SIDE, SIDE, cin, cout), name="w", constant=True)
        padded = te.compute(
            (b, n + 2 * p, n + 2 * p, SIDE, SIDE, cin),
            lambda q, y, z, i, j, c: te.select(
                te.all(y >= p, y < n + p, z >= p, z < n + p), x[q, y - p, z - p, i, j, c], 0.0
            ),
            name="pad",
        )
        rh, rw = te.reduce_axis(k, name="rh"), te.reduce_axis(k, name="rw")
        kk, rc = te.reduce_axis(SIDE, name="kk"), te.reduce_axis(cin, name="rc")
        out = te.compute(
            (b, m, m, SIDE, SIDE, cout),
            lambda q, y, z, i, j, c: te.sum(
                padded[q, y * s + rh, z * s + rw, i, kk, rc] * w[rh, rw, kk, j, rc, c], axis=(rh, rw, kk, rc)
            ),
            name="capsule",
        )
        return [x, w, out]

    def constant_to_ours(self, array: Array) -> Array:
        """[(j, co), (k, ci), rh, rw] ──▶ [rh, rw, k, j, ci, co]"""
        k = self.kernel
        apart = array.reshape(SIDE, self.cout, SIDE, self.cin, k, k)
        return np.ascontiguousarray(apart.transpose(4, 5, 2, 0, 3, 1))


def capsules() -> dict[str, Callable[[], Case]]:
    """CAP.s0 … s3, batch 1 and 16."""
    return {
        f"CAP.s{s}.b{batch}": partial(Capsule, f"CAP.s{s}.b{batch}", batch, *shape)
        for batch in (1, 16)
        for s, shape in enumerate(SHAPES)
    }
