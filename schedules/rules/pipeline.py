"""Pipelines: chains of stencils, in which each stage is computed at the cheapest place.

    parallel over tiles of the last stage:
      for each stage that is kept:   the part that the tile needs, in vectors   recomputed where tiles overlap
      the tile of the last stage, with the stages that are inlined in it

If the terms of a sum are separate stages, they are computed where the sum adds them, and stay in registers.

In strips of whole rows, nothing is computed twice:

    parallel over strips of the last stage:
      step by step, for each stage that is kept:   only new rows; the rows of the step before are kept
      a few rows of the last stage

`placement` chooses the tile, and whether a stage is inlined, kept in a tile, computed as such a term or
computed whole. Its cheapest plan comes first, and plans that differ in one place follow. The result of the
later rules, which inline all cheap stages, is one of the plans; its position follows from its cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from math import ceil, prod

from autotensor.base.errors import ScheduleError
from autotensor.base.target import Target
from autotensor.ir.visit import MOST_NESTED
from autotensor.schedule.carried import vector_along
from autotensor.schedule.extents import derive
from autotensor.schedule.primitives.cache import CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.store_at import StoreAt
from autotensor.schedule.sketch import Hole, Option
from autotensor.schedule.state import Inlined, Ref, Stage, State, nested
from autotensor.te.dag import IterDef, StageOp
from schedules.kit.index_periods import vectors_of_period
from schedules.kit.parallel_region import is_worth_a_region
from schedules.kit.shared_steps import in_vectors
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import (
    is_constant,
    is_padding,
    is_read_by_terms,
    lanes_of,
    matches_elementwise,
    names_of_terms,
    reads,
    undecided,
)
from schedules.kit.tiles import powers, singles
from schedules.placement.cost import Group
from schedules.placement.reads import WRITTEN_OUT, of_all_terms, points_read, shares_rows
from schedules.placement.rows import rows_hole
from schedules.placement.search import Placed, Places
from schedules.registry import Extension

MOST_TERMS = 128  # most terms of a reduction in a tile; with more, it is a product, which has other rules
SMALL = 2048  # bytes of an operand that is always in the nearest cache, for example a window's weights
STEP_ROWS = (1, 2, 4, 8)  # numbers of rows in a step of a tile
MOST_STAGES = 12  # most stages of one pipeline; with more, most of a tile would be computed twice
SLIDING = 2  # plans with sliding stages that are offered
# number of the cheapest plans with sliding stages that are tried; those that can be made are offered (chosen,
# 2026-11)
TRIED = 24
PLANS = 6  # other plans that are offered
MOST_PLACES = 48  # most places in all plans together; plans with many stages are fewer
# a plan comes before the result of the later rules if it seems this many times as fast (chosen, 2026-11)
SURE = 1.05


def pipeline(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if target.kind != "llvm" or not _can_host(state, stage):
        return ()
    group = group_of(state, stage, target)
    if group is None or not tiled_axes(stage.op, group.lanes):
        return ()
    free = tuple((o.name, _places(state, state.stage(o.name))) for o in group.order[:-1])
    plain, found = _plans(group, free)
    plans = [p for p in found if p.plan != plain.plan and not p.plan.steps]
    sliding = dict(islice(_slid(state, group, found, target), SLIDING))
    apart = [p for p in plans if not p.plan.tiled]
    most = max(1, min(PLANS, MOST_PLACES // len(group.order)))
    cheap = sorted((*plans[:most], *sliding), key=lambda p: p.cycles)
    first = [p for p in cheap if SURE * p.cycles < plain.cycles]
    rest = [p for p in dict.fromkeys((*cheap, *apart[:1])) if p not in first]

    def made(p: Placed) -> Extension:
        return sliding[p] if p in sliding else _extension(state, group, p, target)

    return (*map(made, first), Extension(onward=True), *map(made, rest))


@lru_cache(maxsize=64)  # called with the same arguments for several sketches
def _plans(group: Group, free: tuple[tuple[str, frozenset[str]], ...]) -> tuple[Placed, tuple[Placed, ...]]:
    """The plan with all possible stages inlined; and all plans, the cheapest first."""
    places = Places(group, dict(free))
    return places.plain(), tuple(places.best())


def _slid(
    state: State, group: Group, found: Sequence[Placed], target: Target
) -> Iterator[tuple[Placed, Extension]]:
    """The plans with sliding stages that are possible, because each step can keep the rows that the plan
    keeps."""
    for placed in [p for p in found if p.steps is not None][:TRIED]:
        made = _steady(state, _extension(state, group, placed, target), group, placed)
        if made is not None:
            yield placed, made


def _extension(state: State, group: Group, placed: Placed, target: Target) -> Extension:
    """A plan as an extension. A plan without a tile leaves the loops to the later rules."""
    if placed.plan.tiled:
        return _Pipeline(state, group, placed, target).build()
    gone = [o.name for o in reversed(group.order) if o.name in placed.plan.inlined]
    stays = tuple(o.name for o in group.order[:-1] if o.name not in gone)
    return Extension(tuple(Inline(n) for n in gone), stays=stays, onward=True)


def _steady(state: State, made: Extension, group: Group, placed: Placed) -> Extension | None:
    """The extension with only those numbers of rows in a step for which all reads move by the same distance
    from step to step. The result is None if this does not hold for the default number."""
    assert placed.steps is not None
    host = group.last
    name = steps_name(host, placed.steps[0])
    for step in made.steps:
        state = step.apply(state)
    (hole,) = (h for h in made.holes if h.name == name)
    count, wanted = hole.default

    def keeps(rows: int) -> bool:
        return _derives(state, host.name, made.holes, {name: (count, rows)})

    if not keeps(wanted):
        return None
    steady = {wanted, *(r for r in {r for _, r in hole.options} - {wanted} if keeps(r))}
    kept = replace(hole, options=tuple(o for o in hole.options if o[1] in steady))
    return replace(made, holes=tuple(kept if h is hole else h for h in made.holes))


def _derives(state: State, host: str, holes: Sequence[Hole], decided: Mapping[str, Option]) -> bool:
    """Whether extents for the loops of a stage, and of the stages in it, can be derived with the defaults of
    the other holes, and no vector is along an axis on which stages slide."""
    options = ((h.name, decided.get(h.name, h.default)) for h in holes)
    values = {Ref(name, n): value for name, option in options for n, value in enumerate(option)}
    try:
        windows = derive(state, values, of=host).windows
    except ScheduleError:
        return False
    moving = ((state.stage(name), w.along) for name, w in windows.items())
    return not any(vector_along(s, s.op.axes[along].name) for s, along in moving)


def _can_host(state: State, stage: Stage) -> bool:
    return _is_open(state, stage) and (not stage.op.is_reduction or _is_window(stage.op))


def _is_open(state: State, stage: Stage) -> bool:
    return bool(stage.op.axes) and undecided(state, stage)


def _reads_around(reader: StageOp, op: StageOp) -> bool:
    """Whether one point of the reader reads several points of `op`, by several loads or in a window."""
    mine = [r for r in reads(reader) if r.load.buffer in op.buffers]
    terms = {a.name for a in reader.reduce_axes}
    return len(mine) > 1 or any(
        d is not None and terms & d.steps.keys() and d.steps.keys() - terms for r in mine for d in r.dims
    )


def _is_window(op: StageOp) -> bool:
    """Whether each point sums a few terms that other points do not use. Only small operands may be shared by
    many points; products share large operands and need register tiles."""
    long = [a.name for a in op.axes if a.extent > 1]
    return prod(a.extent for a in op.reduce_axes) <= MOST_TERMS and all(
        r.load.buffer.bytes <= SMALL or all(r.uses(a) for a in long) for r in reads(op)
    )


def group_of(state: State, stage: Stage, target: Target) -> Group | None:
    """The stages before a stage that may be computed with it. The result is None if there is nothing to
    decide, because no stage is read at several points, is a sum, or is a term of a sum."""
    inside = [stage]
    names = {stage.name}
    worth = again = False
    for s in reversed(state.stages[: state.names.index(stage.name)]):
        consumers = state.consumers(s)
        if not consumers or isinstance(s.place, Inlined) or not any(c.name in names for c in consumers):
            continue
        if state.is_output(s) or is_constant(state, s):
            continue
        if not _can_host(state, s) and not (_is_open(state, s) and _is_term(state, s)):
            continue
        if not all(c.name in names for c in consumers):
            continue
        if len(inside) >= MOST_STAGES:
            break  # the earlier stages are another pipeline
        inside.append(s)
        names.add(s.name)
        around = not is_padding(s.op) and any(_reads_around(c.op, s.op) for c in consumers)
        worth = worth or around or _is_term(state, s)
        again = again or any(not c.op.is_reduction and c.op.points() >= 2 * s.op.points() for c in consumers)
    if not worth and not (again and _is_closed(state, inside)):
        return None
    return Group(tuple(s.op for s in reversed(inside)), lanes_of(stage.op, target), target)


def _is_closed(state: State, inside: Sequence[Stage]) -> bool:
    """Whether all stages are pointwise, and no computed stage comes before them."""
    names = {s.name for s in inside}
    producers = (state.producer(b) for s in inside for b in s.op.reads())
    return not any(s.op.is_reduction for s in inside) and all(p is None or p.name in names for p in producers)


def _places(state: State, stage: Stage) -> frozenset[str]:
    found = {"whole"}
    if _can_host(state, stage):
        found.add("tile")
    if not stage.op.is_reduction and all(
        nested(c.op, stage.op) <= MOST_NESTED for c in state.consumers(stage)
    ):
        found.add("inline")
    if _is_term(state, stage):
        found.add("term")
    return frozenset(found)


def _is_term(state: State, stage: Stage) -> bool:
    """Whether each element is read once, for a term of one sum: by the sum itself, or by another such term.
    The stage and its reader have the same rows and vectors."""
    readers = state.consumers(stage)
    op = stage.op
    if len(readers) != 1 or len(op.axes) < 2 or prod(a.extent for a in op.reduce_axes) > WRITTEN_OUT:
        return False
    (reader,) = readers
    if not reader.op.is_reduction:
        return matches_elementwise(reader.op, op) and _is_term(state, reader)
    names = names_of_terms(reader.op, op)
    ends = zip(reader.op.axes[-2:], op.axes[-2:], strict=False)
    return (
        names is not None
        and is_read_by_terms(reader.op, op)
        and all(names[a.name] == b.name for a, b in ends)
        and len(reader.op.axes) > 1
    )


class _Pipeline(SketchWriter):
    """Writes the sketch of one plan."""

    def __init__(self, state: State, group: Group, placed: Placed, target: Target) -> None:
        super().__init__()
        self.state, self.group, self.placed, self.target = state, group, placed, target
        self.lanes = group.lanes
        self.after = state  # without the stages that are inlined

    def build(self) -> Extension:
        plan, last = self.placed.plan, self.group.last
        for op in reversed(self.group.order):
            if op.name in plan.inlined:
                self.write(Inline(op.name))
                self.after = Inline(op.name).apply(self.after)
        summed = [o for o in self.group.order if o.is_reduction and (o.name in plan.tiled or o is last)]
        self.write(*(CacheWrite(o.name, "local") for o in summed))
        around, at, inner = self._host(last)
        if last in summed:
            self._sum(last, inner)
        for op in reversed(self.group.order):
            if op.name in plan.tiled:
                self.write(ComputeAt(op.name, last.name, at))
                if plan.steps:
                    self.write(StoreAt(op.name, last.name, around))
                inner = self._vectors(op, [a.name for a in op.axes])
                if op in summed:
                    self._sum(op, inner)
        gone = plan.tiled | plan.inlined | plan.terms
        others = [o.name for o in self.group.order[:-1] if o.name not in gone]
        done = [o.name for o in self.group.order if o.name not in others]
        found = self.extension(*done, *(f"{o.name}.local" for o in summed))
        return Extension(found.steps, found.holes, found.done, stays=tuple(others))

    def _host(self, op: StageOp) -> tuple[str, str, str]:
        """Makes the loops of the last stage. Returns the loop over tiles, the loop over the steps of a tile
        (the same loop if a tile has no steps), and the loop around a step's vectors."""
        outer, steps, inside = [], [], []
        tiled = tiled_axes(op, self.lanes)
        slid, rows = self.placed.steps or ("", 0)
        for a, size in zip(op.axes, self.placed.tile, strict=True):
            if a not in tiled:
                inside.append(a.name)
                continue
            if a.name == slid:
                hole = steps_name(op, slid)
                self.hole(hole, *_steps(a, size, rows))
                self.split(op.name, a.name, Ref(hole, 0), Ref(hole, 1))
                outer.append(f"{a.name}.0")
                steps.append(f"{a.name}.1")
                inside.append(f"{a.name}.2")
                continue
            least = self.lanes if a is tiled[-1] else 1
            whole = self.lanes * self._whole_periods(op) if a is op.axes[-1] else 1
            wanted = min(a.extent, ceil(size / whole) * whole) if whole > self.lanes else size
            self.hole(f"{op.name}/{a.name}", *_sizes(a, wanted, least))
            self.split(op.name, a.name, Ref(self.holes[-1].name))
            outer.append(f"{a.name}.0")
            inside.append(f"{a.name}.1")
        self.write(Reorder(op.name, (*outer, *steps, *inside)))
        around = self.fuse(op.name, outer)
        inner = self._vectors(op, inside)
        if is_worth_a_region(self.placed.cycles, self.target):
            self.write(Parallel(op.name, around))
        return around, (steps or [around])[0], inner

    def _vectors(self, op: StageOp, loops: list[str]) -> str:
        """Vectorizes the innermost loops. Returns the loop around them."""
        name, last, lanes = op.name, loops[-1], self.lanes
        small = op.axes[-1].extent
        if small < lanes and len(loops) > 1:
            last = self.fuse(name, loops[-2:])
            self.split(name, last, small, lanes)
            self.write(Unroll(name, f"{last}.1"), Vectorize(name, f"{last}.2"))
            return f"{last}.0"
        if small < lanes:
            return loops[-1]
        whole = self._whole_periods(op)
        self.split(name, last, *([whole] if whole > 1 else []), lanes)
        inner = [f"{last}.{n}" for n in range(1, 3 if whole > 1 else 2)]
        hole = self._rows(op) if len(loops) > 1 else None
        if hole is not None:
            self.holes.append(hole)
            self.split(name, loops[-2], Ref(hole.name))
            inner.insert(0, f"{loops[-2]}.1")
            self.write(Reorder(name, (f"{loops[-2]}.0", f"{last}.0", *inner)))
        self.write(*in_vectors(name, *inner))
        return f"{last}.0"

    def _whole_periods(self, op: StageOp) -> int:
        """The vectors along a stage's last axis that are a multiple of the period of its indices."""
        return vectors_of_period(self.after.stage(op.name).op.bodies, op.axes[-1:], self.lanes)

    def _rows(self, op: StageOp) -> Hole | None:
        """The hole for the number of rows of a stage that are computed together; None if neighbouring rows,
        or the terms of their sums, read nothing in common."""
        for one in (*self._terms(op), op):
            at_once = one if one is op else replace(one, reduce_axes=_down_rows(one))
            seen = of_all_terms(at_once, points_read(one, self.placed.plan.inlined, self.group.order) or {})
            if shares_rows(one, seen):
                whole = one is op and op is self.group.last
                return replace(rows_hole(one, seen, self.target, whole), name=f"{op.name}/rows")
        return None

    def _terms(self, op: StageOp) -> tuple[StageOp, ...]:
        """The stages that are computed where the sums of `op` add them as terms, producers first."""
        found: list[StageOp] = []
        for other in reversed(self.group.order):
            readers = [o for o in (op, *found) if any(b in o.reads() for b in other.buffers)]
            if other.name in self.placed.plan.terms and readers:
                found.insert(0, other)
        return tuple(found)

    def _sum(self, op: StageOp, at: str) -> None:
        """Makes the loops over terms for a vector of sums inside the loop `at`. Inner loops are unrolled,
        unless stages are computed for each term."""
        name = f"{op.name}.local"
        self.write(ComputeAt(name, op.name, at))
        axes, terms = [a.name for a in op.axes], [*op.reduce_axes]
        small = op.axes[-1].extent
        vectors: tuple[str, ...] = (axes[-1],)
        if small >= self.lanes:
            self.split(name, axes[-1], self.lanes)
            vectors = (f"{axes[-1]}.0", f"{axes[-1]}.1")
        self.write(Reorder(name, (*(a.name for a in terms), *axes[:-1], *vectors)))
        if any(h.name == f"{op.name}/rows" for h in self.holes):
            self.write(Unroll(name, axes[-2]))
        made = self._terms(op)
        if not made:
            self.write(*(Unroll(name, a.name) for a in _written_out(op)))
        if small >= self.lanes:
            self.write(Unroll(name, vectors[0]), Vectorize(name, vectors[1]))
        for one in reversed(made):
            self._term(one, name, terms[-1].name)

    def _term(self, op: StageOp, sums: str, at: str) -> None:
        """Computes a stage at a term of sums: a few rows of one vector, in registers."""
        *others, last = (a.name for a in op.axes)
        down = _down_rows(op)  # innermost, so that shared values are needed only briefly
        terms = [a.name for a in (*(a for a in op.reduce_axes if a not in down), *down)]
        inner = [*terms, *others, f"{last}.0", f"{last}.1"]
        self.write(ComputeAt(op.name, sums, at))
        self.split(op.name, last, self.lanes)
        self.write(Reorder(op.name, tuple(inner)), *in_vectors(op.name, *inner))


def _down_rows(op: StageOp) -> tuple[IterDef, ...]:
    """The reduction axes of windows that move along the rows."""
    row, dims = op.axes[-2].name, [d for r in reads(op) for d in r.dims if d is not None]
    return tuple(a for a in op.reduce_axes if any({row, a.name} <= d.steps.keys() for d in dims))


def _written_out(op: StageOp) -> Iterator[IterDef]:
    """The inner reduction axes of a sum that are unrolled, innermost first."""
    count = 1
    for a in reversed(op.reduce_axes):
        count *= a.extent
        if count > WRITTEN_OUT:
            return
        yield a


def tiled_axes(op: StageOp, lanes: int) -> tuple[IterDef, ...]:
    """The axes along which tiles are cut: all axes, except a last axis that is shorter than a vector."""
    axes = op.axes[:-1] if len(op.axes) > 1 and op.axes[-1].extent < lanes else op.axes
    return tuple(a for a in axes if a.extent > 1)


def steps_name(op: StageOp, axis: str) -> str:
    """The name of the hole for the number of steps of a tile, and for the rows of each step."""
    return f"{op.name}/{axis} steps"


def _steps(axis: IterDef, size: int, rows: int) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """The options (steps of a tile, rows of a step), and the plan's choice."""
    lengths = {size, axis.extent, *(ceil(axis.extent / n) for n in (2, 4, 8, 16))}
    found = {(ceil(n / r), r) for n in lengths for r in STEP_ROWS if r < n}
    return tuple(sorted(found)), (ceil(size / rows), rows)


def _sizes(axis: IterDef, wanted: int, least: int) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """The options for the sizes of a tile along an axis, and the plan's choice."""
    found = {n for n in powers(axis.extent) if least <= n <= 512} | {wanted, axis.extent}
    return singles(tuple(sorted(found))), (wanted,)


__all__ = ["group_of", "pipeline"]
