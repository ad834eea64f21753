"""Finds whether this process may use AMX's tiles: Linux grants their 8 KiB of registers only on request.

Source: Linux, Documentation/arch/x86/xstate.rst, "Using dynamically enabled XSTATE features".
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

PRODUCTS = frozenset({"amx-int8", "amx-bf16"})  # features of object code that multiplies tiles
TILES = PRODUCTS | {"amx-tile"}  # features of processors that have tiles
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18  # constants of Linux on x86-64


@cache
def may_use_tiles() -> bool:
    """Requests the tiles. False if the system refuses them, or if it has no such request."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    asked: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA)
    return asked == 0


__all__ = ["PRODUCTS", "TILES", "may_use_tiles"]
