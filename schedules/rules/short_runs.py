"""Sums over short runs of memory that alternate with those of other results: statistics of channel groups.

    S[g] = Σ_p Σ_e x[p, g, e]     ──▶     parallel over blocks of g:
                                            for p, g of the block, vectors of e:  S.rf[g, e] += x[p, g, e]
                                            S[g] = Σ_e S.rf[g, e]

If the results were computed one after the other, each would read only its own runs, which are a few bytes of
many pages. So the rule reads memory in its order. The partial results have one vector each, and stay in the
nearest cache (a group norm of 64 x 64 x 128 with 8 groups takes 0.8 x the time; Zen 3, 2026-11). Computing
row by row is offered second.
"""

from __future__ import annotations

from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.primitives.storage import Storage
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import StageOp
from schedules.cpu import PAGE, cpu_of
from schedules.kit.parallel_region import cycles, is_worth_a_region
from schedules.kit.shared_steps import in_vectors
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import contiguous_reduction, lanes_of, reads, undecided
from schedules.kit.tiles import nearest, powers, singles
from schedules.registry import Extension

# least terms outside of the runs; fewer do not repay joining the partial results (7 x 7 with 32 groups of 64
# takes 1.05 x the time, 14 x 14 takes 0.8 x; Zen 3, 2026-11)
TERMS = 64


def has_short_runs(op: StageOp, target: Target) -> bool:
    """Whether runs of less than a page are next to one another, one for each result, and the outer terms are
    farther apart than all these runs together."""
    if target.kind != "llvm" or not op.is_reduction or not op.axes or len(op.reduce_axes) < 2:
        return False
    if len(op.buffers) != 1 or not contiguous_reduction(op):
        return False
    (*terms, run), last = op.reduce_axes, op.axes[-1]
    size = op.buffers[0].dtype.bytes
    if prod(a.extent for a in terms) < TERMS:
        return False
    fits = run.extent * last.extent * size <= cpu_of(target).near_sums
    if not fits or last.extent < 2 or run.extent < lanes_of(op, target) or run.extent * size >= PAGE:
        return False
    long = [r for r in reads(op) if r.uses(run.name)]
    return all(
        r.strides.get(last.name) == run.extent
        and all(r.strides.get(a.name, 0) >= run.extent * last.extent for a in terms if a.extent > 1)
        for r in long
    )


def short_runs(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if not undecided(state, stage) or not has_short_runs(stage.op, target):
        return ()
    return _ShortRuns().build(stage.op, target), Extension(onward=True)


class _ShortRuns(SketchWriter):
    def build(self, op: StageOp, target: Target) -> Extension:
        name, part, lanes = op.name, f"{op.name}.rf", lanes_of(op, target)
        (*terms, run), (*others, last) = op.reduce_axes, op.axes
        self.write(RFactor(name, run.name))
        blocks = f"{name}/block"
        options = powers(last.extent)
        self.hole(blocks, singles(options), (nearest(options, ceil(last.extent / target.num_cores)),))
        self.split(name, last.name, Ref(blocks))
        self.write(Reorder(name, (*(a.name for a in others), f"{last.name}.0", f"{last.name}.1", run.name)))
        outer = self.fuse(name, [*(a.name for a in others), f"{last.name}.0"])
        if is_worth_a_region(cycles(op, lanes, target), target):
            self.write(Parallel(name, outer))
        near = (*(a.name for a in others), last.name)
        self.write(ComputeAt(part, name, outer), Storage(part, (*near, run.name), 0))
        self.split(part, run.name, lanes)
        vectors = (f"{run.name}.0", f"{run.name}.1")
        self.write(Reorder(part, (*(a.name for a in terms), *near, *vectors)), *in_vectors(part, *vectors))
        return self.extension(name, part)
