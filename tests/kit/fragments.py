"""Divides the address space of a test's child into pieces, as large libraries and arrays do.

python -m fragments 8 torch,jax CODE [ARGUMENT…]      runs the code beside these modules; holes of 8 KiB
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import mmap
import sys
from itertools import pairwise

RESERVED = 3 << 30  # bytes without access that new maps come to lie around; they take no memory
APART = 160 << 10  # from hole to hole: some 20,000 holes, of the 65,530 maps that Linux allows

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_SIZE, _INT = ctypes.c_size_t, ctypes.c_int
_libc.mmap.argtypes = (ctypes.c_void_p, _SIZE, _INT, _INT, _INT, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_NO_RESERVE, _NO_REPLACE = 0x4000, 0x100000  # of Linux


def fragment(hole_bytes: int) -> int:
    """Reserves 3 GB below everything that is mapped, and opens holes in it. Returns the number of holes. A
    later mapping lies in a hole if it fits, otherwise 3 GB away, because the gaps between libraries are
    filled.
    """
    base = _reserve(None, RESERVED)
    for start, end in _gaps(base):
        _reserve(start, end - start)
    places = range(base + APART, base + RESERVED - APART, APART)
    assert not any(_libc.munmap(place, hole_bytes) for place in places)
    return len(places)


def _reserve(at: int | None, size: int) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE | (_NO_REPLACE if at else 0)
    found = _libc.mmap(at, size, 0, flags, -1, 0)
    failed = found == ctypes.c_void_p(-1).value
    # another thread, of torch say, may have taken the gap since
    assert not failed or (at and ctypes.get_errno() == errno.EEXIST), ctypes.get_errno()
    return int(found)


def _gaps(above: int) -> list[tuple[int, int]]:
    """The free ranges between `above` and the last map before the stack."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        lines = [line.split() for line in maps]
    ends = [tuple(int(x, 16) for x in line[0].split("-")) for line in lines if "[stack]" not in line]
    inside = [(start, end) for start, end in ends if above <= start < 1 << 47]
    return [(end, start) for (_, end), (start, _) in pairwise(inside) if end < start]


if __name__ == "__main__":
    import llvmlite.binding as llvm  # what is loaded before may lie where it likes
    import numpy  # noqa: F401

    llvm.initialize_native_target()
    for module in filter(None, sys.argv[2].split(",")):
        importlib.import_module(module)
    fragment(int(sys.argv[1]) << 10)
    code, sys.argv = sys.argv[3], ["-c", *sys.argv[4:]]
    exec(code, {"__name__": "__main__"})
