"""Arrays that end where memory ends, so that a read or a write beyond them ends the process.

a = fenced(np.arange(5.0))        the byte after a[4] is in a page without access
ended_by(lambda: f(a))            0, or the signal that ended a child in which this was called
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
HAS_FENCES = os.name == "posix"
if HAS_FENCES:
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def fenced(array: Array, begins: bool = False) -> Array:
    """A copy of an array between two pages without access: it ends where the second one begins, or, if
    `begins`, begins where the first one ends. Where pages cannot be closed, a plain copy."""
    if not HAS_FENCES:
        return array.copy()
    page = mmap.PAGESIZE
    room = max(1, -(-array.nbytes // page)) * page
    memory = mmap.mmap(-1, room + 2 * page)
    whole = np.frombuffer(memory, np.uint8)  # the array keeps the map alive
    start = page if begins else page + room - array.nbytes
    made = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    for at in (0, page + room):
        assert _libc.mprotect(whole.ctypes.data + at, page, 0) == 0, os.strerror(ctypes.get_errno())
    return made


def ended_by(call: Callable[[], Any]) -> int:
    """The signal that ends a child that makes this call; 0 if it comes back, -1 if it raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


__all__ = ["ended_by", "fenced"]
