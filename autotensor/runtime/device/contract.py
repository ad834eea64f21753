"""Devices: memory and kernels that are not the processor's own, behind one small contract.

    device = device_of(parse("opencl"))
    a = device.allocate(4096);  device.write(a, array)
    run = device.plan((source,), [DeviceCall("relu", (b, a), grid=(4, 1, 1), block=(256, 1, 1))])
    run();  device.read(b, into)

An artifact for a device holds source text in `objects`, and a list of launches (`files/launches.py`). Two
classes implement the contract, in opencl.py and cuda.py; devices.py opens them. Only one thread at a time may
call a device: the thread that holds the device's `lock`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from autotensor.runtime.arrays import Array
from autotensor.runtime.device.device_identity import DeviceIdentity
from autotensor.runtime.files.launches import Extents

Run = Callable[[], None]
Memory = Any  # the device library's own type: pyopencl's buffer, CuPy's array


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCall:
    """One launch, with the memory for each parameter."""

    kernel: str
    memories: tuple[Memory, ...]
    grid: Extents  # number of blocks
    block: Extents  # number of threads in a block
    dynamic_shared_bytes: int = 0
    object: int = 0  # index of the source that defines the kernel

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return prod(self.block)


class Device(Protocol):
    """The operations of a device that the runtime uses."""

    kind: str
    name: str
    alignment: int  # a part of a memory begins at a multiple of this many bytes
    identity: DeviceIdentity
    lock: threading.RLock

    def allocate(self, size: int) -> Memory:
        """Memory of `size` bytes with undefined contents. Raises TargetError if the device has too little
        memory."""
        ...

    def part(self, memory: Memory, offset: int, size: int) -> Memory:
        """A part of a memory as a memory of its own. `offset` is a multiple of the alignment."""
        ...

    def write(self, memory: Memory, array: Array) -> None:
        """Copies a row-major host array to the memory's start. The copy is finished when this returns."""
        ...

    def read(self, memory: Memory, into: Array) -> None:
        """Fills a row-major host array from the memory. Waits for earlier kernels."""
        ...

    def copy(self, source: Memory, into: Memory, size: int) -> None:
        """Copies `size` bytes from one memory to another, after earlier kernels."""
        ...

    def plan(self, sources: Sequence[bytes], calls: Sequence[DeviceCall]) -> Run:
        """A function that starts the calls in order and does not wait for them.

        Raises ArtifactError with the compiler's message when the compiler refuses a source, or when the
        device lacks something that a kernel needs.
        """
        ...

    def finish(self) -> None:
        """Waits until everything that was started is done. Raises TargetError if it failed."""
        ...

    def seconds(self, run: Run, count: int) -> float:
        """Device seconds of `count` runs one after another, by the device's own clock."""
        ...

    def foreign(self, array: Any) -> Memory | None:
        """The memory of another library's array on this device, without a copy; None if it is not such an
        array."""
        ...
