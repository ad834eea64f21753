"""Memory of results: it is reused when the last reference is gone, and keeps its distance from the inputs'.

A call that makes a new result requests memory. The system hands out pages on first touch: 4 MiB cost 0.3 to
0.9 ms, more than many kernels take. The C library decides whether a freed block goes back to the system at
once, and this depends on the other memory of the process. So this module keeps the last blocks. A block's
reference count says whether something still uses the block. If nothing does, the next call takes the block.

    y = f(x)      a block, lent to y and to every view of y
    y = f(x)      another block: the first y still holds the first block while f runs, then it comes back
    y = f(x)      the first block again
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from sys import getrefcount
from typing import Any

import numpy as np

from autotensor.runtime.arrays import ALIGNMENT, Array, address, aligned_empty

Shape = tuple[int, ...]
Numpy = np.dtype[Any]

LEAST = 128 * 1024  # in bytes; the C library itself keeps smaller blocks
MOST = 32 * 1024 * 1024  # most bytes of blocks that are kept for one size
_PAGE = 4096
_SIZES = 8  # number of sizes that are kept; with one more, all are forgotten
_BLOCKS = 4  # number of blocks that are kept for one size

# The last blocks of each size, used or not. Each access to this is one operation of CPython, so threads need
# no lock. Only the thread that has popped a block can see it.
_blocks: dict[int, deque[Array]] = {}


def result_arrays(kinds: Iterable[tuple[Shape, Numpy]], beside: Iterable[Any] = ()) -> list[Array]:
    """A row-major array for each shape and type, at a multiple of 64 bytes. The contents are undefined.

    `beside`: arrays that the kernel reads or writes in the same call. Arrays that are not NumPy's are
    ignored.
    """
    low = [address(a) % _PAGE for a in beside if type(a) is np.ndarray and a.nbytes >= LEAST]
    made: list[Array] = []
    for shape, dtype in kinds:
        if made and made[-1].nbytes >= LEAST:
            low.append(address(made[-1]) % _PAGE)
        made.append(result_array(shape, dtype, tuple(low)))
    return made


def result_array(shape: Shape, dtype: Numpy, low: tuple[int, ...] = ()) -> Array:
    """One of `result_arrays`, far from these offsets in a page."""
    size = math.prod(shape) * dtype.itemsize
    if not LEAST <= size <= MOST:
        return aligned_empty(shape, dtype)
    known = _blocks.get(size) or _blocks_of(size)
    block = _idle_block(known)
    if block is None:
        block = np.empty(size + 2 * _PAGE, np.uint8)
    skipped = -address(block) % _PAGE + _middle_of_the_widest_gap(low)
    known.append(block)
    return np.ndarray(shape, dtype, block, skipped)


def _blocks_of(size: int) -> deque[Array]:
    if size not in _blocks and len(_blocks) >= _SIZES:
        _blocks.clear()
    return _blocks.setdefault(size, deque(maxlen=min(_BLOCKS, MOST // size)))


def _idle_block(known: deque[Array]) -> Array | None:
    """Takes out the block that was lent last, of those that are not lent now; None if all are lent."""
    for _ in range(len(known)):
        try:
            block, references = _popped(known)
        except IndexError:  # another thread has taken the other blocks
            return None
        if references == _ALONE:
            return block
        known.appendleft(block)
    return None


def _popped(known: deque[Array]) -> tuple[Array, int]:
    """A block, and its number of references. A result and all views of it hold the result's block."""
    block = known.pop()
    return block, getrefcount(block)


_ALONE = _popped(deque([np.empty(0, np.uint8)]))[1]


@lru_cache(maxsize=1 << 10)
def _middle_of_the_widest_gap(low: tuple[int, ...]) -> int:
    """The offset in a page at which a result begins, far from the offsets of the call's other arrays.

    If a load has the same offset in its page as a recent store has in another page, a core takes the load for
    one of the stored data, and waits. A stencil from the start of one page to the start of another took 2.4
    times as long on Zen 3.
    """
    if not low:
        return 0
    widest = start = 0
    before = max(low) - _PAGE
    for at in sorted(low):
        if at - before >= widest:
            widest, start = at - before, before
        before = at
    return (start + widest // 2) % _PAGE // ALIGNMENT * ALIGNMENT
