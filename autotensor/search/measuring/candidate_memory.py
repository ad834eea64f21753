"""Memory for candidates: arrays between fences that notice stray writes and poison stray reads.

    slab.place([Need("t0", …), …])         ▒ t0 ▒ ▒ workspace ▒      one allocation, used again and again

Fences of arrays that a kernel writes hold 0xA5: a stray write changes them. Fences of arrays that it reads
hold 0xFF, which is NaN, or -1: a stray read spoils the answer, where harmless bytes would let it pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.runtime.arrays import ALIGNMENT, Array, address, aligned_empty

FENCE_BYTES = 256
STRETCH = 1 << 16  # elements that are compared at once: their results stay in a core's own cache
_WRITTEN, _READ = 0xA5, 0xFF
_TRAP_INT = 0xA5  # also for bools, which are then neither True nor False
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
    before: Array  # the fences' bytes
    after: Array
    byte: int  # the value of these bytes

    @property
    def address(self) -> int:
        return address(self.array)

    def trap(self) -> None:
        """Fill with bits that no right answer contains: NaN, or an unlikely bit pattern."""
        raw = self.array.reshape(-1).view(np.uint8)
        raw[...] = _TRAP_INT if self.array.dtype.kind in "biu" else 0xFF

    def mend(self) -> None:
        self.before[...] = self.byte
        self.after[...] = self.byte

    def complaint(self) -> str:
        """The place of a write outside the array, as text; empty when the fences are intact."""
        if (hit := np.flatnonzero(self.before != self.byte)).size:
            return f"it wrote up to {len(self.before) - int(hit[0])} bytes before the start of {self.name!r}"
        if (hit := np.flatnonzero(self.after != self.byte)).size:
            return f"it wrote up to {int(hit[-1]) + 1} bytes beyond the end of {self.name!r}"
        return ""


class Slab:
    """Memory that grows to the size needed and is then used again: no candidate pays for page faults."""

    def __init__(self) -> None:
        self._raw = aligned_empty((0,), _BYTE)

    def place(self, needs: Sequence[Need], shift: int = 0) -> list[Fenced]:
        """Fenced arrays, at multiples of 64 bytes plus `shift` elements; contents undefined.

        The arrays placed before become invalid.
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
            self._raw = aligned_empty((0,), _BYTE)  # free first
            self._raw = aligned_empty((size,), _BYTE)

    @property
    def raw(self) -> Array:
        return self._raw


def lay(need: Need, raw: Array, at: int, shift: int = 0) -> Fenced:
    """A fenced array in bytes `at` to the end of `raw`, `shift` elements off alignment."""
    start = at + FENCE_BYTES + shift * need.dtype.itemsize
    stop = start + need.bytes
    array: Array = np.ndarray(need.shape, need.dtype, raw.data, start)
    fenced = Fenced(need.name, array, raw[at:start], raw[stop:], _READ if need.read_only else _WRITTEN)
    fenced.mend()
    return fenced


def room_of(need: Need, shift: int = 0) -> int:
    """Bytes that a fenced array takes."""
    size = need.bytes + shift * need.dtype.itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT + 2 * FENCE_BYTES


def stretches(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """The same part of every flat array, STRETCH elements at a time: large arrays need no large temporaries.

    Raises ValueError when they are not of one length.
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
    """Whether two arrays hold the same bytes, NaNs and signs of zero included."""
    x, y = raw(a), raw(b)
    return x.size == y.size and all(np.array_equal(part, other) for part, other in stretches(x, y))


def repeat(block: Array, into: Array) -> None:
    """Fills bytes with the bytes of a block, again and again."""
    whole = into.nbytes // block.nbytes * block.nbytes
    into[:whole].reshape(-1, block.nbytes)[...] = block
    into[whole:] = block[: into.nbytes - whole]
