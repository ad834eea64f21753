"""Arrays for kernels: aligned memory, its address, and arrays between guards that notice stray writes.

aligned_empty((64, 64), "float32")     begins at a multiple of 64 bytes
guarded(x)                             ▒▒▒▒ x ▒▒▒▒   check_guards() says which side was written to
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.base.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]
ALIGNMENT = 64
_GUARD_BYTE = 0xA5
_GUARD_SIZES = (64, 4096)


def aligned_empty(
    shape: tuple[int, ...], dtype: str | DType | np.dtype[Any], alignment: int = ALIGNMENT
) -> Array:
    """A new row-major array whose first byte is at a multiple of `alignment`; contents undefined."""
    numpy = _numpy(dtype)
    raw = np.empty(math.prod(shape) * numpy.itemsize + alignment, np.uint8)
    return np.ndarray(shape, numpy, raw, -address(raw) % alignment)  # using `raw.data` would cost 0.4 us more


def bytes_together(
    shapes: Mapping[str, tuple[tuple[int, ...], str | DType]], alignment: int = ALIGNMENT
) -> int:
    """The bytes of one block for arrays of these shapes, each beginning at a multiple of `alignment`.

    NumPy requests huge pages for a block of 4 MiB and more: 2 % of BERT's time are TLB misses otherwise.
    """
    sizes = (math.prod(shape) * _numpy(dtype).itemsize for shape, dtype in shapes.values())
    return sum(-(-size // alignment) * alignment for size in sizes)


def views_together(
    block: Array,
    shapes: Mapping[str, tuple[tuple[int, ...], str | DType]],
    alignment: int = ALIGNMENT,
) -> dict[str, Array]:
    """Arrays of these shapes in a block of `bytes_together`, in order."""
    found, start = {}, 0
    for name, (shape, dtype) in shapes.items():
        size = math.prod(shape) * _numpy(dtype).itemsize
        found[name] = block[start : start + size].view(_numpy(dtype)).reshape(shape)
        start += -(-size // alignment) * alignment
    return found


def aligned_copy(array: Array, alignment: int = ALIGNMENT) -> Array:
    """A row-major copy of `array` at a multiple of `alignment`."""
    copy = aligned_empty(array.shape, array.dtype, alignment)
    copy[...] = array
    return copy


def random(shape: tuple[int, ...], dtype: str | DType | np.dtype[Any], rng: np.random.Generator) -> Array:
    """Random values for checking kernels: floats in [-1, 1), integers in a range whose products stay small,
    bools."""
    numpy = _numpy(dtype)
    made = aligned_empty(shape, numpy)
    if numpy.kind == "b":
        made[...] = rng.integers(0, 2, shape)
    elif numpy.kind in "iu":
        made[...] = rng.integers(-8 if numpy.kind == "i" else 0, 8, shape)
    else:
        made[...] = rng.uniform(-1.0, 1.0, shape)
    return made


def fill_trap(array: Array) -> None:
    """Fills `array` with values that no right answer contains: NaN, or unlikely bits for integers."""
    if array.dtype.kind in "biu":
        array.reshape(-1).view(np.uint8)[...] = _GUARD_BYTE if array.dtype.kind != "b" else 1
    else:
        array[...] = np.nan


@dataclass(frozen=True, slots=True, eq=False)
class Guarded:
    """An array with guard bytes before and after its own bytes, in one allocation."""

    array: Array
    raw: Array  # uint8: guard, the array's bytes, guard
    guard_bytes: int

    def check_guards(self) -> str | None:
        """None if the guards are intact, else one sentence about the place of the nearest stray write."""
        before, after = self.raw[: self.guard_bytes], self.raw[self.guard_bytes + self.array.nbytes :]
        if (hit := np.flatnonzero(before != _GUARD_BYTE)).size:
            return f"wrote {self.guard_bytes - int(hit[-1])} bytes before its start"
        if (hit := np.flatnonzero(after != _GUARD_BYTE)).size:
            return f"wrote {int(hit[0]) + 1} bytes beyond its end"
        return None


def guarded(
    shape: tuple[int, ...],
    dtype: str | DType | np.dtype[Any],
    guard_bytes: int = 256,
    fill: Array | None = None,
) -> Guarded:
    """An array between guards, 64-byte aligned, filled with `fill` or with traps.

    Raises InputError unless guard_bytes is a multiple of 64 from 64 to 4096.
    """
    smallest, largest = _GUARD_SIZES
    if not smallest <= guard_bytes <= largest or guard_bytes % ALIGNMENT:
        raise InputError(
            f"guard of {guard_bytes} bytes: it must be a multiple of 64 from {smallest} to {largest}."
        )
    numpy = _numpy(dtype)
    size = math.prod(shape) * numpy.itemsize
    raw = aligned_empty((size + 2 * guard_bytes,), np.dtype(np.uint8))
    raw[...] = _GUARD_BYTE
    array: Array = np.ndarray(shape, numpy, raw.data, guard_bytes)
    if fill is None:
        fill_trap(array)
    else:
        array[...] = fill
    return Guarded(array, raw, guard_bytes)


def _numpy(dtype: str | DType | np.dtype[Any]) -> np.dtype[Any]:
    return dtype if isinstance(dtype, np.dtype) else dtype_of(dtype).numpy


def _slow_address(array: Array) -> int:
    return int(array.ctypes.data)


# CPython and NumPy keep the data pointer right behind the object header. Reading the pointer from there takes
# 0.2 us, and asking for `array.ctypes.data` takes 0.9 us, four times per small kernel. The position is tested
# on several arrays. If the test fails, the slow way is used.
_DATA_OFFSET = object.__basicsize__
_from_address = ctypes.c_size_t.from_address


def _fast_address(array: Array) -> int:
    return _from_address(id(array) + _DATA_OFFSET).value


def _fast_address_works() -> bool:
    base = np.zeros((4, 6), np.float32)
    return all(
        _fast_address(a) == _slow_address(a) for a in (base, base[1:], base.T, np.zeros(()), np.zeros(0))
    )


address = _fast_address if _fast_address_works() else _slow_address
