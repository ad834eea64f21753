"""Memory for candidates: arrays between fences, which detect stray writes and make stray reads visible.

    slab.place([Need("t0", …), …])         ▒ t0 ▒ ▒ workspace ▒      one allocation, used for all candidates

Fences of arrays that a kernel writes hold 0xA5, so a stray write changes them. Fences of arrays that a kernel
reads hold 0xFF, which is NaN or -1. So a stray read makes the answer wrong; harmless bytes would hide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.runtime.arrays import ALIGNMENT, Array, address, aligned_empty

FENCE_BYTES = 256
# number of elements that are compared at once, so that the results stay in a core's own cache
STRETCH = 1 << 16
_WRITTEN, _READ = 0xA5, 0xFF
_TRAP_INT = 0xA5  # also used for bools, which are then neither True nor False
_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class Need:
    """One array to be placed."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read_only: bool = False  # whether the kernel only reads it

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Fenced:
    """An array between two fences."""

    name: str
    array: Array
    before: Array  # bytes of the fences
    after: Array
    byte: int  # the value of these bytes

    @property
    def address(self) -> int:
        return address(self.array)

    def trap(self) -> None:
        """Fills the array with bits that no right answer contains: NaN, or an unlikely bit pattern."""
        raw = self.array.reshape(-1).view(np.uint8)
        raw[...] = _TRAP_INT if self.array.dtype.kind in "biu" else 0xFF

    def mend(self) -> None:
        self.before[...] = self.byte
        self.after[...] = self.byte

    def complaint(self) -> str:
        """The position of a write outside the array, as text; empty when the fences are intact."""
        if (hit := np.flatnonzero(self.before != self.byte)).size:
            return f"it wrote up to {len(self.before) - int(hit[0])} bytes before the start of {self.name!r}"
        if (hit := np.flatnonzero(self.after != self.byte)).size:
            return f"it wrote up to {int(hit[-1]) + 1} bytes beyond the end of {self.name!r}"
        return ""


class Slab:
    """Memory that grows to the size needed and is then used again, so candidates cause no page faults."""

    def __init__(self) -> None:
        self._raw = aligned_empty((0,), _BYTE)

    def place(self, needs: Sequence[Need], shift: int = 0) -> list[Fenced]:
        """Fenced arrays, at multiples of 64 bytes plus `shift` elements. Their contents are undefined.

        Arrays that were placed before become invalid.
        """
        room = [room_of(n, shift) for n in needs]
        self.reserve(sum(room))
        placed, at = [], 0
        for need, size in zip(needs, room, strict=True):
            placed.append(lay(need, self._raw[: at + size], at, shift))
            at += size
        return placed

    def reserve(self, size: int) -> None:
        if self._raw.nbytes < size:
            self._raw = aligned_empty((0,), _BYTE)  # releases the old memory first
            self._raw = aligned_empty((size,), _BYTE)

    @property
    def raw(self) -> Array:
        return self._raw


def lay(need: Need, raw: Array, at: int, shift: int = 0) -> Fenced:
    """A fenced array in the bytes of `raw` from `at` on, `shift` elements after an aligned address."""
    start = at + FENCE_BYTES + shift * need.dtype.itemsize
    stop = start + need.bytes
    array: Array = np.ndarray(need.shape, need.dtype, raw.data, start)
    fenced = Fenced(need.name, array, raw[at:start], raw[stop:], _READ if need.read_only else _WRITTEN)
    fenced.mend()
    return fenced


def room_of(need: Need, shift: int = 0) -> int:
    """The bytes that a fenced array takes."""
    size = need.bytes + shift * need.dtype.itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT + 2 * FENCE_BYTES


def stretches(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """The same part of every flat array, STRETCH elements at a time, so no large temporaries are needed.

    Raises ValueError if the arrays have different lengths.
    """
    sizes = {a.size for a in arrays}
    if len(sizes) > 1:
        raise ValueError(f"arrays of {' and '.join(map(str, sorted(sizes)))} elements cannot be compared")
    for at in range(0, max(sizes), STRETCH):
        yield tuple(a[at : at + STRETCH] for a in arrays)


def raw(array: Array) -> Array:
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two arrays hold the same bytes. NaNs and signs of zero count."""
    x, y = raw(a), raw(b)
    return x.size == y.size and all(np.array_equal(part, other) for part, other in stretches(x, y))


def repeat(block: Array, into: Array) -> None:
    """Fills `into` with the bytes of `block`, repeated."""
    whole = into.nbytes // block.nbytes * block.nbytes
    into[:whole].reshape(-1, block.nbytes)[...] = block
    into[whole:] = block[: into.nbytes - whole]
