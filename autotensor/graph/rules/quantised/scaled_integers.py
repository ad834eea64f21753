"""Quantised values: integers with a scale and a zero point, as `dequantize` reads and `quantize` makes them.

    real(dequantize(q, s, z))  ──▶  Real(q, s, z)             the value (q - z) * s
    small(quantize(y, s, z))   ──▶  Small(y, s, z, dtype)     how y is rounded

Scales must be constant and not extreme, so that the product and the quotient of two scales keep all their
bits in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotensor.base.dtype import DType, float32, int32
from autotensor.graph.ir import Apply, Array, Constant, GraphNode, apply, constant

SMALLEST, GREATEST = 1e-18, 1e18  # limits of scales


@dataclass(frozen=True, slots=True)
class Real:
    """(q - zero) * scale."""

    q: GraphNode
    scale: Array  # float32, positive; broadcasts against q
    zero: int

    @property
    def is_byte(self) -> bool:
        return self.q.dtype.is_byte

    @property
    def is_plain(self) -> bool:
        """Whether all elements have the same scale."""
        return self.scale.size == 1

    @property
    def aligned(self) -> Array:
        """The scale with as many axes as q."""
        return self.scale.reshape((1,) * (self.q.ndim - self.scale.ndim) + self.scale.shape)

    @property
    def furthest(self) -> int:
        """A number that |q - zero| does not exceed for any q of this type."""
        limits = np.iinfo(self.q.dtype.numpy)
        return max(abs(int(limits.min) - self.zero), abs(int(limits.max) - self.zero))

    def times(self, scale: Array) -> Array:
        return np.asarray(self.scale * scale, np.float32)

    def whole(self) -> GraphNode:
        """q - zero, in 32 bits."""
        wide = self.q if self.q.dtype == int32 else apply("cast", (self.q,), {"dtype": "int32"})
        return wide if self.zero == 0 else apply("subtract", (wide, constant(self.zero, dtype=int32)))

    def node(self) -> GraphNode:
        zero = () if self.zero == 0 else (constant(self.zero, dtype=self.q.dtype),)
        return apply("dequantize", (self.q, constant(self.scale), *zero))


@dataclass(frozen=True, slots=True)
class Small:
    """How a `quantize` rounds: with one scale and one zero point."""

    y: GraphNode  # the node that it reads
    scale: Array  # float32, one element
    zero: int
    dtype: str

    def on(self, y: GraphNode) -> GraphNode:
        """The node that rounds another value in the same way."""
        zero = constant(np.array(self.zero, self.dtype))
        return apply("quantize", (y, constant(self.scale), zero), {"dtype": self.dtype})

    def sums(
        self, total: GraphNode, scale: Array, shift: GraphNode | None = None, **of_shift: float
    ) -> GraphNode:
        """Sums of integers, rounded in the same way.

        scale: the value of an integer 1. of_shift: attributes of a shift that consists of integers.
        """
        ratio = np.asarray(scale / self.scale, np.float32)
        inputs = (total, constant(ratio), *(() if shift is None else (shift,)))
        return apply("requantize", inputs, {"zero": self.zero, "dtype": self.dtype, **of_shift})

    def number(self, x: float) -> int:
        """One number, rounded in the same way."""
        limits = np.iinfo(self.dtype)
        q = np.rint(np.float32(x) / self.scale) + np.float32(self.zero)
        return int(np.clip(q, limits.min, limits.max))


def real(node: GraphNode) -> Real | None:
    """The integers, scale and zero point of a `dequantize` with a constant scale; None for other nodes."""
    match node:
        case Apply("dequantize", (q, Constant() as scale, *zero)) if node.dtype == float32:
            known, at = _usable(scale), zero_point(zero)
            if known is None or at is None or q.shape != node.shape:
                return None
            if q.dtype.bits <= 32 and _holds(q.dtype, at):
                return Real(q, known, at)
    return None


def small(node: GraphNode) -> Small | None:
    """How a `quantize` with a constant scale of one element rounds; None for other nodes."""
    match node:
        case Apply("quantize", (y, Constant() as scale, *zero)) if y.dtype == float32:
            known, at = _usable(scale), zero_point(zero)
            if known is None or at is None or y.shape != node.shape:
                return None
            if known.size == 1 and _holds(node.dtype, at):
                return Small(y, known, at, str(node.attr("dtype")))
    return None


def _usable(scale: Constant) -> Array | None:
    """A scale as float32; None if products with it may lose more than their last bit."""
    if not scale.dtype.is_float:
        return None
    s = scale.array.astype(np.float32)
    good = (s >= SMALLEST) & (s <= GREATEST)
    if not s.size or not bool(good.all()):
        return None
    return s.reshape(()) if s.size == 1 else s


def zero_point(zero: Sequence[GraphNode]) -> int | None:
    """The zero point if it is one constant number for all elements; 0 if there is none; otherwise None."""
    if not zero:
        return 0
    z = zero[0]
    if not isinstance(z, Constant) or z.array.size == 0 or not z.dtype.is_int:
        return None
    first = z.array.reshape(-1)[0]
    return int(first) if bool((z.array == first).all()) else None


def _holds(dtype: DType, zero: int) -> bool:
    """Whether the type can hold this zero point."""
    if not dtype.is_int:
        return False
    limits = np.iinfo(dtype.numpy)
    return int(limits.min) <= zero <= int(limits.max)
