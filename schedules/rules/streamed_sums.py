"""Reductions that read memory in order: each core computes partial results, or many sums at once.

    S = Σ_k f(k)             ──▶   parallel over parts p: S.rf[p] = Σ_{k of p} f(k);   S = Σ_p S.rf[p]

    S[g] = Σ_p Σ_e x[p,g,e]  ──▶   parallel over blocks of g:
                                     for p, g of the block, vectors of e:  S.rf[g, e] += x[p, g, e]
                                     S[g] = Σ_e S.rf[g, e]

    C[…, j] = Σ_k x[…, k, j] ──▶   parallel over blocks of columns:
                                     for k, some rows at a time: for j in vectors: C[j] += rows

Long reductions have few results. The partial results are a normal stage with one more axis, which has a point
for each core. The rules for row reductions or register tiles make this stage fast. The last step of the
reduction is computed inside the stage that reads the sum point by point (for a norm, the square root), so
that the threads synchronise only once. A product is cut if it has fewer tiles than there are cores, and each
tile would take its core a long time; the whole product is offered second.

Some results sum short runs of memory, which alternate with the runs of other results (statistics of channel
groups). If the results were computed one after the other, each would read only its own runs, which are a few
bytes of many pages. Each partial result is one vector, and all of them stay in the nearest cache (a group
norm of 64 x 64 x 128 with 8 groups takes 0.8 x the time; Zen 3, 2026-11). Computing row by row is offered
second.

Column sums reduce leading axes (batch statistics, global pooling). The operand is read in rows whose sums fit
into the nearest cache. Several rows are added at a time, so that each sum is loaded and stored only once for
them. A stage that reads the sums point by point (a mean) reads each block while it is still in the cache.

Source: `rfactor` of Halide (Suriana et al., CGO 2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.mark import Parallel, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.primitives.storage import Storage
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Ref, Stage, State
from autotensor.schedule.step import Step
from autotensor.te.dag import IterDef, StageOp
from schedules.cpu import PAGE, cpu_of
from schedules.kit.flat_axes import fused_axes, long_axes, long_loops
from schedules.kit.operand_roles import Roles, assign_roles
from schedules.kit.parallel_region import cycles, divided, is_worth_a_region, is_worth_cutting
from schedules.kit.shared_steps import fused, in_vectors
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import (
    contiguous_reduction,
    epilogue,
    lanes_of,
    reads,
    undecided,
    untouched,
)
from schedules.kit.tiles import best_tile, nearest, powers, singles
from schedules.registry import Extension, in_turn

# Results (or vectors of results) for each core. With at least this many, dividing the results among the cores
# is as good as cutting the reduction.
FEW = 4
# least terms outside of the runs; fewer do not repay joining the partial results (7 x 7 with 32 groups of 64
# takes 1.05 x the time, 14 x 14 takes 0.8 x; Zen 3, 2026-11)
TERMS = 64
ROWS = (1, 2, 4, 7, 8, 16)  # numbers of rows that are added at a time


def streamed_sums(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind == "llvm":
        yield from in_turn((_long_reduction, _short_runs, _columns), state, stage, target)


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


def _long_reduction(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
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


def _short_runs(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
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


def _columns(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if not undecided(state, stage) or not _sums_columns(op) or contiguous_reduction(op):
        return ()  # sums of single terms lie along both; they belong to the rows of a chain
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


def _sums_columns(op: StageOp) -> bool:
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
