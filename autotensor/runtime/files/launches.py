"""The launches of an artifact for a device: `meta["launches"]`, in order, for "prepare" and for "run".

A launch names the kernel, the index of its source, grid and block, and for every parameter an argument and an
offset in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotensor.base.errors import ArtifactError
from autotensor.runtime.files.artifact import Artifact

DEVICE_KINDS = ("opencl", "cuda")
LAUNCHES = "launches"  # in an artifact's meta

Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One launch, as an artifact describes it. `args` are pairs (index of an argument, offset in bytes)."""

    kernel: str
    args: tuple[tuple[int, int], ...]
    grid: Extents
    block: Extents
    dynamic_shared_bytes: int = 0
    object: int = 0
    tile: Mapping[str, Any] | None = None  # the tile of one thread, for the error about too many registers

    @staticmethod
    def of(data: Mapping[str, Any]) -> LaunchSpec:
        """A launch from JSON data. Raises KeyError, TypeError or ValueError for anything else."""
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
                f"{artifact.name}: kernel {spec.kernel!r} is launched with memory that does not exist."
            )
    return found
