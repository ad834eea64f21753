"""Computations that no library has and for which autotensor has no rules, written in te as a person would.

torch computes each with two or three operators. There are no ONNX models of them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from suite.case import Array, Case


class Written(Case):
    """A case that defines only `make`, `compute`, `tensors` and `flops`."""

    @abstractmethod
    def tensors(self) -> list[Any]:
        """te tensors: inputs, constants, result."""

    def nodes(self) -> list[Any]:
        from peers import Skip

        raise Skip("there is no ONNX model of it")


@dataclass
class LogCoshPool(Written):
    """Log of the mean of cosh over 2x2 windows of a 3x3 convolution."""

    name: str
    size: int
    cin: int
    cout: int

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (1, self.cout, self.size // 2, self.size // 2)

    @property
    def flops(self) -> int:
        return 18 * self.size**2 * self.cin * self.cout

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        x = rng.standard_normal((1, self.cin, self.size + 2, self.size + 2), dtype=np.float32)
        w = rng.standard_normal((self.cout, self.cin, 3, 3), dtype=np.float32)
        return [x], {"w": w / np.float32(sqrt(9 * self.cin))}

    def compute(self, *tensors: Any) -> Any:
        import torch
        import torch.nn.functional as F

        return torch.log(F.avg_pool2d(torch.cosh(F.conv2d(*tensors)), 2))

    def tensors(self) -> list[Any]:
        from autotensor import te
        from autotensor.operators import OPERATORS

        side = self.size + 2
        x = te.placeholder((1, side, side, self.cin), name="x")
        w = te.placeholder((self.cout, self.cin, 3, 3), name="w", constant=True)
        y = OPERATORS.get("conv2d").compute(x, w, layout="NHWC")
        ph, pw = te.reduce_axis((0, 2), name="ph"), te.reduce_axis((0, 2), name="pw")
        half = self.size // 2
        p = te.compute(
            (1, half, half, self.cout),
            lambda n, i, j, c: te.sum(te.cosh(y[n, 2 * i + ph, 2 * j + pw, c]), axis=[ph, pw]),
            name="p",
        )
        return [x, w, te.compute(p.shape, lambda *i: te.log(p[i] * 0.25), name="z")]

    def to_ours(self, array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1))

    def from_ours(self, array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, -1, 1))


@dataclass
class Pairs(Written):
    """A number for every pair of a row of a: [m, k] and a row of b: [n, k].

    kind: "distance" sum |a - b|; "tropical" max (a + b); "kernel" exp(-sum (a - b)^2 / k).
    """

    name: str
    kind: str
    m: int
    n: int
    k: int

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.m, self.n)

    @property
    def flops(self) -> int:
        return {"distance": 3, "tropical": 2, "kernel": 3}[self.kind] * self.m * self.n * self.k

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        return [rng.standard_normal((r, self.k), dtype=np.float32) for r in (self.m, self.n)], {}

    def compute(self, *tensors: Any) -> Any:
        import torch

        a, b = tensors
        match self.kind:
            case "distance":
                return torch.cdist(a, b, p=1.0)
            case "tropical":
                return (a[:, None, :] + b[None, :, :]).amax(-1)
        d = a[:, None, :] - b[None, :, :]
        return torch.exp((d * d).sum(-1) * (-1.0 / self.k))

    def tensors(self) -> list[Any]:
        from autotensor import te

        a, b = te.placeholder((self.m, self.k), name="a"), te.placeholder((self.n, self.k), name="b")
        r = te.reduce_axis((0, self.k), name="r")
        shape = (self.m, self.n)
        if self.kind == "tropical":
            return [a, b, te.compute(shape, lambda i, j: te.max(a[i, r] + b[j, r], axis=r), name="c")]
        if self.kind == "distance":
            return [a, b, te.compute(shape, lambda i, j: te.sum(te.abs(a[i, r] - b[j, r]), axis=r), name="c")]
        d = te.compute(
            shape, lambda i, j: te.sum((a[i, r] - b[j, r]) * (a[i, r] - b[j, r]), axis=r), name="d"
        )
        return [a, b, te.compute(shape, lambda i, j: te.exp(d[i, j] * (-1.0 / self.k)), name="c")]


@dataclass
class Diffusion(Written):
    """One step on a grid: u + c (sum of the four neighbours - 4 u) inside, with a coefficient per point."""

    name: str
    rows: int
    columns: int

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.rows, self.columns)

    @property
    def flops(self) -> int:
        return 7 * self.rows * self.columns

    def make(self, rng: np.random.Generator) -> tuple[list[Array], dict[str, Array]]:
        u = rng.standard_normal((self.rows + 2, self.columns + 2), dtype=np.float32)
        return [u, rng.random((self.rows, self.columns), dtype=np.float32)], {}

    def compute(self, *tensors: Any) -> Any:
        u, c = tensors
        middle = u[1:-1, 1:-1]
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return middle + c * (around - 4.0 * middle)

    def tensors(self) -> list[Any]:
        from autotensor import te

        u = te.placeholder((self.rows + 2, self.columns + 2), name="u")
        c = te.placeholder((self.rows, self.columns), name="c")

        def step(i: Any, j: Any) -> Any:
            around = u[i, j + 1] + u[i + 2, j + 1] + u[i + 1, j] + u[i + 1, j + 2]
            return u[i + 1, j + 1] + c[i, j] * (around - u[i + 1, j + 1] * 4.0)

        return [u, c, te.compute(self.output_shape, step, name="v")]
