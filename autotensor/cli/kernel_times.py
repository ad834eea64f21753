"""How long each kernel of a linked model takes in its place: after its neighbours, on the model's memory.

    meta["kernels"] (symbol, slots) + addresses of the model's arguments ──launch each──▶ seconds per kernel

The sum is a little more than the model's latency: here every kernel has a region of its own.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from autotensor.base.errors import ArtifactError
from autotensor.runtime import loader, threads
from autotensor.runtime.arrays import address, aligned_copy, aligned_empty

if TYPE_CHECKING:
    import numpy as np

    from autotensor.runtime.artifact import ArgSpec, Artifact

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One step of the plan."""

    name: str
    workload: str
    flops: float
    seconds: float  # median


def kernel_times(
    artifact: Artifact, arrays: Sequence[Array], nthreads: int, rounds: int = 15
) -> list[KernelTime]:
    """Medians of all kernels, in order; empty for an artifact that is no linked model."""
    kernels = artifact.meta.get("kernels")
    if not kernels:
        return []
    loaded = loader.load(artifact)
    given = iter(arrays)
    memory = [_memory(artifact, spec, given, nthreads) for spec in artifact.args]
    bases = [address(m) for m in memory]
    calls = []
    for k in kernels:
        entry = int(loaded.engine.get_function_address(k["symbol"]))
        if not entry:
            raise ArtifactError(f"{artifact.name} has no function {k['symbol']!r} in its object code.")
        calls.append(
            (entry, (ctypes.c_void_p * len(k["slots"]))(*(bases[n] + offset for n, offset in k["slots"])))
        )
    samples: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 1):
        for (entry, slots), mine in zip(calls, samples, strict=True):
            began = time.perf_counter()
            threads.launch(entry, ctypes.addressof(slots), nthreads)
            if turn:  # the first round warms up
                mine.append(time.perf_counter() - began)
    return [
        KernelTime(k["name"], k["workload"], float(k["flops"]), median(mine))
        for k, mine in zip(kernels, samples, strict=True)
    ]


def _memory(artifact: Artifact, spec: ArgSpec, given: Any, nthreads: int) -> Array:
    if spec.name in artifact.values:
        value = artifact.values[spec.name]
        return value if address(value) % 64 == 0 else aligned_copy(value)
    if spec.role in ("input", "constant"):
        return aligned_copy(next(given))
    if spec.role == "workspace":
        made: Array = aligned_empty(
            (spec.stride * nthreads if spec.per_thread else max(1, spec.bytes),), "uint8"
        )
        made[...] = 0
        return made
    return aligned_empty(spec.shape, spec.dtype)
