"""The simulated card itself, and the faults that a rehearsal plants in it. Nothing here is CuPy's.

    STAND_IN_FAULTS='{"kernels/matmul": "hang"}'     while CARD_ITEM is kernels/matmul, launches hang
    STAND_IN_CAPABILITY=75                           another card

Faults are those of FAULTS; "*" as an item means all.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from simulated_card.ptx_lanes import CardFault, launch
from simulated_card.ptx_memory import GlobalMemory
from simulated_card.ptx_text import parse

from autotensor.base.errors import CodegenError
from autotensor.codegen.c import nvrtc
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
    "compile error",
    "child killed",
    "time limit",
    "NaN",
)
_STATUS = {"cudaErrorIllegalAddress": 700, "cudaErrorMisalignedAddress": 716}

_memory = GlobalMemory(MEMORY_BYTES)
_lost: list[tuple[int, str]] = []  # after the first error of a kernel every call of the process gives it


def planted() -> str:
    """The fault that is due now."""
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
    """Raises what a kernel of this process has done before: a context does not recover."""
    if _lost:
        fail(*_lost[0])


def fail(status: int, what: str) -> None:
    from cupy.cuda.runtime import CUDARuntimeError

    if not _lost:
        _lost.append((status, what))
    raise CUDARuntimeError(status, what)


def compile(code: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Kernels and what they take, by name."""
    from cupy.cuda.compiler import CompileException

    arch = f"sm_{capability()}"
    if planted() == "compile error":
        code += "\n#error planted\n"
    try:
        kernels, takes = _compiled(code, arch)
    except CodegenError as error:
        raise CompileException(error.what, code, "kern.cu", options, "nvrtc") from error
    return {name: (kernel, takes[name]) for name, kernel in kernels.items()}


@lru_cache(maxsize=256)
def _compiled(code: str, arch: str) -> Any:
    return parse(nvrtc.ptx_of(code, arch)), nvrtc.resources_of(code, arch)


class LoadedKernel:
    """A kernel with its own limits, called as CuPy calls it."""

    def __init__(self, found: Any) -> None:
        self._kernel, takes = found
        few = planted() == "too few registers"
        self._registers = 255 if few else takes.registers
        self._threads = 1 if few else _threads(takes.registers)
        self._dynamic_bytes = STATIC_SHARED_BYTES - self._kernel.shared_bytes

    num_regs = property(lambda self: self._registers)
    max_threads_per_block = property(lambda self: self._threads)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return max(0, self._dynamic_bytes)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        from cupy.cuda.driver import CUDADriverError

        if size + self._kernel.shared_bytes > SHARED_BYTES:
            raise CUDADriverError(1)
        self._dynamic_bytes = size

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], *, shared_mem: int = 0
    ) -> None:
        from cupy import cuda

        if not (isinstance(grid, tuple) and isinstance(block, tuple) and isinstance(args, tuple)):
            raise TypeError("grid, block and args are tuples")
        fits = prod(block) <= self.max_threads_per_block and max(grid[1:]) < 65536 and max(block) <= THREADS
        if planted() == "launch error" or not fits:
            raise cuda.driver.CUDADriverError(1)
        if shared_mem > self.max_dynamic_shared_size_bytes:
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


def _threads(registers: int) -> int:
    """The largest block whose threads can have so many registers."""
    return next(n for n in range(THREADS, 0, -WARP) if registers_for(n) >= registers)
