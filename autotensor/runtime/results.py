"""Memory of results: reused when the last reference is gone, and begun elsewhere in a page than the inputs.

A call that makes its result requests memory, and the system hands out pages on first touch: 4 MiB
cost 0.3 to 0.9 ms, more than many a kernel takes. The C library decides whether a freed block goes back to
the system at once, by the other memory of the process. So a result's block comes back here and serves the
next call.

    y = f(x)      a block, lent to y and to every view of it
    y = f(x)      another one: the first y is still held while f runs; then the first comes back
    y = f(x)      the first one again
"""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from autotensor.runtime.arrays import ALIGNMENT, Array, address, aligned_empty

LEAST = 128 * 1024  # bytes; the C library keeps smaller ones itself
MOST = 32 * 1024 * 1024  # idle bytes that are kept for one size
_PAGE = 4096
_SIZES = 8  # sizes that are kept; beyond so many all are forgotten
_BLOCKS = 4  # blocks that are kept for one size

_Block = ctypes.Array[ctypes.c_char]

# Every step on these is one operation of CPython's, for results die in any thread, also during a collection:
# a lock could be held by whom the collection interrupted.
_idle: dict[int, deque[_Block]] = {}


class _Lent(np.ndarray[Any, np.dtype[Any]]):
    """A block while a result is in it. The result holds it, and views of the result hold the result.

    NumPy lets a view hold what is below the array it was taken from only where both are of one class.
    """

    def __del__(self) -> None:
        if isinstance(block := self.base, ctypes.Array):  # else it is a view of one that was lent
            _take_back(block)


def result_array(shape: tuple[int, ...], dtype: np.dtype[Any], beside: Iterable[Array] = ()) -> Array:
    """A row-major array at a multiple of 64 bytes; contents undefined.

    `beside`: arrays that the kernel reads or writes in the same call; others than NumPy's are passed over.
    """
    size = math.prod(shape) * dtype.itemsize
    if not LEAST <= size <= MOST:
        return aligned_empty(shape, dtype)
    try:
        block = _idle[size].pop()
    except (KeyError, IndexError):
        block = (ctypes.c_char * (size + 2 * _PAGE)).from_buffer(
            aligned_empty((size + 2 * _PAGE,), "uint8").data
        )
    low = [address(a) % _PAGE for a in beside if type(a) is np.ndarray and a.nbytes >= LEAST]
    skipped = -ctypes.addressof(block) % _PAGE + _middle_of_the_widest_gap(low)
    return np.ndarray(shape, dtype, _Lent((size,), np.uint8, memoryview(block), skipped))


def _middle_of_the_widest_gap(low: list[int]) -> int:
    """The offset in a page of a result's beginning: far from those of the call's other arrays.

    A core takes a load for one of data that it has just stored where both have the same place in their pages,
    and waits: a stencil from a page's start to a page's start took 2.4 times as long on Zen 3.
    """
    if not low:
        return 0
    low.sort()
    width, start = max((stop - start, start) for start, stop in pairwise((*low, low[0] + _PAGE)))
    return (start + width // 2) % _PAGE // ALIGNMENT * ALIGNMENT


def _take_back(block: Any) -> None:
    size = len(block) - 2 * _PAGE
    if size not in _idle and len(_idle) >= _SIZES:
        _idle.clear()
    _idle.setdefault(size, deque(maxlen=min(_BLOCKS, MOST // size))).append(block)
