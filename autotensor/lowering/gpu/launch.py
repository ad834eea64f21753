"""launch: the grid, the block and the shared memory of a unified kernel, checked against the target's limits.

PrimFunc(…)     ──▶     PrimFunc(…, launch=Launch(grid=(16, 16, 1), block=(256, 1, 1), shared_bytes=8192))
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from autotensor.base.errors import TargetError
from autotensor.base.target import CUDA_BLOCK, CUDA_GRID, Target
from autotensor.ir.func import Buffer, Launch, PrimFunc, Scope
from autotensor.ir.stmt import Alloc, Stmt
from autotensor.ir.visit import collect
from autotensor.lowering.gpu.unify import thread_extents

ALIGNMENT = 16  # bytes; for every buffer in shared memory


def with_launch(func: PrimFunc, target: Target) -> PrimFunc:
    """The kernel with its launch. Raises TargetError if the target lacks threads, blocks or memory for it."""
    axes = thread_extents(func.body)
    grid = tuple(axes.get(f"blockIdx.{d}", 1) for d in "xyz")
    block = tuple(axes.get(f"threadIdx.{d}", 1) for d in "xyz")
    shared = shared_buffers(func.body)
    launch = Launch(grid, block, sum(padded_bytes(b) for b in shared))  # type: ignore[arg-type]
    _check(func.name, launch, shared, target)
    return replace(func, launch=launch)


def shared_buffers(body: Stmt) -> tuple[Buffer, ...]:
    """The buffers in shared memory, in order of appearance, each once."""
    return tuple(dict.fromkeys(a.buffer for a in collect(body, Alloc) if a.buffer.scope is Scope.SHARED))


def padded_bytes(buffer: Buffer) -> int:
    return -(-buffer.bytes // ALIGNMENT) * ALIGNMENT


def _check(name: str, launch: Launch, shared: tuple[Buffer, ...], target: Target) -> None:
    where = f"target {target.arch or target.kind}"
    threads = prod(launch.block)
    if threads > target.max_threads_per_block:
        axes = " × ".join(f"threadIdx.{d} {n}" for d, n in zip("xyz", launch.block, strict=True) if n > 1)
        raise TargetError(
            f"build: kernel {name!r} needs {threads} threads in a block, "
            f"{where} offers {target.max_threads_per_block}.",
            fix=f"Bind shorter loops: {axes}.",
        )
    if launch.shared_bytes > target.max_shared_bytes:
        most = max(shared, key=lambda b: b.bytes)
        parts = ", ".join(f"{b.name} {b.bytes}" for b in shared)
        raise TargetError(
            f"build: kernel {name!r} needs {launch.shared_bytes} bytes of shared memory ({parts}), "
            f"{where} offers {target.max_shared_bytes}.",
            fix=f"Shrink the loops that {most.name!r} is computed for: its box is {_shape(most)}.",
        )
    if target.kind != "cuda":
        return
    for kind, sizes, most_ in (("blockIdx", launch.grid, CUDA_GRID), ("threadIdx", launch.block, CUDA_BLOCK)):
        for d, n, limit in zip("xyz", sizes, most_, strict=True):
            if n > limit:
                raise TargetError(
                    f"build: kernel {name!r} needs {n} along {kind}.{d}, {where} offers {limit}.",
                    fix=f"Bind the longest loop to {kind}.x." if d != "x" else "Split the loop.",
                )


def _shape(buffer: Buffer) -> str:
    return " × ".join(map(str, buffer.shape))
