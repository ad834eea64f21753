"""Extents of loops and boxes of producers: derived from relations, access functions and places of stages.

The same code works for one schedule (ints) and for a whole population (int64 arrays over candidates). If a
stage is attached to a loop of its host, one iteration of that loop needs a box of the stage. The extents of
this box are the extents of the stage's axes:

    iteration of the host ──▶ spans of the consumer's axes ──▶ box of the producer ──▶ extents of its loops

A box holds all elements that the host's own points read. Points outside of the host's domain do not count (a
tail reads less). `index_regions.py` has the arithmetic on spans. The starts of boxes are symbolic, and only
lowering needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from autotensor.base.errors import ScheduleError
from autotensor.codegen.dot_instructions import takes_tiles
from autotensor.ir.affine import Affine, affine, to_expr
from autotensor.ir.expr import Expr, Op, Var, binary, const, minimum
from autotensor.ir.func import Scope
from autotensor.schedule.index_regions import (
    Access,
    Number,
    Reach,
    Span,
    access,
    both,
    ceil_div,
    clip,
    divisor,
    join,
    least,
    modular,
    most,
    moved,
    multiplied,
    plus,
    reach,
    running,
    scaled,
    scrambled,
    standing,
    where,
)
from autotensor.schedule.sliding_windows import Window, check_storage_loop, window_of
from autotensor.schedule.state import At, Fuse, Ref, Size, Split, Stage, State
from autotensor.te.thread import VTHREAD

Values = Mapping[Ref, Number]


def number(size: Size, values: Values) -> Number:
    """The value of a factor: the number itself, or the decided number of its hole."""
    if isinstance(size, int):
        return size
    if size not in values:
        raise ScheduleError(f"hole {size.hole!r} is not decided.")
    return values[size]


@dataclass(frozen=True, slots=True)
class Extents:
    """Extents of every loop and axis, by (stage, axis name). Boxes of attached stages, by stage name."""

    of: dict[tuple[str, str], Number] = field(default_factory=dict)
    # the box that one iteration of the host computes, for each attached stage: one span per spatial axis
    boxes: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    # windows of stages whose storage is at a loop further out
    windows: dict[str, Window] = field(default_factory=dict)
    # number of iterations before the host's first one in which an attached stage is computed, to fill windows
    early: dict[str, Number] = field(default_factory=dict)

    def __getitem__(self, key: tuple[str, str]) -> Number:
        return self.of[key]

    def stored(self, stage: str) -> tuple[Span, ...]:
        """The contents of an attached stage's storage during one iteration of its host."""
        window = self.windows.get(stage)
        return self.boxes[stage] if window is None else window.box


def derive(
    state: State,
    values: Values | None = None,
    *,
    symbolic: bool = False,
    of: str = "",
) -> Extents:
    """Extents of all loops of a state.

    values: numbers (or arrays) for the holes. symbolic: give boxes their base expressions, over loop
    variables. of: a stage at root. Then only the loops of this stage and of stages computed in it are
    derived, so holes of other stages may be undecided.
    Raises ScheduleError when an attached stage is read outside the loop that it is computed in.
    """
    decided = values or {}
    out = Extents()
    for stage in reversed(state.live()):  # consumers first
        if of and stage.name != of and not is_within(state, stage, of, 0):
            continue
        if isinstance(stage.place, At):
            box = needed(state, stage, stage.place, out, symbolic)
            if stage.place.store:
                check_storage_loop(state, stage)
                later = needed(state, stage, stage.place, out, False, ahead=1)
                out.windows[stage.name] = window_of(stage, box, later)
                box = out.windows[stage.name].computed()
            out.boxes[stage.name] = _of_whole_tiles(stage, box) if symbolic else box
            out.early[stage.name] = _early(state, stage, stage.place, out) if out.windows else 0
            out.of.update(_loops(stage, [s.extent for s in box], decided))
        else:
            out.of.update(root_extents(stage, decided))
    return out


def _early(state: State, stage: Stage, place: At, extents: Extents) -> Number:
    """The number of iterations before the first one in which a stage is computed: for its readers that are
    early, and to fill its own window."""
    own = extents.windows.get(stage.name)
    wanted: Number = 0
    for consumer in state.consumers(stage):
        beside = _computed_at(state, consumer, place)
        if beside is not None:
            wanted = most(wanted, extents.early[beside])
    return wanted if own is None else wanted + own.early


def _computed_at(state: State, stage: Stage, place: At) -> str | None:
    """The stage that is attached directly at the place's loop and computes `stage`: `stage` itself, or a
    stage that it is computed in. None if there is no such stage."""
    while isinstance(stage.place, At):
        if (stage.place.stage, stage.place.axis) == (place.stage, place.axis):
            return stage.name
        stage = state.stage(stage.place.stage)
    return None


def _of_whole_tiles(stage: Stage, box: tuple[Span, ...]) -> tuple[Span, ...]:
    """The box, moved inside the tensor if an instruction on tiles computes it. The tiles are whole, so the
    last box and the box before it may have rows in common. Columns may extend beyond the tensor."""
    marked = next((a for a in stage.leaves if takes_tiles(a.thread)), None)
    if marked is None:
        return box
    columns = marked.name.partition(".")[0]
    return tuple(
        span
        if axis.name == columns or span.base is None
        else replace(span, base=minimum(span.base, const(axis.extent - int(span.extent))))
        for axis, span in zip(stage.op.axes, box, strict=True)
    )


def root_extents(stage: Stage, values: Values) -> dict[tuple[str, str], Number]:
    """Extents of all axes and loops of a stage that is computed at root."""
    return _loops(stage, [a.extent for a in stage.op.axes], values)


def _loops(stage: Stage, sizes: list[Number], values: Values) -> dict[tuple[str, str], Number]:
    found: dict[tuple[str, str], Number] = {}
    for axis, size in zip(stage.op.axes, sizes, strict=True):
        found[stage.name, axis.name] = size
    for axis in stage.op.reduce_axes:
        found[stage.name, axis.name] = axis.extent
    _derive_relations(stage, found, values)
    return found


def _derive_relations(stage: Stage, found: dict[tuple[str, str], Number], values: Values) -> None:
    for relation in stage.relations:
        match relation:
            case Split(parent, children, factors, nparts):
                extent = found[stage.name, parent]
                if nparts is not None:
                    outer = number(nparts, values)
                    found[stage.name, children[0]] = outer
                    found[stage.name, children[1]] = most(1, ceil_div(extent, outer))
                    continue
                inner: Number = 1
                for child, factor in zip(children[1:], factors, strict=True):
                    found[stage.name, child] = number(factor, values)
                    inner = inner * found[stage.name, child]
                found[stage.name, children[0]] = ceil_div(extent, inner)
            case Fuse(a, b, fused):
                found[stage.name, fused] = found[stage.name, a] * found[stage.name, b]


@lru_cache(maxsize=8192)
def leaf_var(stage: str, axis: str) -> Var:
    """The variable of a stage's loop. Its name contains the stage, so that it is unique in the function."""
    return Var(f"{stage}:{axis}")


# -- spans of a stage's axes -------------------------------------------------------------------------------


def spans(
    stage: Stage,
    inside: frozenset[str],
    found: Mapping[tuple[str, str], Number],
    symbolic: bool,
    ahead: Mapping[str, int] | None = None,
) -> dict[str, Span]:
    """Spans of the stage's axes while the loops in `inside` run fully and the other loops stand still. Loops
    in `ahead` stand still the given number of iterations further on. `inside` may name inner parts of a fused
    loop without the loop itself.

    The spans of an attached stage are relative to its box. If a fused loop stands still, its parts are
    variables of their own (lowering gives them Lets), so that all expressions of them stay linear.
    """
    name = stage.name
    out: dict[str, Span] = {}
    still = set()
    for leaf in stage.leaves:
        if leaf.name in inside:
            out[leaf.name] = running(found[name, leaf.name], symbolic)
        else:
            still.add(leaf.name)
            out[leaf.name] = standing(leaf_var(name, leaf.name), symbolic, (ahead or {}).get(leaf.name, 0))
    for relation in reversed(stage.relations):
        match relation:
            case Split(parent, children, _, _):
                out[parent] = _join_split(parent, children, name, out, found)
            case Fuse(a, b, fused) if fused in still:
                still |= {a, b} - inside
                for part in (a, b):
                    runs = part in inside
                    out[part] = (
                        running(found[name, part], symbolic)
                        if runs
                        else standing(leaf_var(name, part), symbolic)
                    )
            case Fuse(a, b, fused):
                out[a], out[b] = _undo_fuse(out[fused], found[name, a], found[name, b])
    return out


def _join_split(
    parent: str,
    children: tuple[str, ...],
    name: str,
    out: Mapping[str, Span],
    found: Mapping[tuple[str, str], Number],
) -> Span:
    """Σ child × stride, cut off at the parent's extent. Elements beyond the extent are guarded.

    While the outermost child stands still, all needed elements lie in one of its steps. Inner loops may reach
    beyond this step (i = 56*g + j, j = 32*b + l < 56); these elements are guarded there.
    """
    stride: Number = 1
    extent: Number = 1
    at: Number = 0
    step: Number = 0
    gap: Number = 0
    base: Expr | None = None
    cell: Number = 0
    for child in reversed(children):
        span = out[child]
        cell = where(span.extent == 1, stride, 0)
        extent = extent + (span.extent - 1) * stride
        at = modular(at + multiplied(span.at, stride))
        step = divisor(step, span.step * stride)
        gap = divisor(gap, span.gap * stride)
        if span.base is not None:
            base = plus(scaled(span.base, int(stride)), base)
        stride = stride * found[name, child]
    return Span(least(extent, found[name, parent]), at, step, base, gap, cell)


def _undo_fuse(fused: Span, rows: Number, cols: Number) -> tuple[Span, Span]:
    """Quotient and remainder of a part of a fused loop.

    The base modulo cols is a multiple of g and at most cols - g. So a part of at most g elements stays in its
    row.
    """
    size = fused.extent
    g = divisor(fused.step, cols)
    whole = size >= rows * cols
    in_row = size <= g
    high = where(whole, rows, least(rows, (size - 1 + cols - g) // cols + 1))
    low = where(in_row, size, cols)
    sure = g == cols  # the base is at the beginning of a row
    moves = where(in_row, where(sure, 0, 1), 0)
    base_a = base_b = None
    if fused.base is not None:
        base_a = const(0) if whole else binary(Op.FLOORDIV, fused.base, const(int(cols)))
        base_b = binary(Op.MOD, fused.base, const(int(cols))) if moves else const(0)
    step_a = where(whole, 0, where(sure, fused.step // cols, 1))
    at_a = where(whole, 0, scrambled(fused.at, cols))
    at_b = where(moves == 1, scrambled(fused.at, -cols), 0)
    return Span(high, at_a, step_a, base_a), Span(low, at_b, where(moves == 1, g, 0), base_b)


def _within(
    state: State, place: At, extents: Extents, symbolic: bool, together: bool, ahead: int
) -> dict[str, Span]:
    """Spans of the host's axes in one iteration of the loop that a stage is attached to, or in the iteration
    that comes `ahead` iterations later.

    together: for all threads of a block at once, as shared memory needs it. Then the loops over threads that
    are outside of that loop run, too. This includes such loops of the host's own hosts.
    """
    host = state.stage(place.stage)
    at = host.position(place.axis)
    threads = [a for a in host.leaves[: at + 1] if together and in_block(a.thread)]
    inside = frozenset(a.name for a in (*threads, *host.leaves[at + 1 :]))
    own = spans(host, inside, extents.of, symbolic, {place.axis: ahead})
    if not isinstance(host.place, At):
        return own
    outer = extents.boxes[host.name]
    if together and host.scope is not Scope.SHARED:  # the box of a shared host is for all threads already
        reach_of_all = needed(state, host, host.place, extents, symbolic, together=True)
    else:
        reach_of_all = outer
    for axis, box, whole in zip(host.op.axes, outer, reach_of_all, strict=True):
        own[axis.name] = _of_all(own[axis.name], box, whole)
    return own


def _of_all(span: Span, box: Span, whole: Span) -> Span:
    """The elements that all threads reach, if one thread reaches `span` of its `box`. `whole` contains the
    boxes of all threads.

    The threads' boxes are at different positions, and it is not known here how far the last box is cut off at
    the tensor's end. So a part of a box may be anywhere in the whole.
    """
    wider = whole.extent - box.extent
    near = moved(Span(span.extent + wider, span.at, span.step, span.base, span.gap), whole)
    part = both(wider > 0, span.extent < box.extent)
    return Span(
        where(part, whole.extent, near.extent),
        where(part, whole.at, near.at),
        where(part, whole.step, near.step),
        whole.base if part is True else near.base,  # expressions exist only if the values are plain numbers
        where(part, whole.gap, near.gap),
    )


def in_block(thread: str) -> bool:
    """Whether loops bound to this axis run on threads of one block."""
    return thread.startswith("threadIdx") or thread == VTHREAD


# -- boxes of producers ------------------------------------------------------------------------------------


def needed(
    state: State,
    producer: Stage,
    place: At,
    extents: Extents,
    symbolic: bool,
    together: bool = False,
    ahead: int = 0,
) -> tuple[Span, ...]:
    """The box of the producer that one iteration of the place's loop reads, one span per axis of the
    producer. With `together`, or if the producer is in shared memory, all threads of the block count.

    ahead: take the iteration that comes this many iterations later.
    Raises ScheduleError when a stage outside that loop reads the producer, or no stage reads it.
    """
    own = _within(state, place, extents, symbolic, together or producer.scope is Scope.SHARED, ahead)
    host = state.stage(place.stage)
    at = host.position(place.axis)
    memo: dict[str, dict[str, Span]] = {host.name: own}

    def axes_of(consumer: Stage) -> dict[str, Span]:
        """Spans of a consumer's axes during that iteration."""
        if consumer.name not in memo:
            if not is_within(state, consumer, host.name, at):
                raise ScheduleError(
                    f"compute_at: {producer.name!r} is also read by {consumer.name!r}, which is outside loop "
                    f"{place.axis!r} of {host.name!r}.",
                    fix="Compute it at root, or inline it.",
                )
            box = box_of(consumer)
            window = extents.windows.get(consumer.name)
            if window is not None and _computed_at(state, consumer, place) == consumer.name:
                box = replace(window, box=box).computed()
            named = {a.name: s for a, s in zip(consumer.op.axes, box, strict=True)}
            named.update({a.name: running(a.extent, symbolic) for a in consumer.op.reduce_axes})
            memo[consumer.name] = named
        return memo[consumer.name]

    def box_of(stage: Stage) -> tuple[Span, ...]:
        """Union of the regions of a stage that all its consumers read."""
        reaches: list[Reach | None] = [None] * len(stage.op.axes)
        consumers = state.consumers(stage)
        if not consumers:
            raise ScheduleError(f"compute_at: nothing reads {stage.name!r}.")
        for consumer in consumers:
            axes = axes_of(consumer)
            for load in consumer.op.loads():
                if load.buffer in stage.op.buffers:
                    for n, index in enumerate(load.indices):
                        if consumer is host and not isinstance(host.place, At):
                            index = _over_fused(index, host)
                        reaches[n] = join(reaches[n], reach(index, axes))
        return tuple(clip(r, a.extent, symbolic) for r, a in zip(reaches, stage.op.axes, strict=True))

    return box_of(producer)


def _over_fused(index: Expr, stage: Stage) -> Expr:
    """Replaces a * n + b in an index by the fused loop, for axes a and b that a stage at root has fused. Then
    the elements that a part of this loop reads are one piece. From the spans of a and b alone, it would only
    be known that rows begin somewhere."""
    total = affine(index)
    if total is None:
        return index
    before = total
    sizes = {a.name: a.extent for a in stage.op.axes}
    for relation in stage.relations:
        match relation:
            case Fuse(a, b, fused) if a in sizes and b in sizes:
                sizes[fused] = sizes[a] * sizes[b]
                outer, inner = (total.coefficient(Var(name)) for name in (a, b))
                if inner and outer == sizes[b] * inner:
                    both = Affine({Var(fused): inner}, 0, total.dtype)
                    total = total.without(Var(a)).without(Var(b)).plus(both)
    return index if total is before else to_expr(total)


def is_within(state: State, stage: Stage, host: str, at: int) -> bool:
    """Whether a stage is computed inside the host's loop at position `at`, directly or through others."""
    place = stage.place
    while isinstance(place, At):
        owner = state.stage(place.stage)
        if owner.name == host:
            return owner.position(place.axis) >= at
        place = owner.place
    return False


__all__ = [
    "Access",
    "Extents",
    "Number",
    "Span",
    "access",
    "ceil_div",
    "derive",
    "is_within",
    "leaf_var",
    "least",
    "needed",
    "number",
    "root_extents",
    "spans",
]
