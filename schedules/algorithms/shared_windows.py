"""A maximum or a sum over a window is computed from those over shorter windows, which neighbours share.

    M[i] = max_{r < 9} x[i + r]     ──▶     M.part[i] = max_{r < 3} x[i + r]
                                            M[i]      = max_{q < 3} M.part[i + 3*q]          4 steps, not 8

    P[i, j] = max_{a, b} x[i + a, j + b]     ──▶     P.part[i, j] = max_b x[i, j + b]
                                                     P[i, j]      = max_a P.part[i + a, j]

Parts may overlap if the result of a reduction does not change when a term occurs twice: maxima and minima,
"and" and "or". The first of equal terms is kept, as before. Parts of sums do not overlap. A window may also
be written as an expression, `max(max(x[i], x[i + 1]), x[i + 2])`. A part is split again as long as this takes
fewer operations, loads and stores.

The idea to handle one axis after the other is from van Herk, "A fast algorithm for local minimum and maximum
filters on rectangular and octagonal kernels" (Pattern Recognition Letters 13, 1992). Van Herk uses runs from
both ends of a block. This module uses windows of windows instead, because vectors along the window would have
to reverse the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from autotensor.ir.expr import Binary, Combiner, Expr, Load, Op, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.reducers import alone
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.extents import access
from autotensor.schedule.state import Root, Stage, State
from autotensor.te.stage import IterDef, StageOp, distinct_operations
from schedules.algorithms.written_windows import as_reductions
from schedules.cpu import EXTREME

NAME = "shared_windows"
IDEMPOTENT = (Op.MAX, Op.MIN, Op.AND, Op.OR)
LOAD, STORE = 0.5, 1.0  # cost in operations (chosen, 2026-11)
ALONE = 1.0  # operations that a float step takes in addition if no second step shares its NaN handling
ROWS = 4  # rows of sums that are computed together and share terms
PARTS = (2, 3, 4)  # numbers of parts from which a window is joined
MOST = 128  # terms along an axis: longer windows are left as they are


def shared_windows(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The stages of a window's parts, and the stage that joins them. The result is None if nothing is saved,
    or if the stage is in the steps of a recurrence, because a stage outside of the steps cannot read them."""
    return parts_of(stage.op, frozenset(state.names)) if isinstance(stage.place, Root) else None


def parts_of(op: StageOp, names: frozenset[str]) -> tuple[StageOp, ...] | None:
    """The stages that compute an op in fewer operations, with the op's own stage last; None if there are
    none.

    names: the names of existing stages, which new stages must not have.
    """
    if op.is_open:
        return None
    found: tuple[StageOp, ...] = ()
    written = as_reductions(op, names)
    for part in written:
        found += _split(part, names | {o.name for o in (*found, *written)})
    return found if work(found) < work(written) else None


def work(ops: Sequence[StageOp]) -> float:
    """Operations of stages, for each lane of a vector."""
    return sum(prod(a.extent for a in op.axes) * _element(op, *_terms(op)) for op in ops)


def _terms(op: StageOp) -> tuple[int, float]:
    """The number of terms that are joined, and the operations that one term takes."""
    each = LOAD * len(op.loads()) + sum(map(distinct_operations, op.bodies))
    return prod(a.extent for a in op.reduce_axes), each * _of_rows(op)


def _of_rows(op: StageOp) -> float:
    """The share of a sum's terms that must be evaluated if several rows of the result, whose windows overlap,
    are computed together."""
    if not is_sum(op):
        return 1.0
    windows = (s.over.extent for s in _slides(op) if s.axis is not op.axes[-1])
    return min(((ROWS + n - 1) / (ROWS * n) for n in windows), default=1.0)


def _element(op: StageOp, terms: int, each: float) -> float:
    """Operations for one element of the op's results. terms: number of its terms; each: operations of a
    term."""
    steps = terms - 1
    floats = steps if is_sum(op) else EXTREME * steps + ALONE * (steps % 2)
    joins = sum(floats if b.dtype.is_float else steps for b in op.bodies)
    return terms * each + joins + STORE * len(op.bodies)


@dataclass(frozen=True, slots=True)
class Slide:
    """A window that slides: its terms depend only on the position `stride * axis + step * over`, and not on
    the two axes separately."""

    axis: IterDef
    over: IterDef
    stride: int
    step: int
    bodies: tuple[Expr, ...]  # with the axis as the position

    def at(self, place: Expr) -> tuple[Expr, ...]:
        return tuple(simplify(substitute(b, {self.axis.var: place})) for b in self.bodies)


def _slides(op: StageOp) -> Iterator[Slide]:
    """The windows of a reduction, first those along the last axis.

    For maxima and minima of floats, only the outermost window is returned: it is joined last, so that the
    first of equal terms stays the same (zeros have signs). Sums of floats are equally exact in both orders.
    """
    terms = [a for a in op.reduce_axes if a.extent > 1]
    outer = terms[:1] if any(b.dtype.is_float for b in op.bodies) else terms
    for axis, over in product(reversed(op.axes), outer):
        weights = _weights(op, axis.name, over.name) if axis.extent > 1 else None
        if weights is None or min(weights) < 1 or 1 not in weights:
            continue
        (stride, step), place = weights, Var("place", axis.var.dtype)
        other = {axis.var: place - over.var * step} if stride == 1 else {over.var: place - axis.var * stride}
        bodies = tuple(simplify(substitute(b, other)) for b in op.bodies)
        if all(free_vars(b).isdisjoint((axis.var, over.var)) for b in bodies):
            yield Slide(axis, over, stride, step, tuple(substitute(b, {place: axis.var}) for b in bodies))


def _weights(op: StageOp, axis: str, over: str) -> tuple[int, int] | None:
    """For the first index that depends on both axes: its step along each of them."""
    forms = (access(i) for load in op.loads() for i in load.indices)
    both = (f.steps for f in forms if f is not None and {axis, over} <= f.steps.keys())
    return next(((steps[axis], steps[over]) for steps in both), None)


def _split(op: StageOp, names: frozenset[str]) -> tuple[StageOp, ...]:
    """The cheapest stages that compute an op, with the op's own stage last."""
    op = _without_single_terms(op)
    found: tuple[StageOp, ...] = (op,)
    if op.combiner is None or not (_is_idempotent(op.combiner) or is_sum(op)):
        return found
    for slide in _slides(op):
        others = _apart(op, slide, names) if len(op.reduce_axes) > 1 else _joined(op, slide, names)
        found = min(found, others, key=work)
    return found


def _is_idempotent(c: Combiner) -> bool:
    """Whether each result is joined separately, and joining a term twice does not change it."""
    return all(o in IDEMPOTENT for o in _joins(c))


def _joins(c: Combiner) -> Iterator[Op | None]:
    """For each result, the operation that joins it with a term; None if there is no single operation."""
    for own in (alone(c, n) for n in range(len(c.result))):
        match own.result if own is not None else ():
            case (Binary(op, a, b),) if a is not b:
                yield op
            case _:
                yield None


def _without_single_terms(op: StageOp) -> StageOp:
    """The op without reduction axes of one term, if it has other ones: a part along such an axis would be a
    copy."""
    several = tuple(a for a in op.reduce_axes if a.extent > 1)
    if not several or several == op.reduce_axes:
        return op
    zero: dict[Expr, Expr] = {a.var: const(0) for a in op.reduce_axes if a.extent == 1}
    return replace(op, reduce_axes=several, bodies=tuple(simplify(substitute(b, zero)) for b in op.bodies))


def is_sum(op: StageOp) -> bool:
    """Whether each result is a separate sum."""
    return op.combiner is not None and all(o is Op.ADD for o in _joins(op.combiner))


def _apart(op: StageOp, slide: Slide, names: frozenset[str]) -> tuple[StageOp, ...]:
    """The windows along all other axes at every position, and then a window of these along the axis."""
    axis, over = slide.axis, slide.over
    places = slide.stride * (axis.extent - 1) + slide.step * (over.extent - 1) + 1
    rest = tuple(a for a in op.reduce_axes if a is not over)
    front = _part(op, axis, places, rest, slide.bodies, names)
    bodies = _read(front, axis, axis.var * slide.stride + over.var * slide.step)
    last = replace(op, reduce_axes=(over,), bodies=bodies)
    names |= {front.name}
    found = _split(front, names)
    return *found, *_split(last, names | {o.name for o in found})


def _joined(op: StageOp, slide: Slide, names: frozenset[str]) -> tuple[StageOp, ...]:
    """A window that is joined from shorter windows, which are joined from even shorter ones."""
    axis, over, step = slide.axis, slide.over, slide.step
    if slide.stride > 1 or over.extent > MOST:
        return (op,)
    found: list[StageOp] = []
    before, *lengths = _lengths(op, slide)
    bodies, terms = slide.at(axis.var + over.var * step if before > 1 else axis.var), before
    for length in lengths:
        places = axis.extent + step * (over.extent - before)
        found.append(_part(op, axis, places, (replace(over, extent=terms),), bodies, names))
        names |= {found[-1].name}
        terms = parts(before, length, overlap=not is_sum(op))
        jump = step * (length - before) // (terms - 1)
        bodies, before = _read(found[-1], axis, axis.var + over.var * jump), length
    return *found, replace(op, reduce_axes=(replace(over, extent=terms),), bodies=bodies)


def _lengths(op: StageOp, slide: Slide) -> tuple[int, ...]:
    """The lengths of windows with the fewest operations. Each window is made of the one before; the last one
    is the whole window."""
    window, (_, each), read = slide.over.extent, _terms(op), LOAD * len(op.buffers)
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    for length in range(1, window + 1):
        places = slide.axis.extent + slide.step * (window - length)
        ways: list[tuple[float, tuple[int, ...]]] = [(places * _element(op, length, each), (length,))]
        for shorter in range(1, length):
            if count := parts(shorter, length, overlap=not is_sum(op)):
                cost, before = best[shorter]
                ways.append((cost + places * _element(op, count, read), (*before, length)))
        best[length] = min(ways)
    return best[window][1]


def parts(shorter: int, length: int, *, overlap: bool) -> int:
    """How many windows make a longer window, at equal distances and without gaps; 0 if no number in PARTS
    does.

    overlap: whether a term may be in several windows.

    >>> parts(3, 9, overlap=True), parts(3, 5, overlap=True), parts(2, 9, overlap=True)
    (3, 2, 0)
    >>> parts(3, 9, overlap=False), parts(3, 5, overlap=False)
    (3, 0)
    """
    gap = length - shorter
    whole = (n for n in PARTS if gap % (n - 1) == 0 and gap <= (n - 1) * shorter)
    return next((n for n in whole if overlap or n * shorter == length), 0)


def _part(
    op: StageOp,
    axis: IterDef,
    places: int,
    over: tuple[IterDef, ...],
    bodies: tuple[Expr, ...],
    names: frozenset[str],
) -> StageOp:
    """A stage like `op`, with this number of positions along an axis."""
    name = fresh(f"{op.name}.part", set(names))
    axes = tuple(replace(a, extent=places) if a is axis else a for a in op.axes)
    over = tuple(a for a in over if a.extent > 1)
    given = [name] if len(op.buffers) == 1 else [f"{name}{n}" for n in range(len(op.buffers))]
    shape = tuple(a.extent for a in axes)
    buffers = tuple(Buffer(n, shape, b.dtype) for n, b in zip(given, op.buffers, strict=True))
    return StageOp(name, axes, over, bodies, op.combiner if over else None, buffers)


def _read(part: StageOp, axis: IterDef, place: Expr) -> tuple[Expr, ...]:
    """A part's values at a position along an axis."""
    indices = tuple(simplify(place) if a.name == axis.name else a.var for a in part.axes)
    return tuple(Load(b, indices) for b in part.buffers)


ALGORITHMS.add(NAME, Algorithm(NAME, shared_windows))
