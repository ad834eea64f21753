"""OpenCL through pyopencl: one in-order queue on a device. The platform's name selects the device.

    AUTOTENSOR_OPENCL=portable, --target "opencl -platform=portable"      "Portable Computing Language": PoCL

Without these, autotensor takes the best known platform that has a device of the target's kind. A simulator
(Oclgrind) is used only if it is named. Compiled programs are kept in the object cache by their content; PoCL
has a cache of its own (pocl_cache.py).
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil

from autotensor.base import log, switches
from autotensor.base.errors import ArtifactError, TargetError
from autotensor.base.target import host
from autotensor.runtime.arrays import Array
from autotensor.runtime.device.contract import DeviceCall, Memory, Run
from autotensor.runtime.device.device_identity import DeviceIdentity
from autotensor.runtime.device.pocl_cache import sweep, use_own_folder
from autotensor.runtime.device.pocl_cpu import GENERIC, UNKNOWN, ZEN_3, name_processor
from autotensor.runtime.files.object_cache import default_cache, object_key

# Best first. Each entry is a part of a platform's name.
PLATFORMS = ("NVIDIA", "AMD", "Intel(R) OpenCL Graphics", "Apple", "rusticl", "Intel", "Portable Computing")
ONLY_WHEN_ASKED = ("Oclgrind",)
INSTALL = "pip install 'autotensor[opencl]'"
OPTIONS = "-cl-std=CL1.2 -cl-mad-enable"  # a product and a sum in one operation, as on the other targets


class OpenCLDevice:
    """A device of contract.py on pyopencl."""

    kind = "opencl"

    def __init__(self, platform: str = "", *, card: bool = False) -> None:
        """platform: a part of the platform's name; "" takes the name in AUTOTENSOR_OPENCL. card: whether a
        card or a processor is preferred.

        Raises TargetError when there is no such platform.
        """
        cl = _pyopencl()
        self._cl = cl
        kernels = use_own_folder(default_cache())
        try:
            platforms = {p.name.strip(): p for p in cl.get_platforms()}
        except cl.Error as error:
            raise TargetError(
                f"target 'opencl' finds no platform here ({error}).", fix=f"{INSTALL}."
            ) from error
        kind = cl.device_type.GPU if card else cl.device_type.CPU
        wanted = platform or switches.opencl()
        fitting = tuple(n for n, p in platforms.items() if p.get_devices(kind))
        chosen = platforms[choose_platform(tuple(platforms), wanted, fitting)]
        devices = chosen.get_devices(kind) or chosen.get_devices()
        if not devices:
            raise TargetError(
                f"target 'opencl': the platform {chosen.name.strip()} has no device here.",
                fix="PoCL has no device if it cannot write files: set TMPDIR to a writable folder.",
            )
        self._device = devices[0]
        self._context = cl.Context([self._device])
        self._queue = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.name = f"{self._device.name.strip()} ({chosen.name.strip()})"
        d = self._device
        # for a processor, PoCL reports the memory that is free now, but an identity must not change
        memory = psutil.virtual_memory().total if d.type & cl.device_type.CPU else d.global_mem_size
        self.identity = DeviceIdentity(
            self.name, int(memory), int(d.max_compute_units), d.driver_version.strip()
        )
        self.alignment = max(64, self._device.mem_base_addr_align // 8)
        self.lock = threading.RLock()
        self._version = f"{chosen.version} {self._device.driver_version}"
        self._programs: dict[bytes, Any] = {}
        self._keeps_kernels = "Portable Computing" in chosen.name
        if self._keeps_kernels:
            self._name_processor()
            if kernels is not None:
                sweep(kernels, default_cache().max_bytes)

    @property
    def limits(self) -> dict[str, int]:
        """The device's properties, by the names of Target's fields."""
        d = self._device
        return {
            "num_cores": int(d.max_compute_units),
            "max_threads_per_block": int(d.max_work_group_size),
            "max_shared_bytes": int(d.local_mem_size),
        }

    def allocate(self, size: int) -> Memory:
        try:
            return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(1, size))
        except self._cl.Error as error:
            raise TargetError(f"{self.name} has no {size:,} bytes of memory left: {error}.") from error

    def part(self, memory: Memory, offset: int, size: int) -> Memory:
        if offset == 0 and size >= memory.size:
            return memory
        return memory.get_sub_region(offset, max(1, size))

    def write(self, memory: Memory, array: Array) -> None:
        if array.nbytes:
            self._cl.enqueue_copy(self._queue, memory, np.ascontiguousarray(array), is_blocking=True)

    def read(self, memory: Memory, into: Array) -> None:
        if into.nbytes:
            self._checked(lambda: self._cl.enqueue_copy(self._queue, into, memory, is_blocking=True))

    def copy(self, source: Memory, into: Memory, size: int) -> None:
        if size:
            self._cl.enqueue_copy(self._queue, into, source, byte_count=size)

    def plan(self, sources: Sequence[bytes], calls: Sequence[DeviceCall]) -> Run:
        bound = [self._bound(sources[c.object], c) for c in calls]
        return _Commands(self._cl, self._queue, bound, self._checked)

    def finish(self) -> None:
        self._checked(self._queue.finish)

    def seconds(self, run: Run, count: int) -> float:
        assert isinstance(run, _Commands)
        self.finish()
        first, last = run.start()
        for _ in range(count - 1):
            _, last = run.start()
        self.finish()
        return 0.0 if last is None else float(last.profile.end - first.profile.start) * 1e-9

    def foreign(self, array: Any) -> Memory | None:
        return None

    # -- programs -----------------------------------------------------------------------------------------

    def _bound(self, source: bytes, call: DeviceCall) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
        """A separate kernel object with all arguments set, and the launch's sizes in threads."""
        cl = self._cl
        if source not in self._programs:
            self._programs[source] = self._built(source)
        try:
            kernel = cl.Kernel(self._programs[source], call.kernel)
            kernel.set_args(*call.memories)
            most = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, self._device)
        except cl.Error as error:
            raise ArtifactError(
                f"kernel {call.kernel!r} cannot be set up on {self.name}: {error}."
            ) from error
        if call.threads > most:
            raise ArtifactError(
                f"kernel {call.kernel!r} needs {call.threads} threads a block, {self.name} can run {most} "
                "of it.",
                fix="Bind smaller axes to threadIdx.",
            )
        sizes = tuple(g * b for g, b in zip(call.grid, call.block, strict=True))
        return kernel, sizes, call.block

    def _built(self, source: bytes) -> Any:
        """The program, from the cache if the cache has it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyopencl warns of every word that a compiler prints
            if self._keeps_kernels:
                return self._compiled(source)
            cl, cache = self._cl, default_cache()
            key = object_key("opencl", source, self.name, self._version, OPTIONS)
            known = cache.get(key)
            if known is not None:
                try:
                    return cl.Program(self._context, [self._device], [known]).build()
                except cl.Error as error:
                    reason = str(error)
                    log.at(2, lambda: f"opencl: a cached binary was refused ({reason}); compiling again")
            program = self._compiled(source)
            (binary,) = program.get_info(cl.program_info.BINARIES)
            if binary:
                cache.put(key, binary)
            return program

    def _compiled(self, source: bytes) -> Any:
        try:
            return self._cl.Program(self._context, source.decode()).build(OPTIONS, cache_dir=False)
        except self._cl.Error as error:
            raise ArtifactError(f"{self.name} refuses the kernel source: {error}.") from error

    def _name_processor(self) -> None:
        """Gives PoCL a usable name of the processor if a trial build shows the need (see pocl_cpu.py)."""
        if not sys.platform.startswith("linux"):
            return
        record, features = self._device.int_ptr, host().features
        if "+avx512f" in features:
            name_processor(record, features, ZEN_3)
        trial = "__kernel void trial(void) {}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._cl.Program(self._context, trial).build(cache_dir=False)
            except self._cl.Error as error:
                if UNKNOWN in str(error):  # any other error is raised by the first real build
                    name_processor(record, features, GENERIC)

    def _checked(self, work: Callable[[], object]) -> None:
        try:
            work()
        except self._cl.Error as error:
            raise TargetError(f"a kernel failed on {self.name}: {error}.") from error


class _Commands:
    """Calls with their arguments set. Running them puts them into the queue."""

    def __init__(self, cl: Any, queue: Any, bound: Sequence[Any], checked: Callable[[Any], None]) -> None:
        self._enqueue, self._queue, self._bound, self._checked = (
            cl.enqueue_nd_range_kernel,
            queue,
            bound,
            checked,
        )

    def start(self) -> tuple[Any, Any]:
        """Puts all calls into the queue. Returns the events of the first and the last."""
        first = last = None

        def work() -> None:
            nonlocal first, last
            for kernel, sizes, block in self._bound:
                last = self._enqueue(self._queue, kernel, sizes, block)
                first = last if first is None else first

        self._checked(work)
        return first, last

    def __call__(self) -> None:
        self.start()


def choose_platform(names: Sequence[str], wanted: str = "", fitting: Sequence[str] = ()) -> str:
    """The platform to use, by name. Platforms in `fitting` have a device of the right kind, and come first.

    Raises TargetError when there is no platform, or none with that name.

    >>> choose_platform(("Oclgrind", "Portable Computing Language"))
    'Portable Computing Language'
    >>> choose_platform(("Oclgrind", "Portable Computing Language"), "oclgrind")
    'Oclgrind'
    >>> choose_platform(("Portable Computing Language", "NVIDIA"), fitting=("Portable Computing Language",))
    'Portable Computing Language'
    """
    if wanted:
        found = [n for n in names if wanted.lower() in n.lower()]
        if not found:
            here = ", ".join(names) or "none"
            raise TargetError(
                f"no OpenCL platform here is called {wanted!r}; there are: {here}.",
                fix="Set AUTOTENSOR_OPENCL to a part of one of these names.",
            )
        return found[0]
    usable = [n for n in names if not any(x in n for x in ONLY_WHEN_ASKED)]
    usable = [n for n in usable if n in fitting] or usable
    if not usable:
        raise TargetError("target 'opencl' finds no platform here.", fix=f"{INSTALL} installs one for CPUs.")
    return min(usable, key=lambda n: next((k for k, p in enumerate(PLATFORMS) if p in n), len(PLATFORMS)))


def _pyopencl() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise TargetError(
            "target 'opencl' needs pyopencl, which is not installed.", fix=f"{INSTALL}."
        ) from error
    return pyopencl
