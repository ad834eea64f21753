"""Pointwise stages, copies, transposes: outer loops are parallel, and vectors are contiguous in memory.

K[i, j] = A[i // 30, j // 30] * B[i % 30, j % 30]     ──▶     vectors inside each run of 30 j
U[i, j] = X[i // 3, j // 3]                           ──▶     tiles of three vectors: 48 j read 16 elements

Rows shorter than a vector fill vectors together. Neighbouring rows of a stencil are computed together, also
if the stencil is in a stage that the rule `inline` puts into this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, lcm, prod

from autotensor.base.target import Target
from autotensor.ir.bounds import Interval, bounds
from autotensor.ir.expr import Binary, Const, Expr, Load, Op, const
from autotensor.ir.simplify import Simplifier
from autotensor.ir.visit import MOST_NESTED, collect, free_vars
from autotensor.schedule.inlining import inline_into
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Ref, Stage, State, nested
from autotensor.schedule.step import Step
from autotensor.te.dag import IterDef, StageOp
from schedules.kit.flat_axes import long_axes, long_loops
from schedules.kit.index_periods import vectors_of_period
from schedules.kit.parallel_region import divided_as_one
from schedules.kit.shared_elements import share_work
from schedules.kit.shared_steps import fused, in_vectors
from schedules.kit.stage_analysis import lanes_of, undecided, untouched, walks_one_row
from schedules.kit.tiles import singles
from schedules.placement.reads import points_read, shares_rows
from schedules.placement.rows import rows_hole
from schedules.registry import Extension
from schedules.rules.inline import MOST_LOADS, inline, possible_loads

# With at least this many rows for each core, only rows are divided: the largest unequal part is then a 64th,
# or a 16th if four rows are written together (chosen, 2026-11).
EVEN = 64
DEEP = 16  # most stages that are written out
PLANES = 4  # most planes that are written together
MOST_WRITTEN = 10  # most vectors of a tile of short rows (chosen, 2026-12)


def pointwise(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if target.kind != "llvm" or op.is_reduction or not undecided(state, stage) or not op.axes:
        return ()
    lanes = lanes_of(op, target)
    steps, axes = long_loops(stage.name, op)
    extent = long_axes(op)[-1].extent
    one_row = _is_one_row(state, op, lanes)
    if one_row:
        extent = op.points()
        steps, one = fused(stage.name, [a.name for a in op.axes])
        axes = [one]
    last = axes[-1]
    period = 0 if one_row else _period(op, lanes)
    if period:
        steps, extent = [*steps, SplitStep(stage.name, last, (period,))], period
        axes, last = [*axes[:-1], f"{last}.0", f"{last}.1"], f"{last}.1"
    lanes = fitting(extent, lanes, target.lanes(32))
    if extent < lanes:
        scalar = (*steps, *divided_as_one(stage.name, axes[:-1] or axes, op, lanes, target))
        return (*_interleaved(op, stage.name, lanes, target), Extension(scalar, (), (stage.name,)))
    read = (*op.bodies, *possible_loads(state, op, target))
    whole = 1 if one_row or period else vectors_of_period(read, long_axes(op)[-1:], lanes)
    hole = Hole(f"{stage.name}/unroll", singles(tuple(sorted({1, 2, 4, whole}))), (whole,))
    steps.append(SplitStep(stage.name, last, (Ref(hole.name), lanes)))
    inner, holes = [f"{last}.1", f"{last}.2"], [hole]
    outer = [*axes[:-1], f"{last}.0"]
    flat = replace(op, axes=long_axes(op))
    seen = (points_read(flat, (), (flat,)) or {}) if len(axes) > 1 and not period else {}
    if seen and not shares_rows(flat, seen):
        flat = replace(_written_out(state, op, target), axes=long_axes(op))
        seen = points_read(flat, (), (flat,)) or {}
    if shares_rows(flat, seen):
        row = flat.axes[-2]
        producers = map(state.producer, flat.reads())
        loaded = all(p is None or p.op.is_reduction for p in producers)
        holes.append(rows_hole(flat, seen, target, loaded))
        steps.append(SplitStep(stage.name, row.name, (Ref(holes[-1].name),)))
        outer[-2], inner = f"{row.name}.0", [f"{row.name}.1", *inner]
        steps.append(Reorder(stage.name, (*outer, *inner)))
    elif planes := [] if one_row or period else _planes(op):
        outer, inner = [a for a in outer if a not in planes], [*planes, *inner]
        steps.append(Reorder(stage.name, (*outer, *inner)))
    steps += in_vectors(stage.name, *inner)
    if extent < op.points() and op.points() // extent >= EVEN * target.num_cores:
        outer.pop()  # rows alone divide evenly, and an inner loop needs no division for its index
    steps.extend(divided_as_one(stage.name, outer, op, lanes, target))
    return (
        *_transposed(state, op, stage.name, lanes, target),
        Extension(tuple(steps), tuple(holes), (stage.name,)),
    )


def fitting(extent: int, lanes: int, least: int) -> int:
    """Lanes for rows of this extent. For rows shorter than a register of the result's type, these are fewer
    lanes, down to the lanes of 32 bits, in which bytes and halves are computed. Lanes that divide a row come
    first.

    >>> fitting(128, 64, 16), fitting(48, 64, 16), fitting(40, 64, 16), fitting(9, 64, 16)
    (64, 16, 32, 64)
    """
    shorter = [n for n in (lanes // 2, lanes // 4) if least <= n <= extent < lanes]
    return next((n for n in shorter if extent % n == 0), max(shorter, default=lanes))


def _written_out(state: State, op: StageOp, target: Target) -> StageOp:
    """The op with the expressions of the stages that the rule `inline` puts into it."""
    for _ in range(DEEP):
        sources = (p for b in op.reads() if (p := state.producer(b)) is not None)
        gone = next((p.op for p in sources if _is_inlined(state, p, target)), None)
        if gone is None or nested(op, gone) > MOST_NESTED or len(op.loads()) > MOST_LOADS:
            break
        op = inline_into(op, gone)
    return op


def _is_inlined(state: State, stage: Stage, target: Target) -> bool:
    found = inline(state, stage, target)
    return bool(found) and bool(found[0].done)


def _is_one_row(state: State, op: StageOp, lanes: int) -> bool:
    """Whether all axes may be fused into one: the stage, and all stages that may still be inlined into it,
    read in the order of one row, or read whole vectors of a row."""
    if not walks_one_row(op):
        return False
    whole = op.axes[-1].extent % lanes == 0
    waiting, seen = [op], {op.name}
    while waiting:
        reader = waiting.pop()
        if not walks_one_row(reader) and not (whole and _by_vectors(reader)):
            return False
        for b in reader.reads():
            p = state.producer(b)
            if p is not None and p.name not in seen and untouched(p) and not p.op.is_reduction:
                seen.add(p.name)
                waiting.append(p.op)
    return True


def _planes(op: StageOp) -> list[str]:
    """An outer axis of a few elements, for example the planes of a colour picture, which read the same
    elements or share work.

        y[c, i, j] = f(c, x[i, j, 0], x[i, j, 1], x[i, j, 2])

    If the planes are written together, these elements are read once for all of them.
    """
    axes = long_axes(op)
    read = {v.name for load in op.loads() for i in load.indices for v in free_vars(i)}
    few = [a for a in axes[:-2] if 1 < a.extent <= PLANES and a.name not in read and read]
    few += [a for a in axes[:-1] if share_work(op, (a,), PLANES)]
    return [few[0].name] if few else []


def _period(op: StageOp, lanes: int) -> int:
    """The length of runs along the last axis in which `j // d` stays the same and `j % d` grows by one. The
    result is 0 if the runs are not longer than a vector, or if no vector would cross their ends."""
    last, known = long_axes(op)[-1], bounds({a.var: Interval(0, a.extent - 1) for a in op.axes})
    found = {
        int(e.b.value)
        for load in op.loads()
        if not load.buffer.extents
        for e in collect(Simplifier(known).expr(_place(load)), Binary)
        if e.op in (Op.FLOORDIV, Op.MOD) and e.a is last.var and isinstance(e.b, Const)
    }
    run = min((d for d in found if d > lanes and d % lanes), default=0)
    fits = run and last.extent % run == 0 and all(d % run == 0 or run % d == 0 for d in found)
    return run if fits else 0


def _place(load: Load) -> Expr:
    """The flat position of the element that is read. It is simple if the indices split a row and join it
    again."""
    steps = load.buffer.row_major()
    return sum((i * k for i, k in zip(load.indices, steps, strict=True)), start=const(0))


def _by_vectors(op: StageOp) -> bool:
    """Whether the last axis is the last index of every operand, or does not occur in its indices."""
    last = op.axes[-1] if op.axes else None
    return last is not None and all(
        (bool(load.indices) and load.indices[-1] is last.var)
        or not any(v.name == last.name for i in load.indices for v in free_vars(i))
        for load in op.loads()
    )


def _transposed(state: State, op: StageOp, name: str, lanes: int, target: Target) -> tuple[Extension, ...]:
    """If an operand is read across its rows, the loops are cut into squares, which code generation transposes
    in registers. Operands of producers that may be inlined later count, too.

    Neighbouring squares follow the source's rows, so that whole cache lines are read before they leave the
    cache.
    """
    source = _read_across(op, op.loads()) or _read_across(op, possible_loads(state, op, target))
    if source is None or source.extent < 2:
        return ()
    last = op.axes[-1]
    side = min(lanes, source.extent)
    counts = tuple(n for n in (1, 2, 4) if n == 1 or n * side <= source.extent)
    beside = Hole(f"{name}/beside", singles(counts), (1,))
    others = [a.name for a in op.axes[:-1] if a is not source]
    steps: list[Step] = [
        SplitStep(name, source.name, (Ref(beside.name), side)),
        SplitStep(name, last.name, (min(lanes, last.extent),)),
        Reorder(
            name,
            (
                *others,
                f"{source.name}.0",
                f"{last.name}.0",
                f"{source.name}.1",
                f"{source.name}.2",
                f"{last.name}.1",
            ),
        ),
        *in_vectors(name, f"{source.name}.2", f"{last.name}.1"),
        *divided_as_one(name, [*others, f"{source.name}.0"], op, lanes, target),
    ]
    return (Extension(tuple(steps), (beside,), (name,)),)


def _read_across(op: StageOp, loads: Sequence[Load]) -> IterDef | None:
    """The axis along which those operands are contiguous that are read across their rows: the last axis
    occurs in an index other than the last one. None if there is no such operand, or no common axis."""
    last = op.axes[-1].var
    across = [x for x in loads if x.indices and any(last in free_vars(i) for i in x.indices[:-1])]
    inner = {x.indices[-1] for x in across}
    return next((a for a in op.axes[:-1] if inner == {a.var}), None)


def _interleaved(op: StageOp, name: str, lanes: int, target: Target) -> tuple[Extension, ...]:
    """For rows shorter than a vector: vectors along several rows together.

        rrrr…, gggg…, bbbb…   ──▶   rgbrgb…: code generation shuffles 3 vectors into 3 other vectors.

    A tile begins where a row begins, so the place of each row in it is known.
    """
    sizes = [a.extent for a in op.axes]
    count = next((n for n in range(2, len(sizes) + 1) if prod(sizes[-n:]) >= lanes), 0)
    if not count or sizes[-1] < 2:
        return ()
    together, row = prod(sizes[-count:]), prod(sizes[1 - count :])
    vectors = sizes[-1]
    if count > 2 or sizes[-2] < lanes:
        if op.is_open:
            return ()
        vectors = ceil(together / lanes) if together <= MOST_WRITTEN * lanes else lcm(row, lanes) // lanes
    if vectors > max(MOST_WRITTEN, sizes[-1]):
        return ()
    steps, loop = fused(name, [a.name for a in op.axes[-count:]])
    steps += [
        SplitStep(name, loop, (vectors, lanes)),
        *in_vectors(name, f"{loop}.1", f"{loop}.2"),
        *divided_as_one(name, [*(a.name for a in op.axes[:-count]), f"{loop}.0"], op, lanes, target),
    ]
    return (Extension(tuple(steps), (), (name,)),)
