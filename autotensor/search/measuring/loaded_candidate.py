"""A candidate in the run child: its loaded code, the memory that it needs, and its argument array."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.runtime.arrays import Array, address
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.linking import loader
from autotensor.search.measuring.candidate_memory import Fenced, Need, Slab

Addresses = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(slots=True, eq=False)
class LoadedCandidate:
    """Loaded code, and the arguments for timed calls."""

    artifact: Artifact
    loaded: loader.Loaded
    bounds: dict[str, float]  # allowed errors of the outputs
    # argument arrays, one per copy of the constants; None until they are made
    frames: Addresses | None = None
    keep: tuple[Array | None, ...] = ()  # arrays that the argument arrays point to
    turn: int = 0  # index of the copy that the next timed call uses

    @staticmethod
    def of(artifact: Artifact, bounds: dict[str, float]) -> LoadedCandidate:
        return LoadedCandidate(artifact, loader.load(artifact), bounds)

    @property
    def rotating(self) -> tuple[ArgSpec, ...]:
        """Constants that every call reads."""
        return self.artifact.weights()


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Memory for the results of candidates, which use it one after another."""

    outputs: Slab
    own: Slab  # workspaces

    def place(self, artifact: Artifact, nthreads: int, shift: int = 0) -> dict[str, Fenced]:
        """Memory for everything that a call writes, filled with trap values.

        Outputs are placed `shift` elements off alignment.
        """
        outputs, own = [], []
        for a in artifact.args:
            if a.role == "output":
                outputs.append(Need(a.name, a.shape, dtype_of(a.dtype).numpy))
            elif a.role == "workspace":
                own.append(Need(a.name, *workspace(a, nthreads)))
        placed = [*self.outputs.place(outputs, shift), *self.own.place(own)]
        for fenced in placed:
            fenced.trap()
        return {f.name: f for f in placed}


def frame(artifact: Artifact, arrays: Mapping[str, Array]) -> Any:
    """The argument array: plain addresses in the artifact's order, null for arguments that `arrays` lacks.

    The caller keeps `arrays` alive.
    """
    found = (arrays.get(a.name) for a in artifact.args)
    return (ctypes.c_void_p * max(1, len(artifact.args)))(*(None if a is None else address(a) for a in found))


def workspace(a: ArgSpec, nthreads: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the memory behind a workspace argument."""
    if a.per_thread:
        return (a.stride * nthreads,), np.dtype(np.uint8)
    return a.shape, dtype_of(a.dtype).numpy


def offsets(sizes: Sequence[int]) -> tuple[list[int], int]:
    """The starts of arrays of these sizes, each at a multiple of 64 bytes, and the total number of bytes.

    >>> offsets([10, 64, 65])
    ([0, 64, 128], 256)
    """
    starts, at = [], 0
    for size in sizes:
        starts.append(at)
        at += -(-size // 64) * 64
    return starts, at
