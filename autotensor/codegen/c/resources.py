"""The registers and memory that a kernel takes of a multiprocessor, checked before any launch.

    source ──NVRTC, ptxas──▶ registers, spilled bytes     ▶ check_resources: TargetError, or the facts

A block's threads share 64 K registers. If a kernel needs more, the compiler spills the rest to memory, and
the kernel would run slowly. So such a kernel is refused. The message says how many registers it needs, how
many there are, and which axis to shrink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from autotensor.base.errors import TargetError
from autotensor.codegen.c import nvrtc
from autotensor.codegen.c.nvrtc import Resources, resources_of
from autotensor.ir.expr import Const
from autotensor.ir.func import Buffer, PrimFunc, Scope
from autotensor.ir.stmt import Alloc, For, ForKind, Store
from autotensor.ir.visit import collect, free_vars
from autotensor.runtime.files.artifact import Artifact

# Registers of a multiprocessor, the most for a thread, and the unit of allocation, in all supported
# architectures. Source: CUDA C++ programming guide, "Technical specifications per compute capability".
REGISTERS, MOST_REGISTERS, UNIT = 65536, 255, 8
_BOUNDS = re.compile(r" __launch_bounds__\(\d+, 1\)")


def registers_for(threads: int) -> int:
    """The most registers that each thread of a block of `threads` threads may have.

    >>> registers_for(256), registers_for(512), registers_for(1024)
    (255, 128, 64)
    """
    warps = -(-threads // 32) * 32
    return min(MOST_REGISTERS, REGISTERS // warps // UNIT * UNIT)


def refuse_unfit(artifact: Artifact) -> Artifact:
    """The artifact if it may be launched: every way to a launch (built, linked, loaded) calls this first.

    Raises the TargetError of `check_resources`. Without NVRTC, the resources are known only when the card's
    driver has compiled the kernel. Then runtime/device/cuda.py refuses a kernel that cannot run.
    """
    if artifact.target.kind == "cuda" and nvrtc.library() is not None:
        check_resources(artifact, artifact.target.arch)
    return artifact


def check_resources(artifact: Artifact, arch: str) -> dict[str, int]:
    """The largest numbers of registers, spilled bytes and stack bytes among a CUDA artifact's kernels.

    Raises TargetError for a kernel that spills or needs more registers than its threads can have,
    CodegenError when it does not compile or NVRTC is missing.
    """
    sources = [code.decode() for code in artifact.objects]  # a model has one source for each of its kernels
    found = [resources_of(source, arch) for source in sources]
    for launch in (x for part in artifact.meta["launches"].values() for x in part):
        number = launch.get("object", 0)
        took, threads = found[number][launch["kernel"]], prod(launch["block"])
        offered = registers_for(threads)
        if took.spill_bytes or took.registers > offered:
            name = launch["kernel"].rpartition("_")[0]  # without the hash
            raise TargetError(
                f"build: kernel {name!r} needs {_needed(sources[number], arch, launch['kernel'])} registers "
                f"in each of its {threads} threads, target {arch} offers {offered}"
                f"{f': {took.spill_bytes} bytes are spilled' if took.spill_bytes else ''}.",
                fix=_fix(launch.get("tile"), threads),
            )
    return worst({name: r for kernels in found for name, r in kernels.items()})


def worst(found: Mapping[str, Resources]) -> dict[str, int]:
    """The largest figures of several kernels."""
    return {
        "registers": max((r.registers for r in found.values()), default=0),
        "spill_bytes": max((r.spill_bytes for r in found.values()), default=0),
        "stack_bytes": max((r.stack_bytes for r in found.values()), default=0),
    }


def _needed(source: str, arch: str, kernel: str) -> str:
    """The number of registers that the kernel would take in blocks of 32 threads, as text."""
    free = resources_of(_BOUNDS.sub(" __launch_bounds__(32, 1)", source), arch)[kernel]
    if not free.spill_bytes:
        return str(free.registers)
    # four bytes for each, once stored and once loaded
    return f"at least {free.registers + free.spill_bytes // 8}"


def _fix(tile: Mapping[str, Any] | None, threads: int) -> str:
    if tile is None:
        return "Bind shorter loops to threads."
    where = f" of stage {tile['stage']!r}" if tile["stage"] else ""
    return (
        f"Shrink axis {tile['axis']!r}{where}: each thread keeps {tile['elements']} elements of "
        f"{tile['buffer']!r}, {tile['extent']} along it; or bind fewer than {threads} threads."
    )


def tile_of(func: PrimFunc) -> dict[str, Any] | None:
    """The largest private array of a kernel and the longest loop over it; None if there is no such array."""
    private = [a.buffer for a in collect(func.body, Alloc) if a.buffer.scope in (Scope.LOCAL, Scope.REGISTER)]
    if not private:
        return None
    largest = max(private, key=lambda b: b.bytes)
    loop = _longest_loop(func, largest)
    if loop is None:
        return None
    stage, _, axis = loop.var.name.rpartition(":") if ":" in loop.var.name else ("", "", loop.var.name)
    assert isinstance(loop.extent, Const)
    return {
        "buffer": largest.name,
        "elements": largest.size,
        "stage": stage,
        "axis": axis,
        "extent": int(loop.extent.value),
    }


def _longest_loop(func: PrimFunc, buffer: Buffer) -> For | None:
    """The loop with most iterations that runs over a buffer."""
    used = frozenset().union(
        *(free_vars(i) for s in collect(func.body, Store) if s.buffer is buffer for i in s.indices)
    )
    loops = [
        n
        for n in collect(func.body, For)
        if n.kind is not ForKind.THREAD and n.var in used and isinstance(n.extent, Const)
    ]
    return max(loops, key=lambda n: int(n.extent.value), default=None)  # type: ignore[attr-defined]


__all__ = ["check_resources", "refuse_unfit", "registers_for", "tile_of", "worst"]
