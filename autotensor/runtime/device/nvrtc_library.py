"""NVRTC, CUDA's compiler, as a library: where it is found, and the options for compiling all our kernels.

library()      from NVIDIA's wheels, else the system's; CuPy finds NVRTC once it is loaded
"""

from __future__ import annotations

import ctypes
import importlib.util
from ctypes.util import find_library
from functools import lru_cache
from pathlib import Path

INSTALL = "Install it with: pip install nvidia-cuda-nvrtc-cu12"
# Subnormal numbers keep their values. CuPy's own compilations turn them into zeros.
OPTIONS = ("--std=c++17", "--extra-device-vectorization", "--ftz=false")
# for CUDA 12, and for CUDA 13 and later
_IN_WHEELS = ("cuda_nvrtc/lib/libnvrtc.so.*", "cu*/lib/libnvrtc.so.*")


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
