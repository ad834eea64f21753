"""Whether this process may use AMX's tiles: Linux grants their 8 KiB of registers only on request.

Source: Linux, Documentation/arch/x86/xstate.rst, "Using dynamically enabled XSTATE features".
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

PRODUCTS = frozenset({"amx-int8", "amx-bf16"})  # features of objects in which there are such instructions
TILES = PRODUCTS | {"amx-tile"}  # of processors that have them
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18  # numbers of x86-64


@cache
def may_use_tiles() -> bool:
    """Requests them; False where that is refused, or where there is no such request."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    asked: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA)
    return asked == 0


__all__ = ["PRODUCTS", "TILES", "may_use_tiles"]
