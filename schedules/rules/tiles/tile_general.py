"""General multi-level tiling: the fallback for reductions that have no register micro-kernel.

The loops are S R S R: outer spatial tiles in parallel, then outer reductions, inner spatial tiles, and inner
reductions. The last spatial tile is vectorized if the stores are contiguous. It has several vectors, which
share the common parts of a term and do not wait for one another. Several rows that are shorter than a vector
fill one vector together. Every tile size is a hole; tiles need not divide the extents.
Source: the multi-level tiling rule of Ansor (Zheng et al., OSDI 2020), with two levels each.
"""

from __future__ import annotations

from math import prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.mark import Unroll, Vectorize
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import StageOp
from schedules.kit.index_periods import vectors_of_period
from schedules.kit.parallel_region import divided
from schedules.kit.shared_steps import fused
from schedules.kit.stage_analysis import lanes_of, undecided
from schedules.kit.tiles import nearest, powers, singles
from schedules.registry import Extension

# accumulators take one of this many registers; the others hold the values of a term (chosen, 2026-11)
ACCUMULATORS = 4
BLOCKS = 4  # least blocks of tiles for each core


def tile_general(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if not op.is_reduction or not undecided(state, stage) or not op.axes:
        return ()
    name = stage.name
    count = _in_a_register(op, lanes_of(op, target))
    apart, filling = op.axes[:-count], op.axes[-count:]
    extent = prod(a.extent for a in filling)
    lanes = min(lanes_of(op, target), extent)
    steps, last = fused(name, [a.name for a in filling])
    holes: list[Hole] = []

    def tile(axis: str, extent: int, wanted: int) -> None:
        choices = tuple(c for c in powers(extent) if c <= 64) or (1,)
        holes.append(Hole(f"{name}/{axis}", singles(choices), (nearest(choices, wanted),)))
        steps.append(SplitStep(name, axis, (Ref(holes[-1].name),)))

    for a in apart:
        tile(a.name, a.extent, 1)
    blocks = powers(max(1, -(-extent // lanes)))[:4]
    wanted = nearest(blocks, _at_once(op, lanes, target))
    whole = vectors_of_period(op.bodies, filling, lanes)
    if whole > 1:
        wanted = whole * max(1, wanted // whole)
        blocks = tuple(sorted({*blocks, whole, wanted}))
    holes.append(Hole(f"{name}/{last}", singles(blocks), (wanted,)))
    steps.append(SplitStep(name, last, (Ref(holes[-1].name), lanes)))
    for a in op.reduce_axes:
        tile(a.name, a.extent, 1)
    outer = [*(f"{a.name}.0" for a in apart), f"{last}.0"]
    inner = [*(f"{a.name}.1" for a in apart), f"{last}.1"]
    slow = [f"{a.name}.0" for a in op.reduce_axes]
    fast = [f"{a.name}.1" for a in op.reduce_axes]
    steps.append(Reorder(name, (*outer, *slow, *inner, *fast, f"{last}.2")))
    together, grid = fused(name, outer)
    steps += together
    steps.append(Unroll(name, f"{last}.1"))
    if lanes > 1:
        steps.append(Vectorize(name, f"{last}.2"))
    steps += divided(name, grid, op, 1, target)  # loads may be far apart, so this counts as without vectors
    steps.append(Pragma(name, grid, "auto_unroll_max_step", "16"))
    return (Extension(tuple(steps), tuple(holes), (name,)),)


def _at_once(op: StageOp, lanes: int, target: Target) -> int:
    """The vectors of a tile: accumulators take a part of the registers, and all cores have blocks."""
    held = target.sum_registers // (ACCUMULATORS * len(op.buffers))
    return max(1, min(held, prod(a.extent for a in op.axes) // (lanes * BLOCKS * target.num_cores)))


def _in_a_register(op: StageOp, lanes: int) -> int:
    """The number of last axes along which a vector goes. It is above 1 if several rows fill a register.

    With registers of 16 lanes, it is 2 for 4x4 matrices and 1 for 5x5 matrices.
    """
    if op.is_open or lanes % op.axes[-1].extent:
        return 1
    points = [prod(a.extent for a in op.axes[-n:]) for n in range(1, len(op.axes) + 1)]
    count = next((n for n, p in enumerate(points, 1) if p >= lanes), 1)
    return count if points[count - 1] % lanes == 0 else 1
