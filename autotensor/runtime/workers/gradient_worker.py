"""The children of data-parallel training: `python -m autotensor.runtime.workers.gradient_worker …`.

    {"sleep": 0}  ──▶  {}        the program has run on the arrays of two files

The files are mapped, so numbers never pass through a pipe. One file is shared and holds the parameters, which
the parent writes between steps. The other belongs to this worker alone: it holds the batch and, afterwards,
the loss and the gradients. A worker needs nothing but a saved program, and imports only NumPy and llvmlite.
"""

from __future__ import annotations

import json
import mmap
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.runtime.files.artifact import ArgSpec
from autotensor.runtime.saved_model import load
from autotensor.runtime.workers.child_serving import serve

Array = np.ndarray[Any, np.dtype[Any]]
ALIGNMENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """Arrays in a file, one after another at multiples of 64 bytes."""

    arrays: tuple[Array, ...]
    memory: mmap.mmap

    @staticmethod
    def of(path: Path, specs: Sequence[ArgSpec]) -> Mapped:
        """The file's arrays. If the file is too short, it is extended with zeros."""
        starts, end = [], 0
        for spec in specs:
            starts.append(end)
            end += -(-max(1, spec.bytes) // ALIGNMENT) * ALIGNMENT
        with path.open("a+b") as file:
            if path.stat().st_size < end:
                file.truncate(max(1, end))
            memory = mmap.mmap(file.fileno(), max(1, end))
        arrays = tuple(
            np.ndarray(s.shape, s.dtype, memory, start) for s, start in zip(specs, starts, strict=True)
        )
        return Mapped(arrays, memory)


def split(args: Sequence[ArgSpec], parameters: int) -> tuple[tuple[ArgSpec, ...], tuple[ArgSpec, ...]]:
    """The arrays of one worker alone (batch and results), and the shared arrays (the last inputs)."""
    inputs = [a for a in args if a.role == "input"]
    data = inputs[: len(inputs) - parameters]
    return (*data, *(a for a in args if a.role == "output")), tuple(inputs[len(data) :])


def main(path: str, threads: str, parameters: str, shared: str, own: str) -> None:
    module = load(path, threads=int(threads))
    mine, common = split(module.args, int(parameters))
    own_arrays = Mapped.of(Path(own), mine).arrays
    weights = Mapped.of(Path(shared), common).arrays
    count = sum(a.role == "input" for a in mine)

    def handle(line: str) -> str:
        time.sleep(float(json.loads(line)["sleep"]))
        module(*own_arrays[:count], *weights, *own_arrays[count:])
        return "{}"

    serve(handle)


if __name__ == "__main__":
    main(*sys.argv[1:])
