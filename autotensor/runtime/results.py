"""Memory of results: it is reused when the last reference is gone, and keeps its distance from the inputs'.

A call that makes a new result requests memory. The system hands out pages on first touch: 4 MiB cost 0.3 to
0.9 ms, more than many kernels take. Whether a freed block goes back to the system at once is decided by the C
library, and depends on the other memory of the process. So a result's block comes back to this module, and
the next call uses it.

    y = f(x)      a block, lent to y and to every view of y
    y = f(x)      another block: the first y still holds the first block while f runs, then it comes back
    y = f(x)      the first block again
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

LEAST = 128 * 1024  # in bytes; the C library itself keeps smaller blocks
MOST = 32 * 1024 * 1024  # most idle bytes that are kept for one size
_PAGE = 4096
_SIZES = 8  # number of sizes that are kept; with one more, all are forgotten
_BLOCKS = 4  # number of blocks that are kept for one size

_Block = ctypes.Array[ctypes.c_char]

# Each access to this is one operation of CPython, because a result may die in any thread, also during a
# garbage collection. A lock could be held by the very thread that the collection has interrupted.
_idle: dict[int, deque[_Block]] = {}


class _Lent(np.ndarray[Any, np.dtype[Any]]):
    """A block while a result uses it. The result holds this object, and views of the result hold the result.

    In NumPy, a view of an array holds the array's base instead of the array only if both have the same class.
    """

    def __del__(self) -> None:
        if isinstance(block := self.base, ctypes.Array):  # else it is a view of an array that was lent
            _take_back(block)


def result_array(shape: tuple[int, ...], dtype: np.dtype[Any], beside: Iterable[Array] = ()) -> Array:
    """A row-major array at a multiple of 64 bytes. Its contents are undefined.

    `beside`: arrays that the kernel reads or writes in the same call. Arrays that are not NumPy's are
    ignored.
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
    """The offset in a page at which a result begins, far from the offsets of the call's other arrays.

    If a load has the same offset in its page as a recent store has in another page, a core takes the load for
    one of the stored data, and waits. A stencil from the start of one page to the start of another took 2.4
    times as long on Zen 3.
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
