"""Artifact: a compiled function as data: objects, texts, constants. `artifact_file.py` writes and reads
files.

The ABI of all native code, for kernels and for whole models:

    void entry(Context *ctx, void **args, int32 tid, int32 nthreads)

`args` holds one pointer per ArgSpec, in order. Each thread of a team calls the function once, and the result
is right for every nthreads >= 1. `ctx` gives the function a barrier (see threads.py). `prepare` has the same
form and gets the same pointers. It runs once: it reads the "constant" slots and fills the "prepared" ones.
`entry` reads inputs, prepared arrays and constants, and fills outputs.

The memory behind each pointer:

    input, output, constant   row-major array, aligned to its element only
    prepared                  row-major array at a multiple of 64 bytes
    workspace                 scratch at a multiple of 64 bytes with undefined contents, private to this call;
                              per_thread: `stride` bytes for each thread; the function adds tid * stride
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotensor.base.counted import few
from autotensor.base.dtype import dtype_of
from autotensor.base.errors import ArtifactError
from autotensor.base.target import Target

ROLES = ("input", "constant", "prepared", "output", "workspace")
_CACHE_LINE = 64
# the constant that holds the run-time extents for kernels; names given by users have no "?"
EXTENTS = "extents?"
OPEN_SHAPES = "open_shapes"  # key in meta that explains these extents: runtime/extents.py

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class ArgSpec:
    """One slot of the argument array."""

    name: str
    role: str  # one of ROLES
    shape: tuple[int, ...]
    dtype: str
    per_thread: bool = False  # each thread has its own copy of this workspace

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ArtifactError(
                f"argument {self.name!r} has unknown role {self.role!r}.", fix=f"Known: {', '.join(ROLES)}."
            )
        if any(not isinstance(n, int) or n < 0 for n in self.shape):
            raise ArtifactError(f"argument {self.name!r} has impossible shape {self.shape}.")
        if self.per_thread and self.role != "workspace":
            raise ArtifactError(f"argument {self.name!r} is per thread but not a workspace.")
        dtype_of(self.dtype)

    @property
    def bytes(self) -> int:
        """The size of one copy in bytes."""
        return math.prod(self.shape) * dtype_of(self.dtype).bytes

    @property
    def stride(self) -> int:
        """Bytes between the copies of two threads, in whole cache lines: threads never share a line."""
        return -(-self.bytes // _CACHE_LINE) * _CACHE_LINE

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Artifact:
    """Compiled code with everything needed to load, explain and rebuild it.

    meta is free JSON. The runtime and the linking of models read `alone` and these keys:

    entry_constants  the names of the constants that `entry` itself reads. The others are dropped once they
                     are prepared, which halves the weights in memory. Without this key, all are kept.
    prepared_by      {"code": hash, "reads": names of constants} of `prepare`. If two artifacts for one target
                     have the same value here, they prepare the same arrays from the same constants.
    passed           the names of the prepared arrays that only `prepare` reads
    index_ranges     for each argument that holds indices, by its name: the smallest and the largest value
                     that its elements may have
    """

    name: str
    target: Target
    entry: str  # name of the entry's symbol
    prepare: str | None
    args: tuple[ArgSpec, ...]
    objects: tuple[bytes, ...]  # native object files, linked together
    needs: tuple[str, ...] = ()  # CPU features, in LLVM's names
    texts: Mapping[str, str] = field(default_factory=dict)  # te, nest, ir, llvm, asm …
    values: Mapping[str, Array] = field(default_factory=dict)  # bound constants and prepared arrays
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line, without code, texts and values. `texts` has the loops, the LLVM text and so on."""
        code = sum(map(len, self.objects))
        return (
            f"Artifact({self.name}: {few(a.name for a in self.args)}; {self.target.key()}, {code:,} bytes of "
            f"code; texts {few(self.texts)})"
        )

    def __post_init__(self) -> None:
        names = [a.name for a in self.args]
        if len(set(names)) != len(names):
            raise ArtifactError(f"artifact {self.name!r} has two arguments of one name: {', '.join(names)}.")
        specs = {a.name: a for a in self.args}
        for name, value in self.values.items():
            _check_value(self.name, name, value, specs.get(name))

    def role(self, *roles: str) -> tuple[ArgSpec, ...]:
        """The arguments that have one of these roles, in order."""
        return tuple(a for a in self.args if a.role in roles)

    def entry_constants(self) -> tuple[str, ...]:
        """The constants that must be kept after preparing, because `entry` reads them."""
        constants = tuple(a.name for a in self.role("constant"))
        kept = self.meta.get("entry_constants")
        return constants if kept is None else tuple(n for n in constants if n in kept)

    def weights(self) -> tuple[ArgSpec, ...]:
        """The arrays that `entry` reads in addition to its inputs: the prepared arrays, and the constants
        that are kept."""
        kept = self.entry_constants()
        return tuple(a for a in self.args if a.role == "prepared" or a.name in kept)

    def prepared_by(self) -> tuple[str, tuple[str, ...]]:
        """A hash of `prepare`'s code ("" if not known), and the names of the constants that it reads."""
        found = self.meta.get("prepared_by")
        if found is None:
            return "", tuple(a.name for a in self.role("constant"))
        return found["code"], tuple(found["reads"])

    def index_range(self, name: str) -> tuple[int, int] | None:
        """The range of an argument's elements if they are indices. None: they may have any value."""
        found = self.meta.get("index_ranges", {}).get(name)
        return None if found is None else (int(found[0]), int(found[1]))


def _check_value(artifact: str, name: str, value: Array, spec: ArgSpec | None) -> None:
    if spec is None or spec.role not in ("constant", "prepared"):
        raise ArtifactError(f"artifact {artifact!r} has a value for {name!r}, which is not a constant of it.")
    if value.shape != spec.shape or value.dtype != dtype_of(spec.dtype).numpy:
        found = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        raise ArtifactError(f"artifact {artifact!r}: value of {spec} is {found}.")
