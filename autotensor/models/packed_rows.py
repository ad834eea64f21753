"""Weights as integers of 4 or 8 bits that share a scale by groups of a row, as `ops.dense_nbits` takes them.

q: uint8[rows, groups, bytes], scale: float16[rows, groups]        w = scale * (q - 2^(bits - 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.base.errors import InputError
from autotensor.models.weights import Array

GROUPS = (32, 64, 128)
BITS = (4, 8)


@dataclass(frozen=True, slots=True, eq=False)
class PackedRows:
    """A matrix [rows, columns]; the low half of a byte is the number with the smaller column."""

    q: Array
    scale: Array
    bits: int

    @property
    def shape(self) -> tuple[int, int]:
        rows, groups, length = self.q.shape
        return rows, groups * length * 8 // self.bits

    @property
    def group(self) -> int:
        return int(self.q.shape[2]) * 8 // self.bits

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The matrix in float32, for NumPy."""
        numbers = np.stack([self.q & 15, self.q >> 4], axis=-1) if self.bits == 4 else self.q
        centred = numbers.reshape(*self.scale.shape, self.group).astype(np.float32) - (1 << self.bits - 1)
        made: Array = (centred * self.scale[..., None].astype(np.float32)).reshape(self.shape)
        return made if dtype is None else made.astype(dtype)

    def in_order(self, rows: Array) -> PackedRows:
        """The rows at these indices, in this order."""
        return PackedRows(self.q[rows], self.scale[rows], self.bits)


def packed(numbers: Array, scale: Array, bits: int) -> PackedRows:
    """Packs uint8[rows, groups, columns of a group], all below 2^bits, into bytes."""
    return PackedRows(numbers if bits == 8 else numbers[..., ::2] | numbers[..., 1::2] << 4, scale, bits)


def rounded_rows(w: Array, bits: int, group: int, what: str) -> PackedRows:
    """A matrix [rows, columns], rounded to the nearest numbers.

    The largest element of a group becomes an end of the numbers' range. what: the matrix's name, for
    messages. Raises InputError if groups do not divide its rows.
    Source: Q4_0 and Q8_0 of ggml (quantize_row_q4_0_ref, quantize_row_q8_0_ref).
    """
    rows, columns = w.shape
    check(bits, group, columns, what)
    by_group = w.astype(np.float32).reshape(rows, columns // group, group)
    largest = np.abs(by_group).argmax(axis=2)[..., None]
    peak = np.take_along_axis(by_group, largest, axis=2)
    zero = 1 << bits - 1
    step = peak / np.float32(-zero) if bits == 4 else np.abs(peak) / np.float32(zero - 1)
    scale = step.astype(np.float16)
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step != 0)
    numbers = np.clip(np.rint(by_group * inverse) + zero, 0, 2 * zero - 1).astype(np.uint8)
    return packed(numbers, scale[..., 0], bits)


def drawn_rows(name: str, rows: int, columns: int, bits: int, group: int, seed: int) -> PackedRows:
    """A random packed matrix with the variance of `weights.draw`, made without floats.

    The numbers are spread evenly around the zero point, and all scales are equal.
    """
    rng, zero = np.random.default_rng([seed, *name.encode()]), 1 << bits - 1
    check(bits, group, columns, name)
    numbers = rng.integers(1, 2 * zero, (rows, columns // group, group), np.uint8)
    spread = np.sqrt((zero * zero - zero) / 3)  # standard deviation of 1 - zero … zero - 1
    scale = np.full(numbers.shape[:2], np.sqrt(2 / columns) / spread, np.float16)
    return packed(numbers, scale, bits)


def check(bits: int, group: int, columns: int, what: str) -> None:
    """Raises InputError if rows of this many columns cannot be packed in this way."""
    if bits not in BITS or group not in GROUPS:
        raise InputError(
            f"weights of {bits} bits in groups of {group} are not known.",
            fix="Known: 4 and 8 bits; 32, 64 and 128.",
        )
    if columns % group:
        raise InputError(f"{what} has rows of {columns}, no multiple of its groups of {group}.")


def side_by_side(parts: Sequence[PackedRows]) -> PackedRows | None:
    """All rows of the matrices in one matrix; None if they are packed in different ways."""
    forms = {(p.bits, p.group, p.scale.dtype) for p in parts}
    if len(forms) > 1:
        return None
    q, scale = (np.concatenate([getattr(p, name) for p in parts]) for name in ("q", "scale"))
    return PackedRows(q, scale, parts[0].bits)
