"""Long reductions with few results: each core computes partial results, which are joined at the end.

    S = Σ_k f(k)     ──▶     parallel over parts p: S.rf[p] = Σ_{k of p} f(k);     S = Σ_p S.rf[p]

The partial results are a normal stage with one more axis, which has a point for each core. The rules for row
reductions or register tiles make this stage fast. The last step of the reduction is computed inside the stage
that reads the sum point by point (for a norm, the square root), so that the threads synchronise only once.
A product is cut if it has fewer tiles than there are cores, and each tile would take its core a long time;
the whole product is offered second.

Source: `rfactor` of Halide (Suriana et al., CGO 2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.state import Stage, State
from autotensor.schedule.step import Step
from autotensor.te.dag import IterDef, StageOp
from schedules.kit.operand_roles import Roles, assign_roles
from schedules.kit.parallel_region import cycles, is_worth_cutting
from schedules.kit.stage_analysis import (
    contiguous_reduction,
    epilogue,
    lanes_of,
    reads,
    undecided,
    untouched,
)
from schedules.kit.tiles import best_tile
from schedules.registry import Extension

# Results (or vectors of results) for each core. With at least this many, dividing the results among the cores
# is as good as cutting the reduction.
FEW = 4


def is_long(op: StageOp, target: Target) -> bool:
    """Whether the reduction should be cut into parts, because its results do not divide among the cores."""
    cores = target.num_cores
    if cores == 1 or not op.is_reduction or _cut(op, cores) is None:
        return False
    if not is_worth_cutting(cycles(op, lanes_of(op, target), target), target):
        return False
    if contiguous_reduction(op):
        results = prod(a.extent for a in op.axes)
        return results % cores != 0 and results < FEW * cores
    streams = all(r.uses(a.name) for r in reads(op) for a in op.axes if a.extent > 1)
    return streams and prod(a.extent for a in op.axes) < FEW * cores * lanes_of(op, target)


def _cut(op: StageOp, parts: int) -> IterDef | None:
    """The reduction axis to cut: the outermost one whose extent is a multiple of `parts`; without one, the
    outermost one whose extent is at least `parts`."""
    enough = [a for a in op.reduce_axes if a.extent >= parts]
    return next((a for a in enough if a.extent % parts == 0), enough[0] if enough else None)


def long_reduction(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm":
        return
    if undecided(state, stage) and is_long(stage.op, target):
        yield _for_cores(state, stage, target)
    elif untouched(stage) and (product := _long_product(state, stage, target)) is not None:
        yield Extension(_product_steps(stage.op, target.num_cores, product.lanes), (), (stage.name,))
        yield Extension(onward=True)


def for_cores(op: StageOp, axis: IterDef, parts: int) -> tuple[Step, ...]:
    """The steps that give each core partial results of about the same number of terms."""
    return SplitStep(op.name, axis.name, (-(-axis.extent // parts),)), RFactor(op.name, f"{axis.name}.0")


def _for_cores(state: State, stage: Stage, target: Target) -> Extension:
    axis = _cut(stage.op, target.num_cores)
    assert axis is not None
    steps = for_cores(stage.op, axis, target.num_cores)
    after = epilogue(state, stage)
    if after is None or not after.op.axes:
        return Extension(steps, (), (stage.name,))
    place = ComputeAt(stage.name, after.name, after.op.axes[-1].name)
    return Extension((*steps, place), (), (stage.name, after.name))


def _long_product(state: State, stage: Stage, target: Target) -> Roles | None:
    """The roles of a product with fewer tiles than cores, each of which would take its core a long time."""
    op, parts = stage.op, target.num_cores
    if parts == 1 or len(op.buffers) != 1 or len(op.reduce_axes) != 1:
        return None
    if op.combiner is None or op.name.endswith(".rf"):
        return None
    lanes, depth = lanes_of(op, target), op.reduce_axes[0].extent
    roles = assign_roles(state, op, lanes, target)
    if roles is None or depth % parts:
        return None
    tile = best_tile(roles, target.with_threads(1))  # more and smaller tiles would wait for their own sums
    rows = ceil(roles.outer / tile[0]) * ceil(roles.inner / tile[1])
    tiles = rows * ceil(roles.columns / tile[3]) * prod(a.extent for a in roles.others)
    long = is_worth_cutting(cycles(op, lanes, target) / max(1, tiles), target)
    return roles if tiles < parts and long else None


def _product_steps(op: StageOp, parts: int, lanes: int) -> tuple[Step, ...]:
    """Parts of the product's reduction, whose results are added in vectors."""
    depth, last = op.reduce_axes[0], op.axes[-1]
    steps = for_cores(op, depth, parts)
    if last.extent < lanes:
        return steps
    outer = [*(a.name for a in op.axes[:-1]), f"{last.name}.0"]
    return (
        *steps,
        SplitStep(op.name, last.name, (lanes,)),
        Reorder(op.name, (*outer, f"{depth.name}.0", f"{last.name}.1")),
        Vectorize(op.name, f"{last.name}.1"),
    )
