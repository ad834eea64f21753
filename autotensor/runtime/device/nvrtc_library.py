"""NVRTC, CUDA's compiler, as a library: its place, and the options for compiling all our kernels.

library()      from NVIDIA's wheels, else the system's; once it is loaded, CuPy finds it, too
"""

from __future__ import annotations

import ctypes
import importlib.util
from ctypes.util import find_library
from functools import lru_cache
from pathlib import Path

INSTALL = "Install it with: pip install nvidia-cuda-nvrtc-cu12"
# Subnormal numbers stay what they are; CuPy's own compilations turn them into zeros.
OPTIONS = ("--std=c++17", "--extra-device-vectorization", "--ftz=false")
_IN_WHEELS = ("cuda_nvrtc/lib/libnvrtc.so.*", "cu*/lib/libnvrtc.so.*")  # for CUDA 12, and from 13 on


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The library from its wheel, or the system's; None if there is none."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for pattern in _IN_WHEELS:
            for file in sorted(Path(folder).glob(pattern)):
                return ctypes.CDLL(str(file))
    found = find_library("nvrtc")
    return ctypes.CDLL(found) if found else None
