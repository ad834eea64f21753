"""A random computation under construction: its tensors, bounds of their elements, names, shapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from autotensor import te
from autotensor.base.dtype import DType

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
ELEMENTS = 300  # of one tensor; the interpreter visits each in Python
POINTS = 1500  # of one stage, reduction included
# integers below this are exact, and so are sums of a few of them
EXACT = {"float16": 2.0**10, "bfloat16": 2.0**7, "float32": 2.0**23, "float64": 2.0**50}
INPUT = 2.0
AXES = ("y", "x", "c", "n", "i0", "i1", "i2", "d0", "r0", "k", "o")
REDUCE_AXES = ("k", "kh", "r0", "r1", "i0", "x", "ci")
STEMS = ("C", "D", "relu", "t0", "t1", "a1", "conv_2")


@dataclass(slots=True)
class Value:
    """A tensor and the greatest magnitude of its elements."""

    tensor: te.Tensor
    bound: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape


@dataclass(slots=True)
class Maker:
    """A computation under construction."""

    rng: random.Random
    dtype: DType
    made: list[Value] = field(default_factory=list)  # computed
    inputs: list[Value] = field(default_factory=list)
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return self.rng.choice(STEMS) if self.rng.random() < 0.3 else f"{stem}{self.count}"

    def axes(self, rank: int) -> tuple[str, ...]:
        """Names that people use, and names from which others are derived."""
        return tuple(self.rng.sample(AXES, rank))

    def reduce_axes(self, extents: Sequence[int]) -> list[te.IterVar]:
        return [
            te.reduce_axis(n, name=a)
            for n, a in zip(extents, self.rng.sample(REDUCE_AXES, len(extents)), strict=True)
        ]

    def fits(self, bound: float, dtype: DType | None = None) -> bool:
        return bound < EXACT.get(str(dtype or self.dtype), float("inf"))

    def shape(self, rank: int, limit: int = ELEMENTS) -> tuple[int, ...]:
        out: list[int] = []
        for _ in range(rank):
            room = limit // max(1, prod(out))
            out.append(self.rng.choice([n for n in SIZES if n <= room]))
        self.rng.shuffle(out)
        return tuple(out)

    def placeholder(self, shape: Sequence[int], dtype: DType | None = None) -> Value:
        constant = self.rng.random() < 0.35
        t = te.placeholder(tuple(shape), dtype or self.dtype, self.name("in"), constant=constant)
        value = Value(t, INPUT if t.dtype.is_float else 8)
        self.inputs.append(value)
        return value

    def operand(self, least: int = 0, most: int = 3) -> Value:
        """An operand: the newest result, an older one or a new input."""
        fitting = [v for v in self.made if least <= len(v.shape) <= most and v.tensor.dtype == self.dtype]
        if fitting and self.rng.random() < 0.85:
            return fitting[-1] if self.rng.random() < 0.7 else self.rng.choice(fitting)
        return self.placeholder(self.shape(self.rng.randint(least, most)))

    def like(self, shape: Sequence[int]) -> Value:
        """An operand of exactly this shape."""
        fitting = [
            v for v in (*self.made, *self.inputs) if v.shape == tuple(shape) and v.tensor.dtype == self.dtype
        ]
        return self.rng.choice(fitting) if fitting and self.rng.random() < 0.6 else self.placeholder(shape)

    def compute(self, shape: Sequence[int], body: Callable[..., Any], bound: float, stem: str = "c") -> None:
        result = te.compute(tuple(shape), body, name=self.name(stem), axis_names=self.axes(len(shape)))
        for t in result if isinstance(result, tuple) else (result,):
            self.made.append(Value(t, bound))

    def zero(self) -> te.Expr:
        return te.const(0, self.dtype)
