"""Memories of a card: global allocations by address, and a block's shared memory, which checks every access.

Global memory is one address space with a gap after each allocation. An access outside an allocation is
reported. For each granule, shared memory records the threads that wrote and read it since the last barrier,
and unfinished `cp.async`. If two threads access a granule without a barrier between them, and one of them
writes, this is a race, in any order of the accesses.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

PAGE = 1 << 16
MANY = -1


class CardFault(Exception):
    """A kernel did something that PTX leaves undefined, or at which a card stops. `code`: CUDA's name of the
    error."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(f"{code}: {what}")
        self.code, self.what = code, what


class GlobalMemory:
    """Allocations at the card's own addresses."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.used = capacity, 0
        self._bases: list[int] = []
        # base ▶ the padded bytes, and the number of allocated bytes
        self._parts: dict[int, tuple[Array, int]] = {}
        self._next = PAGE

    def allocate(self, size: int) -> tuple[int, Array]:
        """A new address and its bytes, which are filled with NaN. Raises CardFault if memory is full."""
        if self.used + size > self.capacity:
            raise CardFault("cudaErrorMemoryAllocation", f"out of memory: {size:,} bytes")
        base, self._next = self._next, self._next + -(-size // PAGE) * PAGE + PAGE
        data = np.full(-(-max(size, 1) // 16) * 16, 0xFF, np.uint8)
        self._bases.append(base)
        self._parts[base] = (data, size)
        self.used += size
        return base, data[:size]

    def free(self, base: int) -> None:
        self.used -= self._parts.pop(base)[1]
        self._bases.remove(base)

    def bytes_at(self, address: int, size: int) -> Array:
        base = self._bases[bisect.bisect_right(self._bases, address) - 1]
        return self._parts[base][0][address - base : address - base + size]

    def load(self, at: Array, dtype: np.dtype[Any]) -> Array:
        out = np.empty(len(at), dtype)
        for which, data, index in self._find(at, dtype.itemsize):
            out[which] = data.view(dtype)[index]
        return out

    def store(self, at: Array, values: Array) -> None:
        for which, data, index in self._find(at, values.itemsize):
            data.view(values.dtype)[index] = values[which]

    def _find(self, at: Array, size: int) -> Iterator[tuple[Any, Array, Array]]:
        """For each allocation with some of the addresses: which addresses, its bytes, and the indices of the
        elements."""
        low, high = (bisect.bisect_right(self._bases, int(x)) - 1 for x in (at.min(), at.max()))
        if low == high:
            yield slice(None), *self._part(low, at, size)
            return
        # each lane may have chosen another allocation
        numbers = np.searchsorted(self._bases, at, side="right") - 1
        for k in np.unique(numbers):
            which = np.flatnonzero(numbers == k)
            yield which, *self._part(int(k), at[which], size)

    def _part(self, k: int, at: Array, size: int) -> tuple[Array, Array]:
        base = self._bases[k] if k >= 0 else 0
        data, allocated = self._parts.get(base, (np.empty(0, np.uint8), 0))
        high = int(at.max())
        if high + size > base + allocated:
            raise CardFault("cudaErrorIllegalAddress", f"an access of {size} bytes at {high:#x} is outside")
        index = at.astype(np.int64) - base
        if size > 1 and (index % size).any():
            raise CardFault("cudaErrorMisalignedAddress", f"an access of {size} bytes is not aligned")
        return data, index // size


class SharedMemory:
    """Shared memory of many blocks that run side by side, `size` bytes each."""

    def __init__(self, blocks: int, size: int, granule: int) -> None:
        self.size, self.granule = size, granule
        self.pitch = -(-max(size, 1) // 16) * 16
        self._data = np.full(blocks * self.pitch, 0xFF, np.uint8)  # NaN until a thread writes
        count = blocks * self.pitch // granule
        self._writer, self._reader = np.zeros(count, np.int32), np.zeros(count, np.int32)
        # the epochs of the last write and read
        self._written, self._read = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
        self._coming = np.zeros(count, np.int32)  # number of unfinished copies to each granule
        self.epoch = 0  # number of passed barriers

    def load(self, at: Array, dtype: np.dtype[Any], block: Array, thread: Array, width: int = 0) -> Array:
        """at: for each lane, the byte in its block's memory. width: the bytes of the whole access, for its
        alignment."""
        place = self._place(at, dtype.itemsize, block, width)
        self.note_read(place, dtype.itemsize, thread)
        return self._data.view(dtype)[place // dtype.itemsize]

    def store(self, at: Array, values: Array, block: Array, thread: Array, width: int = 0) -> None:
        place = self._place(at, values.itemsize, block, width)
        self.note_write(place, values.itemsize, thread)
        self._data.view(values.dtype)[place // values.itemsize] = values

    def load_rows(self, at: Array, block: Array, thread: Array) -> Array:
        """Loads 16 bytes from each address, as eight uint16. [n] ▶ [n, 8]."""
        place = self._place(at, 16, block, 16)
        self.note_read(place, 16, thread)
        return self._data.view(np.uint16).reshape(-1, 8)[place // 16]

    # -- unfinished copies --------------------------------------------------------------------------------

    def send(self, at: Array, size: int, block: Array, thread: Array) -> Array:
        """Starts a copy of `size` bytes to each address. Returns the positions where the data will arrive."""
        place = self._place(at, size, block, size)
        cells = self._cells(place, size)
        self._check_write(cells, thread)
        np.add.at(self._coming, cells, 1)
        return place

    def land(self, place: Array, data: Array, thread: Array) -> None:
        """Finishes copies. data: [n, size] uint8."""
        size = data.shape[1]
        np.subtract.at(self._coming, self._cells(place, size), 1)
        self.note_write(place, size, thread)
        self._data[place[:, None] + np.arange(size)] = data

    # -- races --------------------------------------------------------------------------------------------

    def note_read(self, place: Array, size: int, thread: Array) -> None:
        cells, who = self._cells(place, size), thread[:, None]
        if self._coming[cells].any():
            raise CardFault("copy on its way", "shared memory is read before a cp.async to it has arrived")
        if ((self._written[cells] == self.epoch) & (self._writer[cells] != who)).any():
            raise CardFault("race", "a thread reads what another has written without a barrier between")
        others = (self._read[cells] == self.epoch) & (self._reader[cells] != who)
        self._read[cells] = self.epoch
        self._reader[cells] = who
        self._reader[cells[others | (self._reader[cells] != who)]] = MANY

    def note_write(self, place: Array, size: int, thread: Array) -> None:
        cells, who = self._cells(place, size), thread[:, None]
        self._check_write(cells, thread)
        self._written[cells] = self.epoch
        self._writer[cells] = who
        if (self._writer[cells] != who).any():
            raise CardFault("race", "two threads write one place of shared memory at once")

    def _check_write(self, cells: Array, thread: Array) -> None:
        who = thread[:, None]
        if self._coming[cells].any():
            raise CardFault(
                "copy on its way", "shared memory is written while a cp.async to it is on its way"
            )
        if ((self._written[cells] == self.epoch) & (self._writer[cells] != who)).any():
            raise CardFault("race", "two threads write one place of shared memory without a barrier between")
        if ((self._read[cells] == self.epoch) & (self._reader[cells] != who)).any():
            raise CardFault("race", "a thread overwrites what another has read without a barrier between")

    def _cells(self, place: Array, size: int) -> Array:
        """The granules of each access. [n] ▶ [n, size / granule]."""
        return (place // self.granule)[:, None] + np.arange(max(1, size // self.granule))

    def _place(self, at: Array, size: int, block: Array, width: int) -> Array:
        at = at.astype(np.int64)
        if len(at) and (at.min() < 0 or at.max() + size > self.size):
            raise CardFault("cudaErrorIllegalAddress", "an access of shared memory is outside of the block's")
        if (at % size).any() or (width and (at % min(width, 16)).any() and size == width):
            raise CardFault("cudaErrorMisalignedAddress", f"a shared access of {size} bytes is not aligned")
        return block * self.pitch + at
