"""Column sums: reductions over leading axes, every operand read once (batch statistics, global pooling).

    C[…, j] = Σ_k x[…, k, j]     ──▶     parallel over blocks of columns:
                                           for k, some rows at a time: for j in vectors: C[j] += rows

The operand is read in rows whose sums fit into the nearest cache. Several rows are added at a time, so that
each sum is loaded and stored only once for them. A stage that reads the sums point by point (a mean) reads
each block while it is still in the cache.
"""

from __future__ import annotations

from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Ref, Stage, State
from autotensor.schedule.step import Step
from autotensor.te.dag import StageOp
from schedules.cpu import cpu_of
from schedules.kit.flat_axes import fused_axes, long_axes, long_loops
from schedules.kit.parallel_region import divided
from schedules.kit.shared_steps import fused, in_vectors
from schedules.kit.stage_analysis import epilogue, lanes_of, reads, undecided
from schedules.kit.tiles import nearest, powers, singles
from schedules.registry import Extension

ROWS = (1, 2, 4, 7, 8, 16)  # numbers of rows that are added at a time


def columns(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if target.kind != "llvm" or not undecided(state, stage) or not sums_columns(op):
        return ()
    cpu, lanes, last = cpu_of(target), lanes_of(op, target), long_axes(op)[-1]
    if last.extent < lanes:
        return ()
    after = epilogue(state, stage)
    host = after if after is not None else stage
    outer = op.points() // prod(a.extent for a in (last, *op.reduce_axes))
    vectors = powers(ceil(last.extent / lanes))
    wanted = min(
        cpu.near_sums // (lanes * sum(b.dtype.bytes for b in op.buffers)),
        max(1, ceil(vectors[-1] * outer / target.num_cores)),
    )
    block = Hole(f"{stage.name}/columns", singles(vectors), (nearest(vectors, wanted),))
    steps: list[Step] = []
    inner = _blocks(steps, host, stage, block, lanes, target)
    holes = [block, *_rows(steps, stage, cpu.ways, inner)]
    done = (stage.name, host.name)
    return (Extension(tuple(steps), tuple(holes), done),)


def sums_columns(op: StageOp) -> bool:
    """Whether every operand is contiguous along the last axis, and each of its elements is used once."""
    if not op.is_reduction or not op.axes:
        return False
    long = [a.name for a in op.all_axes if a.extent > 1]
    return all(
        r.strides.get(long_axes(op)[-1].name) == 1
        and all(r.uses(a) for a in long)
        and all(d is not None and d.is_sum and len(d.steps) <= 1 for d in r.dims)
        for r in reads(op)
    )


def _blocks(
    steps: list[Step], host: Stage, stage: Stage, block: Hole, lanes: int, target: Target
) -> list[str]:
    """Makes parallel blocks of columns. Returns the host's loops that follow inside."""
    name = host.name
    joined, axes = long_loops(name, host.op)
    last = axes[-1]
    steps += [*joined, SplitStep(name, last, (Ref(block.name), lanes))]
    together, outer = fused(name, (*axes[:-1], f"{last}.0"))
    steps += together
    steps += divided(name, outer, stage.op, lanes, target)
    if host is stage:
        return [outer, f"{last}.1", f"{last}.2"]
    steps.append(Vectorize(name, f"{last}.2"))
    joined, own = long_loops(stage.name, stage.op)
    steps += [ComputeAt(stage.name, name, outer), *joined, SplitStep(stage.name, own[-1], (lanes,))]
    return [*own[:-1], f"{own[-1]}.0", f"{own[-1]}.1"]


def _rows(steps: list[Step], stage: Stage, ways: int, spatial: list[str]) -> list[Hole]:
    """Unrolls some rows, fewer than compete for one set of the cache, and puts the stage's loops in order."""
    name, op = stage.name, stage.op
    more, axis, extent = fused_axes(name, op, op.reduce_axes)
    options = tuple(n for n in ROWS if n <= extent)
    even = [n for n in options if extent % n == 0 and 4 <= n < ways]
    own = max(even, default=nearest(options, 4))
    hole = Hole(f"{name}/rows", singles(options), (own,))
    steps.extend(more)
    steps.append(SplitStep(name, axis, (Ref(hole.name),)))
    slow = [*(a.name for a in op.reduce_axes[: len(op.reduce_axes) - len(more) - 1]), f"{axis}.0"]
    steps.append(Reorder(name, (*spatial[:-2], *slow, spatial[-2], f"{axis}.1", spatial[-1])))
    steps += in_vectors(name, f"{axis}.1", spatial[-1])
    return [hole]
