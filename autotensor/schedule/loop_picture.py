"""LoopPicture: the loops of a sketch for a whole population at once, as int64 arrays over candidates.

A sketch is replayed once; its holes become arrays. From the loops' extents follow, per stage and loop level,
how often the level is entered and how many bytes of every operand the loops inside it touch. Prior and
features read only this; nothing is lowered to score a candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.codegen.dot_instructions import DOTS
from autotensor.ir.bounds import is_data
from autotensor.ir.expr import Expr
from autotensor.ir.func import Buffer
from autotensor.ir.visit import free_vars
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import (
    Access,
    Extents,
    Number,
    Span,
    access,
    ceil_div,
    derive,
    least,
    needed,
    spans,
)
from autotensor.schedule.formulas import any_of
from autotensor.schedule.stage_work import executed
from autotensor.schedule.state import At, Fuse, Ref, Split, Stage, State
from autotensor.te.tensor import AxisKind
from autotensor.te.terms import flops

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Level:
    """One loop around a stage's body, its own or its host's."""

    stage: str
    axis: str
    extent: Number
    trips: Number  # iterations on average: less than the extent where blocks overhang their domain
    parts: tuple[tuple[str, Number], ...]  # axis and trips of the axes fused into it, outermost first
    mark: Mark
    kind: AxisKind
    thread: str = ""  # the GPU thread axis that it is bound to, or a dot instruction


@dataclass(frozen=True, slots=True)
class Anywhere:
    """One dimension of a load whose index is not a sum of axes, nor a quotient or remainder of one."""

    axes: frozenset[str]  # that it depends on
    what: Expr


@dataclass(frozen=True, slots=True)
class Operand:
    """Loads of a stage that differ by constants only (the taps of a stencil); or (`write`) its store."""

    buffer: Buffer
    dims: tuple[Access | Anywhere, ...]  # of the first of them
    write: bool
    constant: bool
    # "unit" along the vectorized loop, "broadcast" (does not move), "apart" (every other element, or each
    # twice), "strided"
    vector: str
    shifts: tuple[tuple[int, ...], ...] = ()  # per dimension: the constants of all, in order
    count: int = 1  # loads


@dataclass(frozen=True, slots=True)
class StagePicture:
    """A stage that runs at every call: its levels (outermost first) and operand footprints per level."""

    name: str
    levels: tuple[Level, ...]
    own: int  # number of levels that belong to the stage itself
    points: Number  # evaluations of the body, tails and recomputation included
    flops_per_point: float
    work: int  # operations of the whole stage, or its points if it only moves data; without tails
    is_reduction: bool
    operands: tuple[Operand, ...]
    bytes: tuple[tuple[Number, ...], ...]  # [operand][level]: touched by the loops inside; last: one point
    fetched: tuple[Number, ...]  # [operand]: elements that the innermost unrolled code loads, or stores
    lanes: Number  # extent of the vectorized loop, else 1


@dataclass(frozen=True, slots=True)
class LoopPicture:
    """All stages of a population of candidates of one sketch."""

    count: int
    stages: tuple[StagePicture, ...]


def picture(state: State, values: Mapping[Ref, Number], count: int = 1) -> LoopPicture:
    """The picture of a state whose holes have the given numbers (ints, or arrays of `count`)."""
    extents = derive(state, values)
    fixed = state.constant_stages()
    out = []
    for stage in state.live():
        if _root_of(state, stage).name not in fixed:
            out.append(_stage_picture(state, stage, extents))
    return LoopPicture(count, tuple(out))


def _root_of(state: State, stage: Stage) -> Stage:
    while isinstance(stage.place, At):
        stage = state.stage(stage.place.stage)
    return stage


def _levels(state: State, stage: Stage, extents: Extents) -> tuple[Level, ...]:
    trips = _trips(stage, extents)
    inside = next((n for n, a in enumerate(stage.leaves) if a.thread in DOTS), len(stage.leaves))
    own = tuple(
        Level(
            stage.name,
            a.name,
            extents[stage.name, a.name],
            trips[a.name],
            tuple((p.partition(".")[0], trips[p]) for p in _fused(stage, a.name)),
            Mark.UNROLLED if n > inside else a.mark,  # an instruction does all of a group
            a.kind,
            a.thread,
        )
        for n, a in enumerate(stage.leaves)
    )
    if not isinstance(stage.place, At):
        return own
    host = state.stage(stage.place.stage)
    around = _levels(state, host, extents)
    keep = len(around) - len(host.leaves) + host.position(stage.place.axis)
    here, early = around[keep], extents.early[stage.name]
    here = replace(here, extent=here.extent + early, trips=here.trips + early)
    return (*around[:keep], here, *own)


def _fused(stage: Stage, leaf: str) -> tuple[str, ...]:
    """The loops that were fused into one, outermost first."""
    for relation in stage.relations:
        if isinstance(relation, Fuse) and relation.fused == leaf:
            return (*_fused(stage, relation.a), *_fused(stage, relation.b))
    return (leaf,)


Appearance = tuple[
    tuple[object, Number, Number], ...
]  # what a number is about, the number, whether it counts


def appearance(p: LoopPicture) -> Appearance:
    """All that summaries of candidates' loops say."""
    columns: list[tuple[object, Number, Number]] = []
    for s in p.stages:
        for n, v in enumerate(s.levels):
            runs = [np.not_equal(trips, 1) for _, trips in v.parts]
            any_runs = reduce(np.logical_or, runs, np.False_)
            columns.append(((s.name, v.kind.value, v.mark.value), 0, any_runs))
            columns += [(axis, trips, r) for (axis, trips), r in zip(v.parts, runs, strict=True)]
            columns += [("bytes", sizes[n], any_runs) for sizes in s.bytes]
    return tuple(columns)


def looks(columns: Appearance, count: int) -> tuple[bytes, ...]:
    """A summary of each candidate's loops: all that do more than one iteration, and what they touch.

    Candidates of a task that look the same, whatever their sketches, are the same program but for guards of
    loops that overhang. As bytes, since their hash is taken once: membership in sets is tested all the time.
    """
    numbers = np.empty((count, len(columns)), np.float64)
    counts = np.empty((count, len(columns)), np.bool_)
    for n, (_, number, does) in enumerate(columns):
        numbers[:, n], counts[:, n] = number, does
    heads: dict[bytes, bytes] = {}
    found = []
    for row, mine in zip(numbers, counts, strict=True):
        pattern = mine.tobytes()
        if pattern not in heads:
            about = [what for (what, _, _), does in zip(columns, mine, strict=True) if does]
            heads[pattern] = repr(about).encode()
        found.append(heads[pattern] + row[mine].tobytes())
    return tuple(found)


def _trips(stage: Stage, extents: Extents) -> dict[str, Number]:
    """Average iterations of a stage's loops, by name.

    The loops of i in 0..100 split by (8, 6) have 3, 8 and 6 iterations, but only 17 of the 24 outer ones come
    to anything, so the middle one has 17/3 on average. Unrolled loops and vectors run whole.
    """
    found: dict[str, Number] = {a.name: extents[stage.name, a.name] for a in stage.op.all_axes}
    for relation in stage.relations:
        match relation:
            case Split(parent, children, _, _):
                extent = extents[stage.name, parent]
                before: Number = extent / found[parent]  # the parent's own share of empty iterations
                inside: Number = 1
                for child in children[1:]:
                    inside = inside * extents[stage.name, child]
                for child, inner in zip(children, (*children[1:], None), strict=True):
                    count = ceil_div(extent, inside)
                    found[child] = count / before
                    before = count
                    inside = inside // extents[stage.name, inner] if inner is not None else 1
            case Fuse(a, b, fused):
                found[fused] = found[a] * found[b]
    for leaf in stage.leaves:
        if leaf.mark in (Mark.UNROLLED, Mark.VECTORIZED):
            found[leaf.name] = extents[stage.name, leaf.name]
    return found


def _stage_picture(state: State, stage: Stage, extents: Extents) -> StagePicture:
    levels = _levels(state, stage, extents)
    points: Number = 1
    for level in levels:
        points = points * level.extent
    lanes: Number = 1
    vector = ""
    for a in stage.leaves:
        if a.mark is Mark.VECTORIZED:
            lanes, vector = extents[stage.name, a.name], a.name
    moving = _axes_moved_by(stage, vector, extents)
    operands = _operands(state, stage, moving)
    tables = [_axis_spans(state, stage, levels, n, extents) for n in range(len(levels) + 1)]
    held = _held(state, extents)
    footprints = tuple(
        tuple(least(footprint(o, t), held.get(o.buffer.name, o.buffer.bytes)) for t in tables)
        for o in operands
    )
    unrolled = tables[_unrolled(stage, levels)]
    fetched = tuple(_fetched(o, unrolled, moving) for o in operands)
    once, total = stage.op.points(), flops(stage.op)
    return StagePicture(
        stage.name,
        levels,
        len(stage.leaves),
        points,
        executed(stage.op),
        max(total, once),
        stage.op.is_reduction,
        operands,
        footprints,
        fetched,
        lanes,
    )


def _unrolled(stage: Stage, levels: tuple[Level, ...]) -> int:
    """Number of the first of the innermost levels that are unrolled or vectors."""
    first = len(levels)
    while first > len(levels) - len(stage.leaves) and levels[first - 1].mark in (
        Mark.UNROLLED,
        Mark.VECTORIZED,
    ):
        first -= 1
    return first


def _held(state: State, extents: Extents) -> dict[str, Number]:
    """Bytes that buffers of attached stages really take: the box of one iteration, used again by the next."""
    out: dict[str, Number] = {}
    for stage in state.live():
        if isinstance(stage.place, At):
            points: Number = 1
            for span in extents.stored(stage.name):
                points = points * span.extent
            out.update({b.name: points * b.dtype.bytes for b in stage.op.buffers})
    return out


def _axes_moved_by(stage: Stage, leaf: str, extents: Extents) -> frozenset[str]:
    """Axes of the op that the vectorized loop moves."""
    if not leaf:
        return frozenset()
    found = spans(stage, frozenset({leaf}), extents.of, False)
    return frozenset(a.name for a in stage.op.all_axes if any_of(found[a.name].extent > 1))


def _operands(state: State, stage: Stage, moving: frozenset[str]) -> tuple[Operand, ...]:
    constants = set(state.dag.constants) | {
        b.name for s in state.live() if s.name in state.constant_stages() for b in s.op.buffers
    }
    alike: dict[tuple[Buffer, tuple[object, ...]], list[tuple[Access | Anywhere, ...]]] = {}
    for load in stage.op.loads():
        dims = tuple(access(i) or Anywhere(_axes_of(i), i) for i in load.indices)
        alike.setdefault((load.buffer, tuple(map(_walk, dims))), []).append(dims)
    out = []
    for (buffer, _), loads in alike.items():
        fixed = buffer.name in constants
        vector = _vector_kind(loads[0], _strides(state, buffer), moving, fixed)
        shifts = tuple(tuple(sorted({*map(_constant, dims)})) for dims in zip(*loads, strict=True))
        out.append(Operand(buffer, loads[0], False, fixed, vector, shifts, len(loads)))
    for b in stage.op.buffers:
        here = tuple(Access({a.name: 1}, 0) for a in stage.op.axes)
        out.append(Operand(b, here, True, False, "unit", ((0,),) * len(here)))
    return tuple(out)


def _axes_of(index: Expr) -> frozenset[str]:
    return frozenset(v.name for v in free_vars(index))


def _walk(dim: Access | Anywhere) -> object:
    """The common part of loads that differ by constants."""
    return dim if isinstance(dim, Anywhere) else (frozenset(dim.steps.items()), dim.div, dim.mod)


def _constant(dim: Access | Anywhere) -> int:
    return 0 if isinstance(dim, Anywhere) else dim.constant


def _strides(state: State, buffer: Buffer) -> tuple[int, ...]:
    """Elements between neighbours of each dimension, as the buffer is stored."""
    producer = state.producer(buffer)
    if producer is None or producer.storage is None:
        return buffer.row_major()
    steps, step = {}, 1
    extents = {a.name: a.extent for a in producer.op.axes}
    for axis in reversed(producer.storage[0]):
        steps[axis] = step
        step *= extents[axis]
    return tuple(steps[a.name] for a in producer.op.axes)


def _vector_kind(
    dims: tuple[Access | Anywhere, ...], strides: tuple[int, ...], moving: frozenset[str], constant: bool
) -> str:
    stride, apart = 0, False
    for n, (dim, step) in enumerate(zip(dims, strides, strict=True)):
        if isinstance(dim, Access) and dim.is_sum:
            stride += sum(abs(k) * step for a, k in dim.steps.items() if a in moving)
        elif not moving.isdisjoint(dim.axes if isinstance(dim, Anywhere) else dim.steps):
            if n < len(dims) - 1 or (isinstance(dim, Anywhere) and is_data(dim.what)):
                return "strided"
            apart = True
    if stride == 0 and not apart:
        return "broadcast"
    if constant and not apart:
        return "unit"  # constants along the vector are packed
    return "strided" if stride > 2 or (apart and stride) else "unit" if stride == 1 else "apart"


def _axis_spans(
    state: State, stage: Stage, levels: tuple[Level, ...], depth: int, extents: Extents
) -> dict[str, Span]:
    """Spans of the stage's axes while all loops from `depth` inwards run and those outside stand still."""
    outside = len(levels) - len(stage.leaves)
    if depth >= outside:
        inside = frozenset(a.name for a in stage.leaves[depth - outside :])
        return spans(stage, inside, extents.of, False)
    if depth == 0:
        return {a.name: Span(a.extent) for a in stage.op.all_axes}
    level = levels[depth - 1]
    place = At(level.stage, level.axis)
    own = isinstance(stage.place, At) and (stage.place.stage, stage.place.axis) == (level.stage, level.axis)
    box = extents.boxes[stage.name] if own else needed(state, stage, place, extents, False)
    found = {a.name: s for a, s in zip(stage.op.axes, box, strict=True)}
    found.update({a.name: Span(a.extent) for a in stage.op.reduce_axes})
    return found


def footprint(operand: Operand, axes: Mapping[str, Span]) -> Number:
    """Bytes of the operand that are touched while its axes run over the given spans."""
    together: Any = operand.buffer.dtype.bytes
    apart: Any = together * operand.count
    for a, dim, shifts in zip(operand.dims, operand.buffer.shape, operand.shifts, strict=True):
        together = together * _touched(a, dim, axes, shifts)
        apart = apart * _touched(a, dim, axes)
    return least(together, apart)


def _fetched(operand: Operand, axes: Mapping[str, Span], moving: frozenset[str]) -> Number:
    """Elements of all vectors that are loaded, each shift along the vector as one of its own; or of loads
    that do not move with the vector."""
    together: Any = 1
    apart: Any = operand.count
    for a, dim, shifts in zip(operand.dims, operand.buffer.shape, operand.shifts, strict=True):
        alone = _touched(a, dim, axes)
        apart = apart * alone
        if moving.isdisjoint(a.axes if isinstance(a, Anywhere) else a.steps):
            together = together * _touched(a, dim, axes, shifts)
        else:
            together = together * alone * len(shifts)
    return least(together, apart)


def _touched(
    a: Access | Anywhere, dim: int, axes: Mapping[str, Span], shifts: tuple[int, ...] = (0,)
) -> Number:
    """Places of a dimension, of loads that are shifted by these constants."""
    names = a.axes if isinstance(a, Anywhere) else a.steps.keys()
    if not names <= axes.keys():
        return dim
    points: Number = len(shifts)
    for n in names:
        points = points * axes[n].extent
    if isinstance(a, Anywhere):
        return least(points, dim)
    extent: Number = 1 + shifts[-1] - shifts[0]
    for n, k in a.steps.items():
        extent = extent + abs(k) * (axes[n].extent - 1)
    if a.div:
        extent = (extent + a.div - 2) // a.div + 1
    if a.mod:
        extent = least(extent, a.mod)
    return least(least(extent, points), dim)
