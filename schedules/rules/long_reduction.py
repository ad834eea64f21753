"""Long reductions with few results: each core computes partial results, which are joined at the end.

    S = Σ_k f(k)     ──▶     parallel over parts p: S.rf[p] = Σ_{k of p} f(k);     S = Σ_p S.rf[p]

The partial results are a normal stage with one point for each core. The rules for row reductions or register
tiles make this stage fast. The last step of the reduction is computed inside the stage that reads the sum
point by point (for a norm, the square root), so that the threads synchronise only once.

Source: `rfactor` of Halide (Suriana et al., CGO 2017).
"""

from __future__ import annotations

from math import prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.state import Stage, State
from autotensor.schedule.step import Step
from autotensor.te.dag import IterDef, StageOp
from schedules.kit.parallel_region import cycles, is_worth_cutting
from schedules.kit.stage_analysis import contiguous_reduction, epilogue, lanes_of, reads, undecided
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


def long_reduction(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if target.kind != "llvm" or not undecided(state, stage) or not is_long(op, target):
        return ()
    axis = _cut(op, target.num_cores)
    assert axis is not None
    steps: list[Step] = [
        SplitStep(stage.name, axis.name, (-(-axis.extent // target.num_cores),)),
        RFactor(stage.name, f"{axis.name}.0"),
    ]
    done = [stage.name]
    after = epilogue(state, stage)
    if after is not None and after.op.axes:
        steps.append(ComputeAt(stage.name, after.name, after.op.axes[-1].name))
        done.append(after.name)
    return (Extension(tuple(steps), (), tuple(done)),)
