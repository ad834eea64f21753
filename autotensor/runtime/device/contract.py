"""Devices: memory and kernels that are not the processor's own, behind one small contract.

    device = device_of(parse("opencl"))
    a = device.allocate(4096);  device.write(a, array)
    run = device.plan((source,), [DeviceCall("relu", (b, a), grid=(4, 1, 1), block=(256, 1, 1))])
    run();  device.read(b, into)

An artifact for a device holds source text in `objects`, and says what is launched (`files/launches.py`). Two
devices answer the contract: opencl.py and cuda.py; devices.py opens them. Calls on one device come one at a
time; its `lock` says whose turn it is.
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
Memory = Any  # a device's own: pyopencl's buffer, CuPy's array


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCall:
    """One launch with the memory of every parameter."""

    kernel: str
    memories: tuple[Memory, ...]
    grid: Extents  # blocks
    block: Extents  # threads of a block
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
    alignment: int  # bytes: a part of a memory starts at a multiple
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
        """Copies a row-major host array to the memory's start; the copy is finished when this returns."""
        ...

    def read(self, memory: Memory, into: Array) -> None:
        """Fills a row-major host array from the memory; waits for earlier kernels."""
        ...

    def copy(self, source: Memory, into: Memory, size: int) -> None:
        """Copies so many bytes from one memory to another, after earlier kernels."""
        ...

    def plan(self, sources: Sequence[bytes], calls: Sequence[DeviceCall]) -> Run:
        """A function that starts the calls in order and does not wait for them.

        Raises ArtifactError with the compiler's words when a source is refused, or the device lacks what a
        kernel needs.
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
