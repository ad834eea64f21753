"""CUDA through CuPy: kernels as CuPy's modules, memory as CuPy's arrays, a whole plan as one CUDA graph.

Everything here needs a card. The contract and the tests are the same as for OpenCL, and no other file of
autotensor uses CuPy. NVRTC compiles with our own options, through the functions that CuPy has for NVRTC.
CuPy's `RawModule` would add `-ftz=true`, which turns the smallest numbers into zeros. Binaries are kept in
the object cache.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from autotensor.base.errors import ArtifactError, TargetError
from autotensor.runtime.arrays import Array
from autotensor.runtime.device import nvrtc_library
from autotensor.runtime.device.contract import DeviceCall, Memory, Run
from autotensor.runtime.device.device_identity import DeviceIdentity
from autotensor.runtime.files.object_cache import default_cache, object_key

INSTALL = "pip install 'autotensor[cuda12x]'"
STATIC_SHARED_BYTES = 48 << 10  # a kernel that needs more must request it
VECTOR_BYTES = 16  # the widest memory access of a kernel: arrays begin at multiples of this many bytes


class CudaDevice:
    """A device of contract.py on CuPy."""

    kind = "cuda"
    alignment = 256

    def __init__(self) -> None:
        """Raises TargetError when CuPy, NVRTC, a driver or a card is missing."""
        self._cupy = cupy = _cupy()
        self._nvrtc_version = _nvrtc_version(cupy)
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = properties["name"].decode()
        self.capability = int(properties["major"]) * 10 + int(properties["minor"])
        self._properties = properties
        self.identity = DeviceIdentity(
            self.name,
            int(properties["totalGlobalMem"]),
            int(properties["multiProcessorCount"]),
            str(cupy.cuda.runtime.driverGetVersion() / 1000),  # 12080 means CUDA 12.8
        )
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self.lock = threading.RLock()
        self._modules: dict[bytes, Any] = {}

    @property
    def limits(self) -> dict[str, int]:
        """The card's properties, by the names of Target's fields."""
        p = self._properties
        return {
            "num_cores": int(p["multiProcessorCount"]),
            "max_threads_per_block": int(p["maxThreadsPerBlock"]),
            "max_shared_bytes": int(p["sharedMemPerBlockOptin"]),
            "warp_size": int(p["warpSize"]),
        }

    def allocate(self, size: int) -> Memory:
        try:
            return self._cupy.empty(max(1, size), np.uint8)
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            raise TargetError(f"{self.name} has no {size:,} bytes of memory left: {error}.") from error

    def part(self, memory: Memory, offset: int, size: int) -> Memory:
        return memory[offset : offset + max(1, size)]

    def write(self, memory: Memory, array: Array) -> None:
        if array.nbytes:
            given = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            with self.failing("a copy to the card"):
                memory[: array.nbytes].set(given, self._stream)
            self.finish()

    def read(self, memory: Memory, into: Array) -> None:
        if into.nbytes:
            with self.failing("a kernel, or the copy from the card,"):
                memory[: into.nbytes].get(self._stream, out=into.reshape(-1).view(np.uint8))
            self.finish()

    def copy(self, source: Memory, into: Memory, size: int) -> None:
        with self.failing("a copy on the card"), self._stream:
            into[:size] = source[:size]

    def plan(self, sources: Sequence[bytes], calls: Sequence[DeviceCall]) -> Run:
        return _Launches(self._cupy, self._stream, [self._bound(sources[c.object], c) for c in calls], self)

    def finish(self) -> None:
        with self.failing("a kernel"):
            self._stream.synchronize()

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Turns errors of CUDA's runtime and driver into a TargetError that says what failed."""
        cuda = self._cupy.cuda
        try:
            yield
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
            raise TargetError(f"{what} failed on {self.name}: {error}.") from error

    def seconds(self, run: Run, count: int) -> float:
        cuda = self._cupy.cuda
        first, last = cuda.Event(), cuda.Event()
        self.finish()
        with self.failing("a kernel"):
            first.record(self._stream)
            for _ in range(count):
                run()
            last.record(self._stream)
        self.finish()
        return float(cuda.get_elapsed_time(first, last)) * 1e-3

    def foreign(self, array: Any) -> Memory | None:
        """The memory of any library's row-major array that has `__cuda_array_interface__`."""
        if not hasattr(array, "__cuda_array_interface__"):
            return None
        found = self._cupy.asarray(array)
        if not found.flags.c_contiguous:
            raise TargetError("an array on the card is not row-major.", fix="Give a contiguous copy of it.")
        over = array.__cuda_array_interface__["data"][0] % VECTOR_BYTES
        if over:
            raise TargetError(
                f"an array on the card begins {over} bytes after a multiple of {VECTOR_BYTES}, where no "
                "vector can be loaded.",
                fix="Give a copy of it.",
            )
        # our stream must not read before the owner's stream has written
        self._cupy.cuda.get_current_stream().synchronize()
        return found.reshape(-1).view(np.uint8)

    def _bound(self, source: bytes, call: DeviceCall) -> tuple[Any, DeviceCall]:
        if source not in self._modules:
            self._modules[source] = self._built(source)
        driver = self._cupy.cuda.driver
        try:
            kernel = self._modules[source].get_function(call.kernel)
            most = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel.ptr)
            if call.threads > most:
                registers = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, kernel.ptr)
                raise ArtifactError(
                    f"kernel {call.kernel!r} needs {call.threads} threads a block, {self.name} can run "
                    f"{most} of it with its {registers} registers a thread.",
                    fix="Bind smaller axes to threadIdx, or compute fewer elements per thread.",
                )
            if call.dynamic_shared_bytes > STATIC_SHARED_BYTES:
                wanted = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                driver.funcSetAttribute(kernel.ptr, wanted, call.dynamic_shared_bytes)
        except driver.CUDADriverError as error:
            raise ArtifactError(
                f"kernel {call.kernel!r} cannot be set up on {self.name}: {error}."
            ) from error
        return kernel, call

    def _built(self, source: bytes) -> Any:
        """The source as a loaded module. Its machine code comes from the cache, if the cache has it."""
        cuda, cache = self._cupy.cuda, default_cache()
        versions = (self._cupy.__version__, self._nvrtc_version, str(self.capability))
        key = object_key("cuda", source, *versions, *nvrtc_library.OPTIONS)
        binary = cache.get(key)
        if binary is None:
            binary = cache.put(key, self._compiled(source.decode()))
        module = cuda.Module()
        try:
            module.load(binary)
        except cuda.driver.CUDADriverError as error:
            raise ArtifactError(
                f"{self.name}, whose driver is of CUDA {self.identity.driver}, does not load what NVRTC "
                f"{self._nvrtc_version} has made: {error}.",
                fix="Install the NVRTC of the driver's CUDA, or a newer driver.",
            ) from error
        return module

    def _compiled(self, source: str) -> bytes:
        """Machine code for the card, or PTX, which the driver compiles, if NVRTC is older than the card."""
        nvrtc = self._cupy.cuda.nvrtc
        known = max((a for a in nvrtc.getSupportedArchs() if a <= self.capability), default=0)
        if not known:
            raise TargetError(
                f"NVRTC {self._nvrtc_version} does not compile for {self.name}, a card of capability "
                f"{self.capability / 10}.",
                fix=f"Take an older one: {INSTALL}.",
            )
        of_its_own = known // 10 == self.capability // 10
        options = (f"--gpu-architecture={'sm' if of_its_own else 'compute'}_{known}", *nvrtc_library.OPTIONS)
        program = nvrtc.createProgram(source, "kernels.cu", (), ())
        try:
            nvrtc.compileProgram(program, options)
            binary: bytes = nvrtc.getCUBIN(program) if of_its_own else nvrtc.getPTX(program)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise ArtifactError(f"NVRTC refuses the kernel source: {error}: {log}") from error
        finally:
            nvrtc.destroyProgram(program)
        return binary


class _Launches:
    """The launches of a plan. From the second run on, they are one CUDA graph."""

    def __init__(self, cupy: Any, stream: Any, bound: Sequence[tuple[Any, DeviceCall]], device: Any) -> None:
        self._cupy, self._stream, self._bound, self._device = cupy, stream, bound, device
        self._runs = 0
        self._graph: Any = None

    def __call__(self) -> None:
        with self._device.failing("the launch of a kernel"):
            self._start()

    def _start(self) -> None:
        if self._graph is not None:
            self._graph.launch(self._stream)
            return
        self._runs += 1
        # the first launch loads modules; capturing a graph cannot load them
        if self._runs == 1 or len(self._bound) < 2:
            self._launch()
            return
        self._device.finish()
        with self._stream:
            self._stream.begin_capture()
            self._launch()
            self._graph = self._stream.end_capture()
        self._graph.launch(self._stream)

    def _launch(self) -> None:
        with self._stream:
            for kernel, call in self._bound:
                kernel(call.grid, call.block, call.memories, shared_mem=call.dynamic_shared_bytes)


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise TargetError(
            "target 'cuda' needs CuPy, which is not installed.",
            fix=f"{INSTALL} (cuda13x for drivers of CUDA 13).",
        ) from error
    try:
        cards = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise TargetError(
            f"target 'cuda' finds no driver for an NVIDIA card here ({error}).",
            fix="Install NVIDIA's driver, or use --target opencl.",
        ) from error
    if cards == 0:
        raise TargetError("target 'cuda' finds no NVIDIA card here.", fix="Use --target opencl.")
    return cupy


def _nvrtc_version(cupy: Any) -> str:
    """NVRTC's version, such as "12.9". CuPy 13 finds NVRTC in its wheel only after the library is loaded."""
    nvrtc_library.library()
    try:
        return ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
    except RuntimeError as error:
        raise TargetError(
            f"target 'cuda' needs NVRTC, which compiles its kernels, and finds none here ({error}).",
            fix=f"{INSTALL} (cuda13x for drivers of CUDA 13).",
        ) from error
