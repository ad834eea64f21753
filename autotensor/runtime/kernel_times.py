"""The time of each kernel of a linked model at its position: after its neighbours, on the model's memory.

    meta["kernels"] (symbol, slots) + addresses of the model's arguments ──launch each──▶ seconds per kernel

The sum is a little more than the model's latency, because each kernel is launched in a region of its own.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from autotensor.runtime.arrays import address, aligned_copy, aligned_empty
from autotensor.runtime.device.kernel_times import DeviceKernelClock
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.launches import DEVICE_KINDS
from autotensor.runtime.linking import loader
from autotensor.runtime.native import threads
from autotensor.runtime.native.thread_spans import launch_spanned
from autotensor.runtime.open_artifact import ready

Array = np.ndarray[Any, np.dtype[Any]]
# of one kernel: for each thread its index, begin and end in seconds
Spans = Sequence[tuple[int, float, float]]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One step of the plan, and its time."""

    name: str
    workload: str
    flops: float
    seconds: float  # the median


class KernelClock:
    """A linked model that is run kernel by kernel. Empty for an artifact that is not a linked model."""

    def __init__(self, artifact: Artifact, arrays: Sequence[Array], nthreads: int) -> None:
        """arrays: the inputs of the model. Raises ArtifactError when the object code lacks a kernel."""
        artifact = ready(artifact, nthreads)
        self.kernels: Sequence[dict[str, Any]] = artifact.meta.get("kernels") or ()
        self.nthreads = nthreads
        self._loaded = loader.load(artifact, [k["symbol"] for k in self.kernels])
        given = iter(arrays)
        # in the order of the arguments
        self.memory = [_memory(artifact, spec, given, nthreads) for spec in artifact.args]
        bases = [address(m) for m in self.memory]
        self._calls = []
        for k in self.kernels:
            slots = (ctypes.c_void_p * len(k["slots"]))(*(bases[n] + offset for n, offset in k["slots"]))
            self._calls.append((self._loaded.code.addresses[k["symbol"]], slots))

    def round(self) -> list[float]:
        """Seconds of every kernel in one inference, in the plan's order."""
        out = []
        for n in range(len(self._calls)):
            began = time.perf_counter()
            self.launch(n)
            out.append(time.perf_counter() - began)
        return out

    def launch(self, step: int) -> None:
        """Runs one kernel of the plan, on the present contents of memory."""
        entry, slots = self._calls[step]
        threads.launch(entry, ctypes.addressof(slots), self.nthreads)

    def spans(self) -> list[Spans]:
        """Runs one inference. Returns for every kernel when each thread worked on it, by
        `time.perf_counter`."""
        return [launch_spanned(entry, ctypes.addressof(slots), self.nthreads) for entry, slots in self._calls]


def kernel_clock(
    artifact: Artifact, arrays: Sequence[Array], nthreads: int
) -> KernelClock | DeviceKernelClock:
    """The clock for the artifact's target."""
    if artifact.target.kind in DEVICE_KINDS:
        return DeviceKernelClock(artifact, arrays)
    return KernelClock(artifact, arrays, nthreads)


def kernel_times(
    artifact: Artifact, arrays: Sequence[Array], nthreads: int, rounds: int = 15
) -> list[KernelTime]:
    """Medians of all kernels, in order; empty for an artifact that is not a linked model."""
    clock = kernel_clock(artifact, arrays, nthreads)
    clock.round()  # for warming up
    samples = [clock.round() for _ in range(rounds)]
    return [
        KernelTime(k["name"], k["workload"], float(k["flops"]), median(s[n] for s in samples))
        for n, k in enumerate(clock.kernels)
    ]


def by_workload(seconds: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Total seconds of all kernels of each workload.

    >>> by_workload([("a", 1.0), ("b", 2.0), ("a", 0.5)])
    {'a': 1.5, 'b': 2.0}
    """
    found: dict[str, float] = {}
    for workload, each in seconds:
        found[workload] = found.get(workload, 0.0) + each
    return found


def without_clock(
    inside: Mapping[str, float], calls: Mapping[str, float], model_s: float
) -> dict[str, float]:
    """Seconds of each workload's kernels in an inference, without the clock's own time.

    Every call was timed between two readings of the clock, and these readings take time, which matters in
    models of a few µs. Kernels cannot take longer together than the model, `model_s`. So the excess is
    divided equally among all calls, but no call loses more than its own time. calls: of each workload in an
    inference; 1 if not given.
    """
    number = {k: calls.get(k, 1.0) for k in inside}
    each = _off_each(inside, number, sum(inside.values()) - model_s)
    return {k: max(0.0, s - each * number[k]) for k, s in inside.items()}


def _off_each(inside: Mapping[str, float], calls: Mapping[str, float], over: float) -> float:
    """Seconds to subtract from each call so that all calls together lose `over`, and none loses more than it
    has.

    >>> _off_each({"a": 9.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, 4.0)
    3.0
    """
    left, number = max(0.0, over), sum(calls.values())
    for k in sorted(inside, key=lambda k: inside[k] / calls[k]):
        if inside[k] * number >= left * calls[k]:
            return left / number
        left, number = left - inside[k], number - calls[k]
    return 0.0


def _memory(artifact: Artifact, spec: ArgSpec, given: Iterator[Array], nthreads: int) -> Array:
    if spec.name in artifact.values:
        value = artifact.values[spec.name]
        return value if address(value) % 64 == 0 else aligned_copy(value)
    if spec.role == "input":
        return aligned_copy(next(given))
    if spec.role == "constant":  # only `prepare` has read it
        return aligned_empty((0,), "uint8")
    if spec.role == "workspace":
        made: Array = aligned_empty(
            (spec.stride * nthreads if spec.per_thread else max(1, spec.bytes),), "uint8"
        )
        made[...] = 0
        return made
    return aligned_empty(spec.shape, spec.dtype)
