"""Held: arrays that candidates only read, kept between fences as long as a task lasts.

    held = Held([Need("w", …), …])      ▒ w ▒        the caller fills held.arrays["w"]
    held.seal()                                      from now on they are read-only
    held.complaint() ──▶ "" or the name of a changed array, which is restored

Small arrays are compared with a copy after every run. Large arrays are in pages of their own, which are write
protected: a kernel that writes there ends its process. This takes no time, however large the arrays are.
Comparing the 400 MB of VGG-16's largest weights would take longer than the kernel.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence

import numpy as np

from autotensor.runtime.arrays import Array, address
from autotensor.search.measuring.candidate_memory import Fenced, Need, Slab, lay, room_of, same_bytes

PROTECTED_BYTES = 1 << 20  # least size of a protected array; comparing smaller ones takes less than 0.1 ms
_READ_ONLY = 1  # PROT_READ
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Held:
    """Arrays by name; the caller fills them before `seal`."""

    def __init__(self, needs: Sequence[Need], shift: int = 0, changed: str = "it changed its input") -> None:
        """shift: the number of elements from an aligned address to an array. changed: the complaint's text
        before an array's name."""
        self._changed = changed
        self._pages: list[Array] = []  # pages of the large arrays, each with its fences
        self._copies: dict[str, Array] = {}
        small = [n for n in needs if n.bytes < PROTECTED_BYTES]
        self.fenced: dict[str, Fenced] = {f.name: f for f in Slab().place(small, shift)}
        for need in needs:
            if need.bytes >= PROTECTED_BYTES:
                pages = _pages(room_of(need, shift))
                self.fenced[need.name] = lay(need, pages, 0, shift)
                self._pages.append(pages)

    @property
    def arrays(self) -> dict[str, Array]:
        return {name: f.array for name, f in self.fenced.items()}

    @property
    def bytes(self) -> int:
        """Size in memory, roughly."""
        return sum(f.array.nbytes for f in self.fenced.values())

    def trap(self) -> None:
        """Fills the arrays with bits that no right answer contains."""
        for f in self.fenced.values():
            f.trap()

    def broken(self) -> str:
        """A complaint about the first fence that was written to; "" when all are intact."""
        return next((c for f in self.fenced.values() if (c := f.complaint())), "")

    def seal(self) -> None:
        """Makes the present contents of the arrays permanent."""
        self._copies = {
            name: f.array.copy() for name, f in self.fenced.items() if f.array.nbytes < PROTECTED_BYTES
        }
        for pages in self._pages:
            if _libc.mprotect(address(pages), pages.nbytes, _READ_ONLY):
                error = ctypes.get_errno()
                raise OSError(error, f"large inputs cannot be protected: {os.strerror(error)}")

    def complaint(self) -> str:
        """A complaint about the first change of sealed arrays or their fences. All changes are undone."""
        found = ""
        for name, copy in self._copies.items():
            fenced = self.fenced[name]
            if complaint := fenced.complaint():
                found = found or complaint
                fenced.mend()
            if not same_bytes(fenced.array, copy):
                found = found or f"{self._changed} {name!r}"
                fenced.array[...] = copy
        return found


def _pages(size: int) -> Array:
    """Whole pages for this many bytes. They are released with the last array in them."""
    block = mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)  # NumPy does the same for arrays of this size
    return np.frombuffer(block, np.uint8)
