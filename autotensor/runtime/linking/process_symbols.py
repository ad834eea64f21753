"""Symbols that the libraries of this process define, by name."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

# Libraries in addition to those that the interpreter was linked with: mathematical functions, and functions
# that compilers call, to convert float16, for example.
_LIBRARIES = ("libm.so.6", "libm.so", "libm.dylib", "libgcc_s.so.1")


def address_of(symbol: str) -> int | None:
    """The address of a symbol, None if no library of this process defines it."""
    for library in _libraries():
        with suppress(AttributeError):
            return ctypes.cast(library[symbol], ctypes.c_void_p).value
    return None


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    found = [ctypes.CDLL(None)]
    for name in _LIBRARIES:
        with suppress(OSError):
            found.append(ctypes.CDLL(name))
    return tuple(found)
