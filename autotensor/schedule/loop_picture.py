"""LoopPicture: the loops of a sketch for a whole population at once, as int64 arrays over candidates.

A sketch is replayed once, and its holes become arrays. The loops' extents tell two things for each stage and
loop level: how often the level begins, and how many bytes of every operand the loops inside it touch. The
prior and the features read only this picture. No candidate is lowered to be scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import numpy as np
import numpy.typing as npt

from autotensor.codegen.dot_instructions import DOTS
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import (
    Extents,
    Number,
    Span,
    ceil_div,
    derive,
    least,
    needed,
    spans,
)
from autotensor.schedule.formulas import any_of
from autotensor.schedule.operands import Operand, fetched, footprint, most, operands_of, run
from autotensor.schedule.stage_work import NO_SLOW_WORK, SlowWork, executed, slow_work
from autotensor.schedule.state import At, Fuse, Ref, Split, Stage, State
from autotensor.te.tensor import AxisKind
from autotensor.te.terms import flops

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Level:
    """One loop around a stage's body. It belongs to the stage or to the stage's host."""

    stage: str
    axis: str
    extent: Number
    trips: Number  # average iterations: less than the extent if blocks reach beyond their domain
    parts: tuple[tuple[str, Number], ...]  # axis and trips of the axes fused into it, outermost first
    mark: Mark
    kind: AxisKind
    thread: str = ""  # the axis of GPU threads that the loop is bound to, or the name of a dot instruction


@dataclass(frozen=True, slots=True)
class Part:
    """The inner parts of a fused loop, with all loops inside, as a level of their own."""

    level: int  # position of the fused loop in the levels
    trips: Number  # iterations of the outer parts
    bytes: tuple[Number, ...]  # per operand
    runs: tuple[Number, ...]  # per operand


@dataclass(frozen=True, slots=True)
class StagePicture:
    """A stage that runs at every call: its levels (outermost first), and each operand's bytes per level."""

    name: str
    levels: tuple[Level, ...]
    own: int  # number of levels that belong to the stage itself
    points: Number  # number of times that the body is computed, including tails and recomputation
    flops_per_point: float
    work: int  # operations of the whole stage without tails; the number of its points if it only moves data
    is_reduction: bool
    operands: tuple[Operand, ...]
    # [operand][level]: bytes that the loops inside touch; last: bytes of one point
    bytes: tuple[tuple[Number, ...], ...]
    fetched: tuple[Number, ...]  # [operand]: elements that the innermost unrolled code loads or stores
    lanes: Number  # extent of the vectorized loop; 1 without one
    slow: SlowWork = NO_SLOW_WORK  # slow operations of one point
    # like `bytes`, but only the part that lies in one row in memory
    runs: tuple[tuple[Number, ...], ...] = ()
    parts: tuple[Part, ...] = ()  # parts of the stage's own fused loops, outermost first


@dataclass(frozen=True, slots=True)
class LoopPicture:
    """The stages of all candidates of a population. All candidates have the same sketch."""

    count: int
    stages: tuple[StagePicture, ...]


def picture(state: State, values: Mapping[Ref, Number], count: int = 1) -> LoopPicture:
    """The picture of a state with these numbers (ints, or arrays of `count`) in its holes."""
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
            Mark.UNROLLED if n > inside else a.mark,  # an instruction computes a whole group at once
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
    """The loops that were fused into this one, outermost first."""
    for relation in stage.relations:
        if isinstance(relation, Fuse) and relation.fused == leaf:
            return (*_fused(stage, relation.a), *_fused(stage, relation.b))
    return (leaf,)


Appearance = tuple[
    tuple[object, Number, Number], ...
]  # description of a number, the number, whether it counts


def appearance(p: LoopPicture) -> Appearance:
    """The columns that summaries of candidates' loops are made of."""
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
    """A summary of each candidate's loops: all loops of more than one iteration, and the bytes that they
    touch.

    Candidates of a task with the same summary are the same program, whatever their sketches, except for
    guards of loops that reach beyond their domain. Summaries are bytes, whose hash is computed only once,
    because they are looked up in sets very often.
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
    """The average number of iterations of each of a stage's loops, by the loop's name.

    If i in 0..100 is split by (8, 6), the loops have 3, 8 and 6 iterations. But only 17 of the 24 outer
    iterations do any work, so the middle loop has 17/3 on average. Unrolled loops and vectors run completely.
    """
    found: dict[str, Number] = {a.name: extents[stage.name, a.name] for a in stage.op.all_axes}
    for relation in stage.relations:
        match relation:
            case Split(parent, children, _, _):
                extent = extents[stage.name, parent]
                before: Number = extent / found[parent]  # accounts for empty iterations of the parent itself
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
    operands = operands_of(state, stage, moving, _flat(stage, vector))
    tables = [_axis_spans(state, stage, levels, n, extents) for n in range(len(levels) + 1)]
    held = _held(state, extents)
    inside = _points_inside(levels)
    footprints = tuple(
        tuple(
            least(most(o, points) * o.buffer.dtype.bytes, _whole(o, t, held))
            for t, points in zip(tables, inside, strict=True)
        )
        for o in operands
    )
    runs = tuple(tuple(run(o, t) for t in tables) for o in operands)
    unrolled = _unrolled(stage, levels)
    loaded = tuple(least(most(o, inside[unrolled]), fetched(o, tables[unrolled], moving)) for o in operands)
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
        loaded,
        lanes,
        slow_work(stage.op.bodies),
        runs,
        tuple(_parts(stage, levels, operands, held, extents)),
    )


def _points_inside(levels: tuple[Level, ...]) -> list[Number]:
    """For each level, how often the body runs inside one iteration around it; last: 1 for the body itself."""
    found: list[Number] = [1]
    for level in reversed(levels):
        found.append(found[-1] * level.extent)
    return found[::-1]


def _whole(operand: Operand, axes: Mapping[str, Span], held: Mapping[str, Number]) -> Number:
    """Bytes of the operand that are touched, at most the bytes that its buffer has."""
    return least(footprint(operand, axes), held.get(operand.buffer.name, operand.buffer.bytes))


def _parts(
    stage: Stage,
    levels: tuple[Level, ...],
    operands: tuple[Operand, ...],
    held: Mapping[str, Number],
    extents: Extents,
) -> Iterator[Part]:
    outside = len(levels) - len(stage.leaves)
    trips = _trips(stage, extents)
    for n, leaf in enumerate(stage.leaves):
        names = _fused(stage, leaf.name)
        inside = [a.name for a in stage.leaves[n + 1 :]]
        for cut in range(1, len(names)):
            table = spans(stage, frozenset((*names[cut:], *inside)), extents.of, False)
            touched = tuple(_whole(o, table, held) for o in operands)
            around = prod(trips[name] for name in names[:cut])
            yield Part(outside + n, around, touched, tuple(run(o, table) for o in operands))


def _unrolled(stage: Stage, levels: tuple[Level, ...]) -> int:
    """Index of the first level from which on all inner levels are unrolled or vectors."""
    first = len(levels)
    while first > len(levels) - len(stage.leaves) and levels[first - 1].mark in (
        Mark.UNROLLED,
        Mark.VECTORIZED,
    ):
        first -= 1
    return first


def _held(state: State, extents: Extents) -> dict[str, Number]:
    """Bytes of attached stages' buffers: the box of one iteration, which the next iteration reuses."""
    out: dict[str, Number] = {}
    for stage in state.live():
        if isinstance(stage.place, At):
            points: Number = 1
            for span in extents.stored(stage.name):
                points = points * span.extent
            out.update({b.name: points * b.dtype.bytes for b in stage.op.buffers})
    return out


def _axes_moved_by(stage: Stage, leaf: str, extents: Extents) -> frozenset[str]:
    """Axes of the op whose values change along the vectorized loop."""
    if not leaf:
        return frozenset()
    found = spans(stage, frozenset({leaf}), extents.of, False)
    return frozenset(a.name for a in stage.op.all_axes if any_of(found[a.name].extent > 1))


def _flat(stage: Stage, leaf: str) -> tuple[str, ...]:
    """The axes, outermost first, that the vectorized loop runs over as if they were one axis."""
    for relation in stage.relations:
        if isinstance(relation, Split) and leaf == relation.children[-1]:
            found = _fused(stage, relation.parent)
            return found if len(found) > 1 and {*found} <= {a.name for a in stage.op.axes} else ()
    return ()


def _axis_spans(
    state: State, stage: Stage, levels: tuple[Level, ...], depth: int, extents: Extents
) -> dict[str, Span]:
    """Spans of the stage's axes while all loops from `depth` inwards run and the outer loops stand still."""
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
