"""Products with few results and a long reduction: each core sums a part of the reduction.

    C[i, j] = Σ_k A[i, k] B[k, j]     ──▶     parallel for p: C.rf[p, i, j] = Σ_k' …      register tiles
                                              C[i, j] = Σ_p C.rf[p, i, j]

The rule applies if the result has fewer tiles than there are cores, and each tile would take its core a long
time. `tile_cpu` tiles the parts, with `p` as one more axis.
"""

from __future__ import annotations

from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.state import Stage, State
from autotensor.schedule.step import Step
from autotensor.te.dag import StageOp
from schedules.kit.operand_roles import assign_roles
from schedules.kit.parallel_region import cycles, is_worth_cutting
from schedules.kit.stage_analysis import lanes_of, untouched
from schedules.kit.tiles import best_tile
from schedules.registry import Extension
from schedules.rules.tiles.tile_cpu import tile_cpu


def split_k(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if target.kind != "llvm" or target.num_cores == 1 or len(op.buffers) != 1 or len(op.reduce_axes) != 1:
        return ()
    if not untouched(stage) or op.combiner is None or op.name.endswith(".rf"):
        return ()
    lanes = lanes_of(op, target)
    roles = assign_roles(state, op, lanes, target)
    if roles is None:
        return ()
    tile = best_tile(roles, target.with_threads(1))  # more and smaller tiles would wait for their own sums
    rows = ceil(roles.outer / tile[0]) * ceil(roles.inner / tile[1])
    tiles = rows * ceil(roles.columns / tile[3]) * prod(a.extent for a in roles.others)
    depth = op.reduce_axes[0].extent
    parts = target.num_cores
    if (
        tiles >= parts
        or depth % parts
        or not is_worth_cutting(cycles(op, lanes, target) / max(1, tiles), target)
    ):
        return ()
    plain = tile_cpu(state, stage, target)
    return (Extension(_steps(op, depth // parts, roles.lanes), (), (stage.name,)), *plain)


def _steps(op: StageOp, length: int, lanes: int) -> tuple[Step, ...]:
    """The steps that make the parts of the reduction a separate stage, and sum them in vectors."""
    depth, last = op.reduce_axes[0].name, op.axes[-1]
    part = f"{depth}.0"
    steps: list[Step] = [SplitStep(op.name, depth, (length,)), RFactor(op.name, part)]
    if last.extent >= lanes:
        outer = [*(a.name for a in op.axes[:-1]), f"{last.name}.0"]
        steps += [
            SplitStep(op.name, last.name, (lanes,)),
            Reorder(op.name, (*outer, part, f"{last.name}.1")),
            Vectorize(op.name, f"{last.name}.1"),
        ]
    return tuple(steps)
