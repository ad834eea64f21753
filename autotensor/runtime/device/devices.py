"""Devices: memory and kernels that are not the processor's own, behind one small contract.

    device = device_of(parse("opencl"))
    a = device.allocate(4096);  device.write(a, array)
    run = device.plan((source,), [DeviceCall("relu", (b, a), grid=(4, 1, 1), block=(256, 1, 1))])
    run();  device.read(b, into)

An artifact for a device holds source text in `objects` and, in `meta["launches"]`, what is launched in which
order by "prepare" and by "run": kernel, grid, block, and for every parameter an argument and an offset in
bytes. Two implementations: opencl.py and cuda.py. Calls on one device come one at a time; its
`lock` says whose turn it is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from autotensor.base.errors import ArtifactError, TargetError
from autotensor.base.target import Target
from autotensor.runtime.arrays import Array
from autotensor.runtime.files.artifact import Artifact

DEVICE_KINDS = ("opencl", "cuda")
LAUNCHES = "launches"  # in an artifact's meta

Run = Callable[[], None]
Memory = Any  # a device's own: pyopencl's buffer, CuPy's array
Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCall:
    """One launch with the memory of every parameter."""

    kernel: str
    memories: tuple[Memory, ...]
    grid: Extents  # blocks
    block: Extents  # threads of a block
    dynamic_shared_bytes: int = 0
    object: int = 0  # number of the source that defines the kernel


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One launch as an artifact describes it; `args` are (number of an argument, offset in bytes)."""

    kernel: str
    args: tuple[tuple[int, int], ...]
    grid: Extents
    block: Extents
    dynamic_shared_bytes: int = 0
    object: int = 0
    tile: Mapping[str, Any] | None = None  # what its threads keep, for who says that it is too much

    @staticmethod
    def of(data: Mapping[str, Any]) -> LaunchSpec:
        """From JSON data. Raises KeyError, TypeError or ValueError for anything else."""
        grid, block = tuple(map(int, data["grid"])), tuple(map(int, data["block"]))
        if len(grid) != 3 or len(block) != 3 or min(*grid, *block) < 1:
            raise ValueError(f"launch of {data['kernel']!r} has grid {grid} and block {block}")
        args = tuple((int(n), int(offset)) for n, offset in data["args"])
        dynamic, number = int(data.get("dynamic_shared_bytes", 0)), int(data.get("object", 0))
        return LaunchSpec(str(data["kernel"]), args, grid, block, dynamic, number, data.get("tile"))

    def plain(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "object": self.object,
            "args": [list(a) for a in self.args],
            "grid": list(self.grid),
            "block": list(self.block),
            "dynamic_shared_bytes": self.dynamic_shared_bytes,
            "tile": self.tile,
        }


def launches(artifact: Artifact, part: str) -> tuple[LaunchSpec, ...]:
    """The launches of "prepare" or "run". Raises ArtifactError for an artifact that is not for a device."""
    try:
        found = tuple(LaunchSpec.of(x) for x in artifact.meta[LAUNCHES][part])
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{artifact.name} does not say how its kernels are launched: {error}.") from error
    for spec in found:
        if any(n >= len(artifact.args) for n, _ in spec.args) or spec.object >= len(artifact.objects):
            raise ArtifactError(
                f"{artifact.name}: kernel {spec.kernel!r} is launched with what is not there."
            )
    return found


class Device(Protocol):
    """What the runtime asks of a device."""

    kind: str
    name: str
    alignment: int  # bytes: a part of a memory starts at a multiple
    lock: threading.RLock

    def allocate(self, size: int) -> Memory:
        """`size` bytes with undefined contents. Raises TargetError when there are not so many."""
        ...

    def part(self, memory: Memory, offset: int, size: int) -> Memory:
        """Bytes of a memory as a memory of their own. `offset` is a multiple of the alignment."""
        ...

    def write(self, memory: Memory, array: Array) -> None:
        """The bytes of a row-major host array, from the memory's start; done when this returns."""
        ...

    def read(self, memory: Memory, into: Array) -> None:
        """As many bytes as the row-major host array has; waits for the kernels before."""
        ...

    def copy(self, source: Memory, into: Memory, size: int) -> None:
        """So many bytes from one memory to another, after the kernels before."""
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
        """The memory of somebody else's array on this device, without a copy; None if it is none."""
        ...


def device_of(target: Target) -> Device:
    """The device that a target means; of OpenCL the target may name the platform, and says what it suits."""
    if target.kind == "opencl":
        return open_device("opencl", target.arch, card=not target.on_cores)
    return open_device(target.kind)


def open_device(kind: str, platform: str = "", *, card: bool = False) -> Device:
    """The device of a kind, opened once per process. Raises TargetError in one sentence if there is none.

    card: of OpenCL, whether a card is preferred, or a processor.
    """
    device = opened(kind, platform, card)
    check_process(device)
    return device


_homes: dict[int, int] = {}  # identity of a device ▶ the process that opened it


def check_process(device: Device) -> None:
    """Raises TargetError in a forked child of the process that opened the device: a driver's threads are not
    there, and a call would wait for them for ever, or fail."""
    if _homes.get(id(device), os.getpid()) != os.getpid():
        raise TargetError(
            f"target {device.kind!r} cannot be used in this forked process: its parent has opened it.",
            fix="Use it after the fork only, or start processes by spawn.",
        )


@cache
def opened(kind: str, platform: str, card: bool) -> Device:
    """What `open_device` keeps. (An array of a card's device is none of the processor's, even on PoCL.)"""
    device = _open(kind, platform, card)
    _homes[id(device)] = os.getpid()
    return device


def _open(kind: str, platform: str, card: bool) -> Device:
    match kind:
        case "opencl":
            from autotensor.runtime.device.opencl import OpenCLDevice

            return OpenCLDevice(platform, card=card)
        case "cuda":
            from autotensor.runtime.device.cuda import CudaDevice

            return CudaDevice()
        case _:
            raise TargetError(
                f"there is no device of kind {kind!r}.", fix=f"Known: {', '.join(DEVICE_KINDS)}."
            )
