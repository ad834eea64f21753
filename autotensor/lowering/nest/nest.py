"""State → loop IR: nests with attached stages, guards for tails, initialisation of reductions.

There is one kernel for each root stage. Inside a nest:

    for leaf …                        loops outside the first reduction loop
      (attached producers)
      init:   C[…] = identity         over the spatial loops that lie inside the reduction
      for reduce leaf …: C[…] = combine(C[…], body)

A vectorized reduction loop gets an accumulator for each lane (`by_lanes.py`). A reduction loop that is bound
to threads gets an accumulator for each thread (`by_threads.py`).

`stage_loops.py` gives the indices of a stage in terms of its loops, with their guards. A guard is placed as
far out as its variables allow (`loops.py`). An attached stage writes a buffer that holds only its box
(`boxes.py`); `guards.py` decides which points of the box are guarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.ir.bounds import Interval
from autotensor.ir.expr import Expr, Var, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Role
from autotensor.ir.stmt import Alloc, For, If, Let, Stmt, Store, seq
from autotensor.ir.visit import free_vars
from autotensor.lowering.device_features import PLAIN, Device, block_of
from autotensor.lowering.nest.boxes import Body, Boxes
from autotensor.lowering.nest.extents_argument import with_extents
from autotensor.lowering.nest.loops import Loops, bound_vars, settled, some_need, some_point
from autotensor.lowering.nest.marks import ENDING, check_marks, check_ring, kind_of
from autotensor.lowering.nest.reduction.by_lanes import LaneAccumulators
from autotensor.lowering.nest.reduction.by_shuffles import Shuffled, warp_lanes
from autotensor.lowering.nest.reduction.by_threads import Across, ThreadLoop, meets, thread_vars
from autotensor.lowering.nest.reduction.partial_sums import Part, is_apart
from autotensor.lowering.nest.runtime_extents import RuntimeExtents, refuse_open, runtime_extents
from autotensor.lowering.nest.solved_loops import check_passes, from_before, known
from autotensor.lowering.nest.sort_ranks import ranks, ranks_needed
from autotensor.lowering.nest.stage_loops import stage_loops
from autotensor.lowering.nest.update import guard, store_all, update
from autotensor.lowering.nest.when.inside_borders import inside_borders
from autotensor.lowering.nest.when.overhanging_lanes import guard_loads, rows_of_vectors
from autotensor.lowering.nest.when.prefetched_stages import Ahead, before, check_ahead, is_ahead, within
from autotensor.schedule.axis import Axis, Mark
from autotensor.schedule.carried import check_scans, of_given_steps, steps_given
from autotensor.schedule.extents import Extents, derive, in_block, leaf_var
from autotensor.schedule.state import At, Fuse, Root, Stage, State
from autotensor.te.tensor import AxisKind


def build_program(state: State, device: Device = PLAIN) -> Program:
    """The program of a state at loop level: one kernel for each root stage.

    Kernels that depend only on constants are in `prepare`.
    """
    check_scans(state)
    extents = derive(state, symbolic=True)
    fixed = state.constant_stages()
    args = _arguments(state, fixed)
    order = {b.name: n for n, (b, _) in enumerate(args)}
    prepare: list[PrimFunc] = []
    run: list[PrimFunc] = []
    for stage in state.live():
        if isinstance(stage.place, Root):
            (prepare if stage.name in fixed else run).append(
                build_kernel(state, stage, extents, order, device)
            )
    return with_extents(Program(args, tuple(prepare), tuple(run)), state.dag.symbols())


def _arguments(state: State, fixed: frozenset[str]) -> tuple[tuple[Buffer, Role], ...]:
    roles = {b.name: Role.CONSTANT if b.name in state.dag.constants else Role.INPUT for b in state.dag.inputs}
    roles.update({b.name: Role.OUTPUT for b in state.dag.outputs})
    buffers = {b.name: b for b in (*state.dag.inputs, *state.dag.outputs)}
    named = [(buffers[name], roles[name]) for name in state.dag.args]
    for stage in state.live():
        if isinstance(stage.place, Root):
            role = Role.PREPARED if stage.name in fixed else Role.WORKSPACE
            named.extend((b, role) for b in stage.op.buffers if b.name not in roles)
    return tuple(named)


def build_kernel(
    state: State, stage: Stage, extents: Extents, order: Mapping[str, int], device: Device = PLAIN
) -> PrimFunc:
    """The kernel of a root stage; `order` gives the order of its parameters."""
    builder = _Nest(state, extents, device, block_of(state, stage, extents))
    body = builder.nest(stage, {})
    params = tuple(sorted(dict.fromkeys(builder.boxes.touched), key=lambda b: order[b.name]))
    return PrimFunc(stage.name, params, body)


class _Nest:
    """Builds one kernel."""

    def __init__(self, state: State, extents: Extents, device: Device, block: Mapping[str, int]) -> None:
        self.state = state
        self.extents = extents
        self.device = device
        self.block = block  # thread axes of a GPU's block → their extents
        self.boxes = Boxes(state, extents, device)  # boxes of the stages that are attached to this one
        # thread loops around the statement that is being built, outermost first
        self.threads: tuple[ThreadLoop, ...] = ()
        self.runtime: dict[str, RuntimeExtents] = {}  # run-time extents of stages' loops
        self.by_thread: set[Var] = set()  # variables that differ between threads of a block

    # -- loops of one stage --------------------------------------------------------------------------------

    def nest(self, stage: Stage, ranges: dict[Var, Interval]) -> Stmt:
        """The loops that compute a stage, with everything attached to it inside."""
        check_marks(self.state, stage)
        check_ring(stage, self.extents)
        check_passes(self.state, stage)
        self.runtime[stage.name] = runtime_extents(stage, self.extents)
        ranges = {**ranges, **self._leaf_ranges(stage)}
        loops = stage_loops(self.state, stage, self.extents, self.runtime[stage.name], self.boxes, ranges)
        self.by_thread |= thread_vars(loops)
        outside = self.threads
        body = self._level(loops, 0, frozenset(), ranges)
        self.threads = outside
        if stage.name in self.extents.windows and isinstance(stage.place, At):
            around = leaf_var(stage.place.stage, stage.place.axis)
            body = inside_borders(loops, around, bound_vars(loops, stage.leaves), ranges, body)
        return body

    def _leaf_ranges(self, stage: Stage) -> dict[Var, Interval]:
        found = {
            leaf_var(stage.name, a.name): Interval(0, self._extent(stage, a.name) - 1) for a in stage.leaves
        }
        for r in stage.relations:
            if isinstance(r, Fuse):
                found.update(
                    {leaf_var(stage.name, x): Interval(0, self._extent(stage, x) - 1) for x in (r.a, r.b)}
                )
        return found

    def _extent(self, stage: Stage, axis: str) -> int:
        return int(self.extents[stage.name, axis])

    def _sizes(self, stage: Stage, axes: list[Axis]) -> tuple[tuple[Var, int], ...]:
        """Variables of loops, with their extents."""
        return tuple((leaf_var(stage.name, a.name), self._extent(stage, a.name)) for a in axes)

    # -- nesting -------------------------------------------------------------------------------------------

    def _level(self, loops: Loops, depth: int, placed: frozenset[Expr], ranges: dict[Var, Interval]) -> Stmt:
        """The loops from `depth` inwards. `placed` are the guards that are already placed outside."""
        stage = loops.stage
        first = _first_reduction(stage)
        if depth == first and stage.op.combiner is not None:
            if any(in_block(a.thread) for a in stage.leaves if a.kind is AxisKind.REDUCE):
                return self._across_threads(loops, depth, placed, ranges)
            init = self._init(loops, depth, placed)
            return seq(init, self._loop(loops, depth, placed, ranges))
        return self._loop(loops, depth, placed, ranges)

    def _loop(self, loops: Loops, depth: int, placed: frozenset[Expr], ranges: dict[Var, Interval]) -> Stmt:
        stage = loops.stage
        if depth == len(stage.leaves):
            return self._innermost(loops, placed, ranges)
        leaf = stage.leaves[depth]
        if leaf.name == stage.sorted:
            inner = self._sorted(loops, ranges)
            return guard(settled(loops, placed, stage.leaves[:depth]), inner)
        if leaf.mark is Mark.VECTORIZED and leaf.kind is AxisKind.REDUCE and not loops.targets:
            return self._in_lanes(loops, depth, placed, ranges)
        ready = [*(loops.wanted if depth == 0 else ()), *settled(loops, placed, stage.leaves[: depth + 1])]
        if depth >= _first_reduction(stage):
            ready += settled(loops, placed, stage.leaves[: depth + 1], loops.skips)
        hosted = self.state.attached(stage.name, leaf.name)
        stored = [p for p in hosted if isinstance(p.place, At) and p.place.store]
        if leaf.mark is Mark.SERIAL and not stored:  # a later iteration needs the values of this one
            ready += some_need(loops, placed, stage.leaves[: depth + 1], ranges)
        ready = self._uniform(loops, depth, ready)
        for producer in hosted:
            self.boxes.keep(producer)
        outside = self.threads
        if leaf.mark is Mark.BOUND:
            here = ThreadLoop(leaf.thread, leaf_var(stage.name, leaf.name), self._extent(stage, leaf.name))
            here.check_inside(outside, stage.name, leaf.name)
            self.threads = (*outside, here)
        early = [int(self.extents.early[p.name]) for p in hosted]
        earliest = max(early, default=0)
        producers = [
            self.nest(p, self._from(loops, leaf, n, ranges)) for p, n in zip(hosted, early, strict=True)
        ]
        ahead = self._ahead(loops, leaf, hosted, producers)
        pairs = zip(hosted, producers, early, strict=True)
        given = of_given_steps(self.state, stage, leaf.name)
        now = [
            self._since(loops, leaf, n, earliest, s if p.name in given else self._later(loops, leaf, s))
            for p, s, n in pairs
            if not is_ahead(p)
        ]
        level = self._apart if is_apart(stage, leaf) else self._level
        inner = level(loops, depth + 1, placed | frozenset(ready), ranges)
        self.threads = outside
        if hosted:
            more = some_point(loops, placed | frozenset(ready), stage.leaves[: depth + 1], ranges)
            ready += self._uniform(loops, depth, more)
        if stored:
            own = bound_vars(loops, stage.leaves[depth + 1 :])
            inner = inside_borders(loops, leaf_var(stage.name, leaf.name), own, ranges, inner)
        inner = self._since(loops, leaf, 0, earliest, inner)
        body = self._allocating(
            [p for p in hosted if not is_ahead(p) and p not in stored],
            seq(*now, inner),
        )
        body = self._guarded(loops, leaf, ready, body)
        if first := steps_given(self.state, stage, leaf.name):
            body = If(leaf_var(stage.name, leaf.name) >= first, body, body)  # the loop is cut at this step
        if leaf.name in stage.solved or leaf.name == stage.scanned:
            seen = self._body(loops, ranges).redirected
            return known(stage, leaf, self._extent(stage, leaf.name), loops.values, seen, ranges, body)
        if not ahead:
            return self._allocating(stored, self._wrap(loops, leaf, body, earliest))
        # values that an iteration computes for later ones are needed even if its own point is not
        loop = self._wrap(loops, leaf, seq(*within(ahead, self.device.copies), body))
        return self._allocating([a.stage for a in ahead], seq(before(ahead, self.device.copies), loop))

    def _from(self, loops: Loops, leaf: Axis, early: int, ranges: dict[Var, Interval]) -> dict[Var, Interval]:
        """Ranges of variables for a stage that is computed `early` iterations before a loop's first one."""
        last = self._extent(loops.stage, leaf.name) - 1
        return {**ranges, leaf_var(loops.stage.name, leaf.name): Interval(-early, last)}

    def _since(self, loops: Loops, leaf: Axis, early: int, first: int, body: Stmt) -> Stmt:
        """The body, left out in iterations that come more than `early` before the loop's first one.

        The loop begins `first` iterations before that one.
        """
        return body if early == first else If(leaf_var(loops.stage.name, leaf.name) >= -early, body)

    def _later(self, loops: Loops, leaf: Axis, producer: Stmt) -> Stmt:
        """A producer of a scan's step, under the condition that the step is not one of the given steps."""
        first = steps_given(self.state, loops.stage, leaf.name)
        return If(loops.values[leaf.name] >= first, producer) if first else producer

    def _allocating(self, stages: list[Stage], body: Stmt) -> Stmt:
        for stage in reversed(stages):
            for b in reversed(stage.op.buffers):
                body = Alloc(self.boxes.kept[b], body)
        return body

    def _ahead(
        self, loops: Loops, leaf: Axis, hosted: tuple[Stage, ...], producers: list[Stmt]
    ) -> list[Ahead]:
        """The stages at a loop that are computed ahead of it."""
        stage = loops.stage
        for p in hosted:
            if is_ahead(p):
                check_ahead(p, stage, leaf, hosted)
                refuse_open(stage, leaf.name, self.runtime[stage.name].of, "computing ahead")
        var, extent = leaf_var(stage.name, leaf.name), self._extent(stage, leaf.name)
        lets = loops.lets.get(leaf.name, ())
        pairs = zip(hosted, producers, strict=True)
        return [Ahead(p, s, var, extent, lets) for p, s in pairs if is_ahead(p)]

    def _uniform(self, loops: Loops, depth: int, conditions: list[Expr]) -> list[Expr]:
        """The conditions that may be placed around the loops from `depth` on.

        If threads of a block meet inside these loops, they must all get there, so the condition may not
        differ between them.
        """
        if not meets(self.state, loops, depth):
            return conditions
        return [c for c in conditions if not free_vars(c) & self.by_thread]

    def _guarded(self, loops: Loops, leaf: Axis, conditions: list[Expr], body: Stmt) -> Stmt:
        """The body under its conditions; conditions of unread lanes are only tested in their loads."""
        stage = loops.stage
        if conditions and leaf.mark is Mark.VECTORIZED and rows_of_vectors(stage, leaf.name):
            own = {b for b, _ in self._targets(loops)}
            free = guard_loads(stage, leaf_var(stage.name, leaf.name), conditions, body, own)
            if free is not None:
                return free
        return guard(conditions, body)

    def _apart(self, loops: Loops, depth: int, placed: frozenset[Expr], ranges: dict[Var, Interval]) -> Stmt:
        """The loops from `depth` inwards with separate accumulators, joined to the stage's at the end."""
        stage = loops.stage
        assert stage.op.combiner is not None
        inside = _spatial(stage, depth)
        own = self._sizes(stage, inside)
        wholes = self._targets(loops)
        part = Part(tuple(b for b, _ in wholes), own)
        apart = replace(loops, targets=part.targets)
        main = self._loop(apart, depth, placed, ranges)
        joined = update(stage.name, stage.op.combiner, wholes, part.results)
        last = self._over_spatial(loops, depth, placed, joined)
        return part.around(seq(self._init(apart, depth, placed), main, last))

    def _in_lanes(
        self, loops: Loops, depth: int, placed: frozenset[Expr], ranges: dict[Var, Interval]
    ) -> Stmt:
        """A vectorized reduction loop: each lane accumulates separately, then the lanes are joined."""
        stage = loops.stage
        assert stage.op.combiner is not None
        inside = _spatial(stage, depth)
        axes = (*inside, stage.leaves[depth])
        own = [
            (leaf_var(stage.name, a.name), self._extent(stage, a.name), kind_of(stage, a, self.extents))
            for a in axes
        ]
        lanes = LaneAccumulators(stage.op, tuple(own))
        main = self._loop(replace(loops, targets=lanes.targets), depth, placed, ranges)
        joined = update(stage.name, stage.op.combiner, self._targets(loops), lanes.results)
        last = self._over_spatial(loops, depth, placed, lanes.over_lanes(joined))
        return lanes.around(seq(lanes.cleared(), main, last))

    def _across_threads(
        self, loops: Loops, depth: int, placed: frozenset[Expr], ranges: dict[Var, Interval]
    ) -> Stmt:
        """A reduction loop bound to threads: each thread sums up its part, then the parts are joined."""
        stage = loops.stage
        assert stage.op.combiner is not None
        inside = _spatial(stage, depth)
        if bound_inside := [a for a in inside if in_block(a.thread)]:
            raise ScheduleError(
                f"bind: axis {bound_inside[0].name!r} of stage {stage.name!r} is bound to threads inside a "
                "reduction over threads.",
                fix="Reorder so that it is outside.",
            )
        own = self._sizes(stage, inside)
        joining = tuple(
            ThreadLoop(a.thread, leaf_var(stage.name, a.name), self._extent(stage, a.name))
            for a in stage.leaves[depth:]
            if a.kind is AxisKind.REDUCE and in_block(a.thread)
        )
        across: Across = Across(stage.op, self.threads, joining, own)
        lanes = warp_lanes(across, self.block, self.device)
        if lanes is not None:
            across = Shuffled(stage.op, self.threads, joining, own, lanes)
        parts = replace(loops, targets=across.parts)
        main = self._loop(parts, depth, placed, ranges)
        bound = (*stage.leaves[:depth], *inside)
        inner = settled(loops, placed, bound)
        last: Stmt = guard(inner, store_all(self._targets(loops), across.results))
        join = seq(across.join(stage.name), last)
        for a in reversed(inside):
            join = self._wrap(loops, a, join)
        return across.around(seq(self._init(parts, depth, placed), main, join))

    def _wrap(self, loops: Loops, leaf: Axis, body: Stmt, early: int = 0) -> Stmt:
        """The loop around its body; it begins `early` iterations before the first one."""
        stage = loops.stage
        for var, value in reversed(loops.lets.get(leaf.name, ())):
            body = Let(var, value, body)
        kind, extent = kind_of(stage, leaf, self.extents), const(self._extent(stage, leaf.name))
        if kind in ENDING:
            extent = self.runtime[stage.name].of.get(leaf.name, extent)
        extent = extent + early
        return For(leaf_var(stage.name, leaf.name), const(-early), extent, kind, body, leaf.thread)

    def _init(self, loops: Loops, depth: int, placed: frozenset[Expr]) -> Stmt:
        """`C[…] = identity` over the spatial loops that lie inside the first reduction loop."""
        combiner = loops.stage.op.combiner
        assert combiner is not None
        stores = (Store(b, i, e) for (b, i), e in zip(self._targets(loops), combiner.identity, strict=True))
        if not loops.stage.scanned or loops.targets:
            return self._over_spatial(loops, depth, placed, seq(*stores))

        def over(body: Stmt) -> Stmt:
            return self._over_spatial(loops, depth, placed, body)

        return from_before(loops.stage, loops.values, self._targets(loops), seq(*stores), over)

    def _over_spatial(self, loops: Loops, depth: int, placed: frozenset[Expr], body: Stmt) -> Stmt:
        """`body` over the spatial loops from `depth` inwards, under the guards whose variables they bind."""
        stage = loops.stage
        inner = _spatial(stage, depth)
        bound = [*stage.leaves[:depth]]
        guards_at: list[list[Expr]] = []
        # guards that may not be placed around a barrier; parts of sums exist for all threads
        late = [] if loops.targets else settled(loops, placed, tuple(bound))
        seen = {*placed, *late}
        for a in inner:
            bound.append(a)
            ready = [g for g in settled(loops, frozenset(seen), tuple(bound)) if g not in seen]
            seen.update(ready)
            guards_at.append(ready)
        for a, ready in zip(reversed(inner), reversed(guards_at), strict=True):
            body = self._wrap(loops, a, self._guarded(loops, a, ready, body))
        return guard(late, body)

    def _targets(self, loops: Loops) -> list[tuple[Buffer, tuple[Expr, ...]]]:
        """The buffer and indices that the stage writes, for each output."""
        stage = loops.stage
        if loops.targets:
            return [*loops.targets]
        out = []
        for b in stage.op.buffers:
            near = self.boxes.kept.get(b)
            if near is None:
                self.boxes.touched.append(b)
                out.append((b, tuple(loops.values[a.name] for a in stage.op.axes)))
            else:
                index = tuple(loops.values[a.name] for a in stage.op.axes)
                inside = tuple(loops.local[a.name] for a in stage.op.axes)
                out.append((near, self.boxes.stored_at(stage, index, inside)))
        return out

    def _sorted(self, loops: Loops, ranges: dict[Var, Interval]) -> Stmt:
        stage = loops.stage
        ((target, index),) = self._targets(loops)
        at = [a.name for a in stage.op.axes].index(stage.sorted)

        def key(found: Expr, place: Expr) -> Expr:
            values = {**loops.values, stage.sorted: place}
            return self._body(replace(loops, values=values), ranges).redirected(found)

        def rank(place: Expr, value: Expr) -> Stmt:
            return Store(target, (*index[:at], place, *index[at + 1 :]), value)

        return ranks(stage, ranks_needed(self.state, stage), key, rank)

    def _body(self, loops: Loops, ranges: dict[Var, Interval]) -> Body:
        stage = loops.stage
        mapping = {a.var: loops.values[a.name] for a in stage.op.all_axes}
        return Body(self.boxes, stage, mapping, ranges)

    def _innermost(self, loops: Loops, placed: frozenset[Expr], ranges: dict[Var, Interval]) -> Stmt:
        stage = loops.stage
        redirected = self._body(loops, ranges).redirected
        sources = tuple(redirected(b) for b in loops.bodies)
        targets = self._targets(loops)
        combiner = stage.op.combiner
        missing = [g for g in (*loops.guards, *loops.skips) if g not in placed]
        if combiner is None:
            return guard(missing, store_all(targets, sources))
        return guard(missing, update(stage.name, combiner, targets, sources))


def _spatial(stage: Stage, depth: int) -> list[Axis]:
    """The spatial loops from a depth on."""
    return [a for a in stage.leaves[depth:] if a.kind is AxisKind.SPATIAL]


def _first_reduction(stage: Stage) -> int:
    """The depth of the outermost reduction loop; the number of loops if there is none."""
    return next((n for n, a in enumerate(stage.leaves) if a.kind is AxisKind.REDUCE), len(stage.leaves))


__all__ = ["build_kernel", "build_program"]
