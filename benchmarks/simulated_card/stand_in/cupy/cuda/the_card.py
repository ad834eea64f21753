"""The simulated card itself, and the faults that a rehearsal plants in it. CuPy has nothing like this module.

    STAND_IN_FAULTS='{"kernels/matmul": "hang"}'     while CARD_ITEM is kernels/matmul, launches hang
    STAND_IN_CAPABILITY=75                           another card

FAULTS lists the faults; "*" as an item means all items.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import count as numbers
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from simulated_card.ptx_lanes import CardFault, launch
from simulated_card.ptx_memory import GlobalMemory
from simulated_card.ptx_text import parse

from autotensor.base.errors import CodegenError
from autotensor.codegen.c import nvrtc
from autotensor.codegen.c.nvrtc import Resources
from autotensor.codegen.c.resources import registers_for

MEMORY_BYTES = 4 << 30
MULTIPROCESSORS, SHARED_BYTES, THREADS, WARP = 4, 163 << 10, 1024, 32
STATIC_SHARED_BYTES = 48 << 10
SLOW_S, FOR_EVER_S = 30.0, 1e6
FAULTS = (
    "launch error",
    "wrong number",
    "hang",
    "out of memory",
    "lost device",
    "too few registers",
    "another capability",
    "driver missing",
    "compiler missing",
    "old driver",
    "compile error",
    "child killed",
    "time limit",
    "NaN",
)
_STATUS = {"cudaErrorIllegalAddress": 700, "cudaErrorMisalignedAddress": 716}

_memory = GlobalMemory(MEMORY_BYTES)
_numbers = numbers(1)
_kernels: WeakValueDictionary[int, LoadedKernel] = WeakValueDictionary()
# the first error of a kernel; after it, every call of the process raises it
_lost: list[tuple[int, str]] = []


def planted() -> str:
    """The fault that is planted for the current item; "" for none."""
    faults: dict[str, str] = json.loads(os.environ.get("STAND_IN_FAULTS", "{}"))
    return faults.get(os.environ.get("CARD_ITEM", ""), faults.get("*", ""))


def capability() -> int:
    return 75 if planted() == "another capability" else int(os.environ.get("STAND_IN_CAPABILITY", "80"))


def count() -> int:
    from cupy.cuda.runtime import CUDARuntimeError

    if planted() == "driver missing":
        raise CUDARuntimeError(35, "CUDA driver version is insufficient for CUDA runtime version")
    return 1


def properties() -> dict[str, Any]:
    major, minor = divmod(capability(), 10)
    return {
        "name": b"a card made of NumPy",
        "major": major,
        "minor": minor,
        "totalGlobalMem": MEMORY_BYTES,
        "multiProcessorCount": MULTIPROCESSORS,
        "maxThreadsPerBlock": THREADS,
        "sharedMemPerBlockOptin": SHARED_BYTES,
        "warpSize": WARP,
    }


def allocate(size: int) -> tuple[int, np.ndarray[Any, Any]]:
    from cupy.cuda.memory import OutOfMemoryError

    check()
    if planted() == "out of memory":
        raise OutOfMemoryError(size, _memory.used)
    try:
        return _memory.allocate(size)
    except CardFault as fault:
        raise OutOfMemoryError(size, _memory.used) from fault


def free(base: int) -> None:
    _memory.free(base)


def check() -> None:
    """Raises the first error of a kernel in this process again, because a context does not recover."""
    if _lost:
        fail(*_lost[0])


def fail(status: int, what: str) -> None:
    from cupy.cuda.runtime import CUDARuntimeError

    if not _lost:
        _lost.append((status, what))
    raise CUDARuntimeError(status, what)


class Refused(Exception):
    """NVRTC refuses a source; the message is NVRTC's."""


def nvrtc_version() -> tuple[int, int]:
    version = nvrtc.version()
    if planted() == "compiler missing" or not version:
        raise RuntimeError("CuPy failed to load libnvrtc.so.12")
    major, minor = version.split(".")
    return int(major), int(minor)


def compiled(code: str, options: tuple[str, ...]) -> bytes:
    """NVRTC's output for a source with these options. Raises Refused."""
    if planted() == "compile error":
        code += "\n#error planted\n"
    try:
        return _compiled(code, options)
    except CodegenError as error:
        raise Refused(error.what) from error


@lru_cache(maxsize=256)
def _compiled(code: str, options: tuple[str, ...]) -> bytes:
    """PTX, and in a comment before it the resources of its kernels."""
    (architecture,) = (o.partition("=")[2] for o in options if o.startswith("--gpu-architecture="))
    ptx = nvrtc.ptx_of(code, architecture, [o for o in options if not o.startswith("--gpu-architecture=")])
    takes = {n: asdict(r) for n, r in nvrtc.resources_of(code, architecture.replace("compute", "sm")).items()}
    return f"//{json.dumps(takes)}\n{ptx}".encode()


@lru_cache(maxsize=256)
def _parsed(binary: bytes) -> dict[str, Any]:
    """The kernels and their resources, by name."""
    text = binary.decode()
    takes = json.loads(text[2 : text.index("\n")])
    return {name: (kernel, Resources(**takes[name])) for name, kernel in parse(text).items()}


class LoadedModule:
    """A module that NVRTC has compiled, and its kernels."""

    def __init__(self) -> None:
        self._kernels: dict[str, Any] = {}

    def load(self, cubin: bytes) -> None:
        from cupy.cuda.driver import CUDADriverError

        if not isinstance(cubin, bytes):
            raise TypeError("load takes bytes")
        if planted() == "old driver":
            raise CUDADriverError(222)
        self._kernels = _parsed(cubin)

    def get_function(self, name: str) -> LoadedKernel:
        from cupy.cuda.driver import CUDADriverError

        if name not in self._kernels:
            raise CUDADriverError(500)
        return LoadedKernel(self._kernels[name])


class LoadedKernel:
    """A kernel with its own limits, which is called as in CuPy."""

    def __init__(self, found: Any) -> None:
        self._kernel, takes = found
        few = planted() == "too few registers"
        self.registers = 255 if few else takes.registers
        self.most_threads = 1 if few else _threads(takes.registers)
        self.dynamic_bytes = STATIC_SHARED_BYTES - self._kernel.shared_bytes
        self._number = next(_numbers)
        _kernels[self._number] = self

    ptr = property(lambda self: self._number)

    def may_have(self, dynamic_bytes: int) -> bool:
        return bool(dynamic_bytes + self._kernel.shared_bytes <= SHARED_BYTES)

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int = 0
    ) -> None:
        from cupy import cuda

        if not (isinstance(grid, tuple) and isinstance(block, tuple) and isinstance(args, tuple)):
            raise TypeError("grid, block and args are tuples")
        fits = prod(block) <= self.most_threads and max(grid[1:]) < 65536 and max(block) <= THREADS
        if planted() == "launch error" or not fits:
            raise cuda.driver.CUDADriverError(1)
        if shared_mem > max(0, self.dynamic_bytes):
            raise cuda.driver.CUDADriverError(1)
        cuda.get_current_stream().enqueue(lambda: self._run(tuple(grid), tuple(block), args, shared_mem))

    def _run(self, grid: Any, block: Any, args: Sequence[Any], shared_mem: int) -> None:
        fault = planted()
        if fault == "hang":
            time.sleep(FOR_EVER_S)
        if fault == "time limit":
            time.sleep(SLOW_S)
        if fault == "child killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "lost device":
            fail(46, "all CUDA-capable devices are busy or unavailable")
        try:
            launch(self._kernel, _memory, [a.address for a in args], grid, block, shared_mem)
        except CardFault as stopped:
            fail(_STATUS.get(stopped.code, 719), str(stopped))
        for a in args[-1:] if fault in ("NaN", "wrong number") else ():
            data = _memory.bytes_at(a.address, a.nbytes // 4 * 4).view(np.float32)
            data[: len(data) // 2] = np.nan if fault == "NaN" else data[: len(data) // 2] * 1.5 + 1


def kernel_at(number: int) -> LoadedKernel:
    return _kernels[number]


def _threads(registers: int) -> int:
    """The largest block size at which each thread can have so many registers."""
    return next(n for n in range(THREADS, 0, -WARP) if registers_for(n) >= registers)
