"""Row chains (softmax, layer norm): all stages of a row are computed while it is in the nearest cache.

    max[r] = max_k x[r,k];  e[r,k] = exp(x[r,k] - max[r]);  sum[r] = Σ_k e[r,k];  out[r,k] = e[r,k] / sum[r]

    ──▶  parallel for blocks of rows:  max, e, sum, out of these rows

Row reductions run in vectors whose lanes are joined at the end of the row; pointwise stages of the chain
unroll a few vectors. If several rows are computed at a time, stage by stage, their work is independent: while
the lanes of one row are joined, the processor already works on the next row. The numbers of vectors and of
rows are holes.

The last stage may be pointwise along the row (softmax), pointwise for each row (a mean), or itself a
reduction (a sum over the last axes, or over all axes, which is one row). A stage belongs to the chain if all
its readers do, and if its leading axes are the rows of the last stage. A pointwise stage whose elements are
read once is inlined. Products before the chain have register tiles and stay outside.
"""

from __future__ import annotations

from math import prod

from autotensor.base.target import Target
from autotensor.ir.visit import MOST_NESTED
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.mark import Parallel, Vectorize
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Inlined, Ref, Stage, State, nested
from autotensor.schedule.step import Step
from autotensor.te.dag import StageOp
from schedules.cpu import cpu_of
from schedules.kit.flat_axes import fused_axes
from schedules.kit.operand_roles import assign_roles
from schedules.kit.parallel_region import cycles, is_worth_a_region
from schedules.kit.shared_steps import fused, in_vectors
from schedules.kit.stage_analysis import (
    at_point,
    contiguous_reduction,
    ends_by_data,
    is_constant,
    is_read_by_terms,
    lanes_of,
    second_cache,
    undecided,
    untouched,
)
from schedules.kit.tiles import singles
from schedules.registry import Extension
from schedules.rules.nested_sums import is_nest
from schedules.rules.one_pass import is_one_pass
from schedules.rules.streamed_sums import has_short_runs, is_long

VECTORS = (1, 2, 4, 8)  # vectors of partial results, and vectors of a pointwise row that are computed at once
MOST_LANES = 256  # lanes of a loop in vectors; lowering refuses more
ROWS = (1, 2, 4, 8)  # numbers of rows at a time
UNROLLED = 8  # steps of a row reduction that are unrolled
MANY = 8  # least iterations of a loop whose end depends on data (2026-11)
BLOCKS = 4  # least blocks of rows for each core


def row_chain(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if target.kind != "llvm" or not undecided(state, stage):
        return ()
    if _is_better_alone(state, stage, target):
        return ()
    if not stage.op.axes:
        return _one_row(stage, target)
    found = _chain_of(state, stage, target)
    if found is None:
        return ()
    rows, chain = found
    gone: list[Inline] = []
    for s in chain:
        if _is_made_where_read(state, state.stage(s.name)):
            gone.append(Inline(s.name))
            state = gone[-1].apply(state)
    stage = state.stage(stage.name)
    chain = tuple(state.stage(s.name) for s in chain if Inline(s.name) not in gone)
    for s in (*chain, stage):
        if s.op.is_reduction and (not contiguous_reduction(s.op) or is_long(s.op, target)):
            return ()  # parallel parts are faster
    holes: list[Hole] = []
    steps, at = _host(holes, stage, (*chain, stage), rows, target)
    for producer in reversed(chain):
        steps.extend(_loops(holes, producer, rows, target))
        steps.append(ComputeAt(producer.name, stage.name, at))
    done = (stage.name, *(s.name for s in chain), *(step.stage for step in gone))
    return (Extension((*gone, *steps), tuple(holes), done),)


def _is_made_where_read(state: State, s: Stage) -> bool:
    """Whether a pointwise stage has one reader, and each point or term of the reader reads another element.
    Inside this reader, nothing is computed twice, and nothing goes through memory."""
    consumers = state.consumers(s)
    if s.op.is_reduction or len(consumers) != 1 or nested(consumers[0].op, s.op) > MOST_NESTED:
        return False
    return is_read_by_terms(consumers[0].op, s.op)


def _one_row(stage: Stage, target: Target) -> tuple[Extension, ...]:
    """A reduction of all elements to a single number: it is one row."""
    op, holes = stage.op, list[Hole]()
    if not contiguous_reduction(op) or op.points() < 2 * lanes_of(op, target):
        return ()
    steps = _loops(holes, stage, 0, target)
    return (Extension(tuple(steps), tuple(holes), (stage.name,)),)


def _is_better_alone(state: State, s: Stage, target: Target) -> bool:
    """Whether a stage is better outside of a chain: it has register tiles, or one pass over its terms for all
    elements."""
    if not s.op.is_reduction:
        return False
    tiles = assign_roles(state, s.op, lanes_of(s.op, target), target) is not None
    return tiles or is_one_pass(s.op) or is_nest(state, s, target)


def _chain_of(state: State, stage: Stage, target: Target) -> tuple[int, tuple[Stage, ...]] | None:
    """The number of leading axes that are rows, and the stages that may be computed inside them; None if
    there is no reduction."""
    if stage.op.is_reduction:
        rows = len(stage.op.axes)
        return rows, chain_of_rows(state, stage, rows, target)
    for rows in range(len(stage.op.axes), 0, -1):
        chain = chain_of_rows(state, stage, rows, target)
        if any(s.op.is_reduction for s in chain):
            return rows, chain
    return None


def chain_of_rows(state: State, out: Stage, rows: int, target: Target) -> tuple[Stage, ...]:
    """The stages that may be computed inside the rows of `out`, producers first."""
    inside = {out.name}
    found: list[Stage] = []
    leading = tuple(a.extent for a in out.op.axes[:rows])
    for s in reversed(state.stages):
        if s.name in inside or isinstance(s.place, Inlined) or is_constant(state, s) or not untouched(s):
            continue
        consumers = state.consumers(s)
        if not consumers or not all(c.name in inside for c in consumers) or state.is_output(s):
            continue
        if state.attached(s.name) or tuple(a.extent for a in s.op.axes[:rows]) != leading:
            continue
        alone = has_short_runs(s.op, target) or _is_better_alone(state, s, target)
        if not alone and all(_same_rows(c.op, s.op, rows) for c in consumers):
            inside.add(s.name)
            found.append(s)
    return tuple(reversed(found))


def _same_rows(consumer: StageOp, producer: StageOp, rows: int) -> bool:
    """Whether the consumer reads the producer at its own row."""
    mine = [load for load in consumer.loads() if load.buffer in producer.buffers]
    return all(at_point(load.indices[:rows], consumer.axes[:rows]) for load in mine)


def _host(
    holes: list[Hole], stage: Stage, stages: tuple[Stage, ...], rows: int, target: Target
) -> tuple[list[Step], str]:
    """The steps of the last stage, and its loop over the rows of a block."""
    name, op = stage.name, stage.op
    last = op.axes[rows - 1]
    bytes_of_row = sum(_row_points(s.op, rows) * s.op.buffers[0].dtype.bytes for s in stages)
    most_rows = min(last.extent, ROWS[-1])
    options = tuple(sorted({n for n in (*ROWS, most_rows) if n <= most_rows}))  # three results are one block
    points = prod(a.extent for a in op.axes[:rows])
    cpu = cpu_of(target)
    # rows of a single stage share nothing, so there are as many blocks as possible
    near = len(stages) > 1 and _moved(stages) <= cpu.rows_of_l2 * second_cache(target) * target.num_cores
    most = cpu.near_rows_of_l2 if near else cpu.near_rows
    fitting = [n for n in options if n * bytes_of_row <= most and points >= n * BLOCKS * target.num_cores]
    holes.append(Hole(f"{name}/rows", singles(options), (max(fitting, default=1),)))
    steps: list[Step] = [SplitStep(name, last.name, (Ref(holes[-1].name),))]
    together, outer = fused(name, [*(a.name for a in op.axes[: rows - 1]), f"{last.name}.0"])
    steps += [*together, *_loops(holes, stage, rows, target, (outer, f"{last.name}.1"))]
    if is_worth_a_region(sum(cycles(s.op, lanes_of(s.op, target), target) for s in stages), target):
        steps.append(Parallel(name, outer))
    return steps, outer


def _moved(stages: tuple[Stage, ...]) -> int:
    """The bytes that these stages read and that the last one writes. The results of the other stages stay in
    the cache."""
    made = {b for s in stages[:-1] for b in s.op.buffers}
    read = {load.buffer for s in stages for load in s.op.loads()}
    return sum(int(b.bytes) for b in (read | {*stages[-1].op.buffers}) - made)


def _row_points(op: StageOp, rows: int) -> int:
    """The points of one row, including the points of the reduction."""
    return op.points() // max(1, prod(a.extent for a in op.axes[:rows]))


def _loops(
    holes: list[Hole], stage: Stage, rows: int, target: Target, outer: tuple[str, ...] = ()
) -> list[Step]:
    """The steps that make vectors of a row. outer: the outer loops, if these are no longer the op's axes."""
    op, lanes = stage.op, lanes_of(stage.op, target)
    if op.is_reduction:
        spatial = outer or tuple(a.name for a in op.axes)
        return _reduction(holes, stage.name, op, lanes, spatial, cpu_of(target).latency)
    inner = op.axes[rows:]
    steps, axis, extent = fused_axes(stage.name, op, inner)
    if inner and extent >= lanes:
        options = tuple(n for n in VECTORS if n * lanes <= extent)
        holes.append(Hole(f"{stage.name}/unroll", singles(options), (options[min(1, len(options) - 1)],)))
        steps.append(SplitStep(stage.name, axis, (Ref(holes[-1].name), lanes)))
        steps += in_vectors(stage.name, f"{axis}.1", f"{axis}.2")
    return steps


def _reduction(
    holes: list[Hole], name: str, op: StageOp, lanes: int, spatial: tuple[str, ...], latency: int
) -> list[Step]:
    """The steps of a row reduction in vectors, with the loop over lanes outside. There are no more vectors
    than are needed to hide the latency of an addition."""
    steps, axis, extent = fused_axes(name, op, op.reduce_axes)
    if extent < 2:
        return []
    most = min(extent, MOST_LANES)
    options = tuple(n * lanes for n in VECTORS if n * lanes <= most) or (1 << (extent - 1).bit_length(),)
    ends = ends_by_data(op)
    turns = MANY if ends else 2
    own = max((w for w in options if w <= latency * lanes and turns * w <= extent), default=options[0])
    holes.append(Hole(f"{name}/lanes", singles(options), (own,)))
    others = [a.name for a in op.reduce_axes[: len(op.reduce_axes) - len(steps) - 1]]
    steps.append(SplitStep(name, axis, (Ref(holes[-1].name),)))
    steps.append(Reorder(name, (*spatial, f"{axis}.1", *others, f"{axis}.0")))
    if not ends:  # an unrolled loop cannot end before its last iteration
        steps.append(Pragma(name, f"{axis}.1", "auto_unroll_max_step", str(UNROLLED)))
    steps.append(Vectorize(name, f"{axis}.1"))
    return steps
