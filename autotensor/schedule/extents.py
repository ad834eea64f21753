"""Extents of loops and boxes of producers: derived from relations, access functions and places.

The same code serves one schedule (ints) and a whole population (int64 arrays over candidates): every operation used
here works on both. For an attached stage, the box that one iteration of its host's loop needs gives its axes' extents:

    host loop iteration ──▶ spans of the consumer's axes ──▶ box of the producer ──▶ extents of the producer's loops

Bases (where the box starts) are symbolic and only wanted in lowering; `Box.base` is None while scoring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.base.errors import ScheduleError
from autotensor.ir.expr import Binary, Cast, Const, Expr, Load, Neg, Op, Unary, Var, binary, const
from autotensor.schedule.state import At, Fuse, Ref, Size, Split, Stage, State
from autotensor.te.dag import StageOp

Number = Any  # int, or int64 array [candidates]
Values = Mapping[Ref, Number]


def ceil_div(a: Number, b: Number) -> Number:
    return -(-a // b)


def least(a: Number, b: Number) -> Number:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def most(a: Number, b: Number) -> Number:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


def where(cond: Any, a: Number, b: Number) -> Number:
    return (a if cond else b) if isinstance(cond, (bool, int)) else np.where(cond, a, b)


def both(a: Any, b: Any) -> Any:
    return (a and b) if isinstance(a, bool) and isinstance(b, bool) else np.logical_and(a, b)


def number(size: Size, values: Values) -> Number:
    """The number of a factor: itself, or what was decided for its hole."""
    if isinstance(size, int):
        return size
    if size not in values:
        raise ScheduleError(f"hole {size.hole!r} is not decided.")
    return values[size]


@dataclass(frozen=True, slots=True)
class Linear:
    """An index as const + Σ coefficient × axis; `exact` is False when that is only part of the story (//, %, loads)."""

    const: int
    terms: tuple[tuple[str, int], ...]
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Access:
    """One dimension of one load: the linear part, and the divisor or modulus around it if there is one."""

    linear: Linear
    div: int = 0
    mod: int = 0


def linear(e: Expr) -> Linear | None:
    """The linear form of an index over axis variables; None when it is not linear."""
    terms: dict[str, int] = {}

    def go(x: Expr, k: int) -> int | None:
        match x:
            case Const(value):
                return k * int(value)
            case Var(name):
                terms[name] = terms.get(name, 0) + k
                return 0
            case Binary(Op.ADD, a, b):
                return _plus(go(a, k), go(b, k))
            case Binary(Op.SUB, a, b):
                return _plus(go(a, k), go(b, -k))
            case Binary(Op.MUL, a, Const(c)) | Binary(Op.MUL, Const(c), a):
                return go(a, k * int(c))
            case Unary(Neg.NEG, a):
                return go(a, -k)
            case Cast(_, a) if a.dtype.is_int:
                return go(a, k)
            case _:
                return None

    c = go(e, 1)
    return None if c is None else Linear(c, tuple(sorted((n, k) for n, k in terms.items() if k)))


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def access(e: Expr) -> Access | None:
    """How an index walks a dimension; None when nothing is known (then the whole dimension is needed)."""
    match e:
        case Binary(Op.FLOORDIV, a, Const(c)) if (inner := linear(a)) is not None and int(c) > 0:
            return Access(inner, div=int(c))
        case Binary(Op.MOD, a, Const(c)) if (inner := linear(a)) is not None and int(c) > 0:
            return Access(inner, mod=int(c))
        case _:
            found = linear(e)
            return None if found is None else Access(found)


Origin = tuple[Any, ...]  # where a span starts, as a name: equal origins start at the same place; () is zero


@dataclass(frozen=True, slots=True)
class Span:
    """How far an axis runs within a box: `extent` values from `base` on; aligned windows start at multiples of it."""

    extent: Number
    origin: Origin = ()
    base: Expr | None = None
    aligned: Any = True


@dataclass(frozen=True, slots=True)
class Extents:
    """Extents of every loop and axis: (stage, axis name) → number; boxes of attached stages by stage name."""

    of: Mapping[tuple[str, str], Number]
    boxes: Mapping[str, tuple[Span, ...]]  # per attached stage, one span per spatial axis

    def __getitem__(self, key: tuple[str, str]) -> Number:
        return self.of[key]


def derive(state: State, values: Values | None = None, *, symbolic: bool = False) -> Extents:
    """Extents of all loops of a state.

    values: numbers (or arrays) of the holes. symbolic: give boxes their base expressions, over loop variables.
    Raises ScheduleError when an attached stage is read outside the loop that it is computed in.
    """
    decided = values or {}
    found: dict[tuple[str, str], Number] = {}
    boxes: dict[str, tuple[Span, ...]] = {}
    for stage in reversed(state.live()):  # consumers first
        if isinstance(stage.place, At):
            box = needed(state, stage, stage.place, found, boxes, symbolic)
            boxes[stage.name] = box
            sizes = [s.extent for s in box]
        else:
            sizes = [a.extent for a in stage.op.axes]
        for axis, size in zip(stage.op.axes, sizes, strict=True):
            found[stage.name, axis.name] = size
        for axis in stage.op.reduce_axes:
            found[stage.name, axis.name] = axis.extent
        _derive_relations(stage, found, decided)
    return Extents(found, boxes)


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


def leaf_var(stage: str, axis: str) -> Var:
    """The loop variable of a stage's loop, qualified so that it is unique in the function."""
    return Var(f"{stage}:{axis}")


def spans(
    stage: Stage, inside: frozenset[str], found: Mapping[tuple[str, str], Number], base: bool
) -> dict[str, Span]:
    """Spans of the stage's axes when the loops named in `inside` run fully and the others stand still.

    base: also say where each span starts, over the variables of the loops outside.
    """
    name = stage.name
    zero = const(0) if base else None
    out: dict[str, Span] = {}
    for leaf in stage.leaves:
        if leaf.name in inside:
            out[leaf.name] = Span(found[name, leaf.name], (), zero)
        else:
            out[leaf.name] = Span(1, ((name, leaf.name),), leaf_var(name, leaf.name) if base else None)
    for relation in reversed(stage.relations):
        match relation:
            case Split(parent, children, _, _):
                out[parent] = _join_split(parent, children, name, out, found)
            case Fuse(a, b, fused):
                out[a], out[b] = _undo_fuse(name, a, b, fused, out[fused], found)
    return out


def _join_split(
    parent: str,
    children: tuple[str, ...],
    name: str,
    out: Mapping[str, Span],
    found: Mapping[tuple[str, str], Number],
) -> Span:
    stride: Number = 1
    extent: Number = 1
    aligned: Any = True
    inner_full: Any = True  # all children further in run fully: then a window is aligned to its own size
    base: Expr | None = None
    for child in reversed(children):
        span = out[child]
        extent = extent + (span.extent - 1) * stride
        aligned = both(aligned, _implies(span.extent != 1, both(inner_full, span.aligned)))
        inner_full = both(inner_full, span.extent == found[name, child])
        if span.base is not None:
            base = plus(scaled(span.base, int(stride)), base)
        stride = stride * found[name, child]
    moving = tuple(out[c].origin for c in children if out[c].origin)
    origin = ((name, parent, *moving),) if moving else ()
    return Span(least(extent, found[name, parent]), origin, base, aligned)


def _undo_fuse(
    name: str, a: str, b: str, fused_name: str, fused: Span, found: Mapping[tuple[str, str], Number]
) -> tuple[Span, Span]:
    s, rows, cols = fused.extent, found[name, a], found[name, b]
    single, whole = s == 1, s >= rows * cols
    in_row = both(fused.aligned, cols % s == 0)
    on_rows = both(fused.aligned, s % cols == 0)
    high = where(
        whole, rows, where(in_row, 1, where(on_rows, s // cols, least(rows, (s + cols - 2) // cols + 1)))
    )
    low = where(both(_not(whole), in_row), s, cols)
    high, low = where(single, 1, high), where(single, 1, low)
    if fused.origin == ((name, fused_name),):  # the loop stands still: its parts are variables of their own
        sides = ((name, a),), ((name, b),)
        bases = (leaf_var(name, a), leaf_var(name, b)) if fused.base is not None else (None, None)
        return Span(1, sides[0], bases[0]), Span(1, sides[1], bases[1])
    high_at: Origin = ((name, a, "//", *fused.origin),) if fused.origin else ()
    low_at: Origin = ((name, b, "%", *fused.origin),) if fused.origin else ()
    if fused.base is None:
        return Span(high, high_at, None, False), Span(low, low_at, None, False)
    base_a = binary(Op.FLOORDIV, fused.base, const(int(cols)))
    base_b = binary(Op.MOD, fused.base, const(int(cols))) if low != cols or single else const(0)
    return Span(high, high_at, base_a, False), Span(low, low_at if low != cols else (), base_b, False)


def _not(a: Any) -> Any:
    return (not a) if isinstance(a, bool) else np.logical_not(a)


def _implies(a: Any, b: Any) -> Any:
    return (
        (not a or b) if isinstance(a, bool) and isinstance(b, bool) else np.logical_or(np.logical_not(a), b)
    )


def scaled(e: Expr, k: int) -> Expr:
    """e × k without trivial nodes."""
    return e if k == 1 else const(int(e.value) * k) if isinstance(e, Const) else binary(Op.MUL, e, const(k))


def plus(a: Expr, b: Expr | None) -> Expr:
    """a + b without trivial nodes."""
    if b is None or (isinstance(b, Const) and b.value == 0):
        return a
    return b if isinstance(a, Const) and a.value == 0 else binary(Op.ADD, a, b)


def needed(
    state: State,
    producer: Stage,
    place: At,
    found: Mapping[tuple[str, str], Number],
    boxes: Mapping[str, tuple[Span, ...]],
    symbolic: bool,
) -> tuple[Span, ...]:
    """The box of the producer that one iteration of the place's loop reads, one span per axis of the producer.

    Raises ScheduleError when somebody outside that loop reads the producer, or it is read by nobody.
    """
    host = state.stage(place.stage)
    at = host.position(place.axis)
    inside = frozenset(a.name for a in host.leaves[at + 1 :])
    memo: dict[str, dict[str, Span]] = {host.name: spans(host, inside, found, symbolic)}
    zero = const(0) if symbolic else None

    def axes_of(consumer: Stage) -> dict[str, Span]:
        """Spans of a consumer's axes within that iteration."""
        if consumer.name not in memo:
            if not _within(state, consumer, host.name, at):
                raise ScheduleError(
                    f"compute_at: {producer.name!r} is also read by {consumer.name!r}, which is outside loop "
                    f"{place.axis!r} of {host.name!r}.",
                    fix="Compute it at root, or inline it.",
                )
            named = {a.name: s for a, s in zip(consumer.op.axes, box_of(consumer), strict=True)}
            named.update({a.name: Span(a.extent, (), zero) for a in consumer.op.reduce_axes})
            memo[consumer.name] = named
        return memo[consumer.name]

    def box_of(stage: Stage) -> tuple[Span, ...]:
        """Union of what all consumers read of a stage."""
        reaches: list[Reach | None] = [None] * len(stage.op.axes)
        consumers = state.consumers(stage)
        if not consumers:
            raise ScheduleError(f"compute_at: nothing reads {stage.name!r}.")
        for consumer in consumers:
            axes = axes_of(consumer)
            for load in consumer.op.loads():
                if load.buffer in stage.op.buffers:
                    for n, index in enumerate(load.indices):
                        reaches[n] = join(reaches[n], reach(access(index), axes))
        return tuple(clip(r, a.extent, symbolic) for r, a in zip(reaches, stage.op.axes, strict=True))

    return box_of(producer)


def _within(state: State, stage: Stage, host: str, at: int) -> bool:
    """Whether a stage is computed inside loop number `at` of the host, directly or through other stages."""
    place = stage.place
    while isinstance(place, At):
        owner = state.stage(place.stage)
        if owner.name == host:
            return owner.position(place.axis) >= at
        place = owner.place
    return False


@dataclass(frozen=True, slots=True)
class Reach:
    """What one dimension of a load touches: base + low … base + top - 1. `origin` names the base; None: everything."""

    origin: Origin | None
    low: Number = 0
    top: Number = 0
    base: Expr | None = None


EVERYTHING = Reach(None)


def reach(a: Access | None, axes: Mapping[str, Span]) -> Reach:
    """The reach of an access when its axes run over the given spans."""
    if a is None or a.mod or any(name not in axes for name, _ in a.linear.terms):
        return EVERYTHING
    low: Number = a.linear.const
    extent: Number = 1
    base: Expr | None = None
    origin: list[Any] = []
    for name, k in a.linear.terms:
        span = axes[name]
        extent = extent + abs(k) * (span.extent - 1)
        low = low + (k * (span.extent - 1) if k < 0 else 0)
        if span.origin:
            origin.append((span.origin, k))
        if span.base is not None:
            base = plus(scaled(span.base, k), base)
    where_ = origin[0][0] if len(origin) == 1 and origin[0][1] == 1 else tuple(origin)
    if a.div == 0:
        return Reach(where_, low, low + extent, base)
    if not origin and isinstance(low, int) and isinstance(extent, int):
        return Reach((), low // a.div, (low + extent - 1) // a.div + 1, base)
    if not isinstance(low, int):
        return EVERYTHING
    # a window of s numbers touches at most (s + c - 2) // c + 1 quotients
    quotient = None if base is None else binary(Op.FLOORDIV, plus(base, const(low)), const(a.div))
    return Reach((("//", a.div, low, where_),), 0, (extent + a.div - 2) // a.div + 1, quotient)


def join(a: Reach | None, b: Reach) -> Reach:
    """The smallest reach that holds both; everything when they do not start at the same place."""
    if a is None:
        return b
    if a.origin is None or a.origin != b.origin:
        return EVERYTHING
    return Reach(a.origin, least(a.low, b.low), most(a.top, b.top), a.base)


def clip(r: Reach | None, dim: int, symbolic: bool) -> Span:
    """A reach as a span of a dimension, at most the whole of it."""
    zero = const(0) if symbolic else None
    if r is None or r.origin is None:
        return Span(dim, (), zero)
    extent = r.top - r.low
    if not symbolic:
        return Span(least(extent, dim), _origin(r))
    if extent >= dim:
        return Span(dim, (), zero)
    return Span(
        int(extent), _origin(r), plus(const(int(r.low)), r.base) if r.base is not None else const(int(r.low))
    )


def _origin(r: Reach) -> Origin:
    """Name of where the box starts; the constant belongs to it."""
    if isinstance(r.low, int) and r.low == 0:
        return r.origin or ()
    return ((r.origin, "+", r.low if isinstance(r.low, int) else id(r.low)),)
