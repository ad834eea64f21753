"""Whether a computation reads outside its tensors, found before anything is compiled.

    C[i] = A[i + 1]      i = 63 reads A[64], its shape is (64,)      ──▶ TensorError

For most reads, intervals of the indices, under the conditions around the read, prove that it stays inside.
The others are doubts: an index, and the conditions around it. The values of their axes and symbols form a
box. Boxes are halved; intervals prove some of the halves, and the points of the others are tried, so every
read that is reported would really happen. If there are too many points, a computation of fixed extents is
refused. The other indices are limited to their tensors when the program runs: indices that come from memory
(`indices.py`), reads under conditions on data, and indices that are not linear in an extent (`kept_inside`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from autotensor.base.errors import TensorError
from autotensor.ir.bounds import Bounds, Interval, bounds
from autotensor.ir.expr import (
    Cmp,
    Const,
    Expr,
    Load,
    Neg,
    Select,
    Symbol,
    Unary,
    Var,
    all_of,
    any_of,
    compare,
    const,
    maximum,
    minimum,
)
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node, children, map_children
from autotensor.ir.visit import any_node, free_vars
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.fixed_extents import corners, fixed
from autotensor.te.indices import reads_memory
from autotensor.te.reference import Types, Values
from autotensor.te.symbols import number, symbols_of

Box = Mapping[Var, tuple[int, int]]  # the least and the greatest value of axes and symbols
Conditions = tuple[Expr, ...]

POINTS = 100_000  # points that are tried in one piece
PIECES = 16  # pieces for which whole bodies are evaluated
MOST = 1 << 25  # points of one doubt that are tried: about 2 s
MOST_OPEN = 1 << 22  # the same for run-time extents, whose values are tried too
VISITS = 10_000  # parts of a body under different conditions for which proofs are tried


@dataclass(frozen=True, slots=True)
class Doubt:
    """An index that is not proved to stay inside its tensor where the conditions hold."""

    load: Load
    dim: int
    conditions: Conditions = ()

    @property
    def index(self) -> Expr:
        return self.load.indices[self.dim]

    @property
    def extent(self) -> Expr:
        found: Expr = self.load.buffer.dims[self.dim]
        return found

    @property
    def is_on_data(self) -> bool:
        """Whether a condition on data decides if the element is read."""
        return any(map(reads_memory, self.conditions))

    @property
    def outside(self) -> Expr:
        """The condition that an element outside the tensor is read."""
        beyond = compare(Cmp.LT, self.index, const(0)), compare(Cmp.GE, self.index, self.extent)
        return all_of(*self.conditions, any_of(*beyond))


class _TooMany(Exception):
    """A box has too many points, or a body has too many parts, to try them."""


def check_reads(dag: ComputeDAG) -> None:
    """Raises TensorError for a read outside its tensor, for a read with fixed extents of which neither a
    proof nor a trial of all points says that it stays inside, or for a stage with nothing to compute.

    Extents that are known at run time only are taken at the ends of their ranges. If an index is not linear
    in them, all their values are tried, unless these are too many.
    """
    steps = _steps(dag)
    for values in corners(dag):
        try:
            for stage in fixed(dag, values).stages:
                _check_axes(stage)
                _check(stage, steps, values)
        except TensorError as e:
            raise TensorError(f"{_said(values)}{e.what}", fix=e.fix) from e
    for stage in dag.stages if dag.symbols() else ():
        _check(stage, steps, {})


def _said(values: Mapping[Symbol, int]) -> str:
    where = ", ".join(f"{s.name} = {n}" for s, n in values.items())
    return f"with {where}: " if where else ""


def _steps(dag: ComputeDAG) -> frozenset[str]:
    """The buffers from which scans read earlier steps. Which steps they read has been checked."""
    return frozenset(before.name for before, _ in dag.carried)


def _check_axes(stage: StageOp) -> None:
    empty = next((a for a in stage.all_axes if a.extent == 0), None)
    if empty is not None:
        raise TensorError(
            f"stage {stage.name!r}: axis {empty.name!r} has extent 0, so there is nothing to compute.",
            fix="Do not compile empty tensors.",
        )


def _check(stage: StageOp, steps: frozenset[str], values: Mapping[Symbol, int]) -> None:
    """values: the extents that were chosen for a computation of open extents."""
    try:
        found = doubts(stage, steps)
    except _TooMany:
        _try_bodies(stage, steps, values)
        return
    for doubt in found:
        if doubt.is_on_data:
            continue
        box = _box(doubt, stage)
        is_open = any(isinstance(v, Symbol) for v in box)
        try:
            place = _first_outside(doubt, stage, box, MOST_OPEN if is_open or values else MOST)
        except _TooMany:
            if not (is_open or values):
                raise _unproved(stage, doubt, box) from None
            place = None
        if place is not None:
            raise _read_outside(stage, doubt, place)


# -- proofs --------------------------------------------------------------------------------------------------


def doubts(stage: StageOp, steps: frozenset[str]) -> tuple[Doubt, ...]:
    """The indices that intervals do not prove to be inside; those that come from memory are not among them.

    steps: the buffers whose first index is known to be inside. Raises _TooMany for a body with too many
    combinations of nested conditions.
    """
    found: dict[Doubt, None] = {}
    known = _of_axes(stage)
    seen: set[tuple[Node, Bounds]] = set()
    stack: list[tuple[Node, Bounds, Conditions]] = [(body, known, ()) for body in stage.bodies]
    while stack:
        node, here, conditions = stack.pop()
        if (node, here) in seen:
            continue
        seen.add((node, here))
        if len(seen) > VISITS:
            raise _TooMany
        if isinstance(node, Load):
            under = here if node.mask is None else here.assuming(node.mask)
            around = conditions if node.mask is None else (*conditions, node.mask)
            found |= dict.fromkeys(_of_load(node, under, around, steps))
        if isinstance(node, Select):
            cond = node.cond
            stack.append((cond, here, conditions))
            stack.append((node.then, here.assuming(cond), (*conditions, cond)))
            stack.append((node.otherwise, here.assuming(cond, False), (*conditions, Unary(Neg.NOT, cond))))
        else:
            stack += [(c, here, conditions) for c in children(node)]
    return tuple(found)


def _of_axes(stage: StageOp) -> Bounds:
    known = bounds({a.var: Interval(0, a.extent - 1) for a in stage.all_axes})
    for a in stage.all_axes:
        if a.runtime is not None:
            known = known.assuming(compare(Cmp.LT, a.var, a.runtime))
    return known


def _of_load(load: Load, here: Bounds, around: Conditions, steps: frozenset[str]) -> Iterator[Doubt]:
    first = 1 if load.buffer.name in steps else 0
    for dim in range(first, len(load.indices)):
        doubt = Doubt(load, dim, around)
        if not (reads_memory(doubt.index) or _is_inside(doubt, here)):
            yield doubt


def _is_inside(doubt: Doubt, here: Bounds) -> bool:
    match doubt.extent:
        case Const(n):
            return here.below(doubt.index, int(n))
    return here.at_least(doubt.index, 0) and here.decide(doubt.index < doubt.extent) is True


# -- points --------------------------------------------------------------------------------------------------


def _box(doubt: Doubt, stage: StageOp) -> dict[Var, tuple[int, int]]:
    """The values of all axes and symbols on which the doubt depends, in the order of the axes."""
    axes = {a.var: a for a in stage.all_axes}
    used = free_vars(doubt.outside)
    ends = {v: (0, a.extent - 1) for v, a in axes.items() if v in used}
    open_ends = [a.size for v, a in axes.items() if v in used]
    symbols: dict[Var, tuple[int, int]] = {
        s: (s.least, s.most) for s in symbols_of(doubt.outside, *open_ends)
    }
    return {**symbols, **ends}


def _first_outside(doubt: Doubt, stage: StageOp, box: Box, most: int) -> dict[Var, int] | None:
    """A point of the box that reads outside. Raises _TooMany if more than `most` points would be tried."""
    ends = [compare(Cmp.LT, a.var, a.size) for a in stage.all_axes if a.runtime is not None and a.var in box]
    around = (*ends, *doubt.conditions)
    outside = all_of(*ends, doubt.outside)
    left, boxes = most, [box]
    while boxes:
        part = boxes.pop()
        points = prod(hi - lo + 1 for lo, hi in part.values())
        if part is not box and _is_proved(doubt, around, part):
            continue
        left -= min(points, POINTS)
        if left < 0:
            raise _TooMany
        if points > POINTS:
            boxes += reversed(_halves(part))
        elif (place := _tried(outside, stage, part)) is not None:
            return place
    return None


def _is_proved(doubt: Doubt, around: Conditions, box: Box) -> bool:
    here = bounds({v: Interval(lo, hi) for v, (lo, hi) in box.items()})
    for cond in around:
        if here.decide(cond) is False:
            return True
        here = here.assuming(cond)
    return _is_inside(doubt, here)


def _halves(box: Box) -> list[Box]:
    """The box in two; its longest side is halved."""
    longest = max(box, key=lambda v: box[v][1] - box[v][0])
    lo, hi = box[longest]
    middle = (lo + hi) // 2
    return [{**box, longest: (lo, middle)}, {**box, longest: (middle + 1, hi)}]


def _tried(outside: Expr, stage: StageOp, box: Box) -> dict[Var, int] | None:
    """The first point of the box where the condition holds."""
    sides = [np.arange(lo, hi + 1, dtype=np.int64) for lo, hi in box.values()]
    grid: dict[Var, Any] = dict(zip(box, np.ix_(*sides), strict=True))
    with np.errstate(all="ignore"):
        found = np.asarray(Values(stage, grid, {}, Types(None)).value(outside, None))
    if not found.any():
        return None
    first = np.argwhere(np.broadcast_to(found, [len(s) for s in sides]))[0]
    return {v: int(side[n]) for v, side, n in zip(box, sides, first, strict=True)}


def _try_bodies(stage: StageOp, steps: frozenset[str], values: Mapping[Symbol, int]) -> None:
    """Evaluates whole bodies on tensors that have only a shape. This is for bodies with too many combinations
    of nested conditions for doubts."""
    if any(a.runtime is not None for a in stage.all_axes) or stage.body_symbols:
        return  # the index is limited when the program runs
    box = {a.var: (0, a.extent - 1) for a in stage.all_axes}
    if stage.points() > POINTS * PIECES:
        if values:
            return
        raise TensorError(
            f"stage {stage.name!r}: its conditions stand inside one another in too many ways to prove that "
            f"its indices stay inside their tensors, and {stage.points():,} points are too many to try.",
            fix="Give some of its parts computes of their own.",
        )
    shapes = {b.name: np.broadcast_to(np.zeros((), b.dtype.numpy), b.shape) for b in stage.reads()}
    boxes: list[Box] = [box]
    while boxes:
        part = boxes.pop()
        if prod(hi - lo + 1 for lo, hi in part.values()) > POINTS:
            boxes += reversed(_halves(part))
            continue
        sides = [np.arange(lo, hi + 1, dtype=np.int64) for lo, hi in part.values()]
        places = _Places(stage, dict(zip(part, np.ix_(*sides), strict=True)), shapes, Types(None))
        places.steps = steps
        with np.errstate(all="ignore"):
            for body in stage.bodies:
                places.value(body, None)


class _Places(Values):
    """Values that are evaluated only for the indices of their loads."""

    steps: frozenset[str] = frozenset()

    def _value(self, e: Expr, mask: Any) -> Any:
        if isinstance(e, Select) and reads_memory(e.cond):
            self.value(e.cond, mask)
            nowhere = np.zeros((), np.bool_)
            return np.where(nowhere, self.value(e.then, nowhere), self.value(e.otherwise, nowhere))
        return super()._value(e, mask)

    def load(self, buffer: Buffer, indices: tuple[Expr, ...], own: Expr | None, mask: Any) -> Any:
        told = [i for i in indices if reads_memory(i)]
        for i in told:
            self.value(i, mask)  # it may read outside itself
        if told:
            indices = tuple(const(0) if reads_memory(i) else i for i in indices)
        if buffer.name in self.steps:
            indices = (const(0), *indices[1:])
        return super().load(buffer, indices, own, mask)


# -- errors --------------------------------------------------------------------------------------------------


def _read_outside(stage: StageOp, doubt: Doubt, place: Mapping[Var, int]) -> TensorError:
    symbols = {v: n for v, n in place.items() if isinstance(v, Symbol)}
    at = Values(stage, {v: np.int64(n) for v, n in place.items()}, {}, Types(None)).value(doubt.index, None)
    dims = doubt.load.buffer.dims
    shape = tuple(number(n, {s: symbols.get(s, s.most) for s in symbols_of(n)}) for n in dims)
    return TensorError(
        f"{_said(symbols)}stage {stage.name!r}: index {doubt.dim} of {doubt.load.buffer.name!r} becomes "
        f"{int(at)}; its shape is {shape}.",
        fix="Guard the read with te.if_then_else.",
    )


def _unproved(stage: StageOp, doubt: Doubt, box: Box) -> TensorError:
    points = prod(hi - lo + 1 for lo, hi in box.values())
    buffer = doubt.load.buffer
    last = int(buffer.shape[doubt.dim]) - 1
    return TensorError(
        f"stage {stage.name!r}: index {doubt.dim} of {buffer.name!r}, {doubt.index}, is not proved to stay "
        f"inside 0 … {last}, and {points:,} points are too many to try.",
        fix=f"Limit it: te.maximum(te.minimum(index, {last}), 0); or guard the read with te.if_then_else.",
    )


# -- limits when the program runs ----------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def kept_inside(stage: StageOp, steps: frozenset[str]) -> StageOp:
    """The stage, with limits on indices that neither a proof nor `check_reads` keeps inside.

        if_then_else(N[i] > 0, A[i + 1], 0)      ──▶      if_then_else(N[i] > 0, A[min(i + 1, 63)], 0)

    These are indices under conditions on data, and indices that are not linear in a run-time extent. Below
    such an extent itself, lowering keeps every index (`passes/inside_extents.py`).
    """
    if not (stage.is_open or any(any_node(b, _chooses_by_data) for b in stage.bodies)):
        return stage
    loose = {(d.load, d.dim) for d in _loose(stage, steps)}
    if not loose:
        return stage
    known = _of_axes(stage)
    done: dict[Node, Node] = {}

    def limited(node: Any) -> Any:
        if node not in done:
            made = map_children(node, limited)
            if isinstance(node, Load):
                pairs = enumerate(zip(made.indices, node.buffer.dims, strict=True))
                indices = (_limited(i, n, known) if (node, d) in loose else i for d, (i, n) in pairs)
                made = Load(node.buffer, tuple(indices), made.mask)
            done[node] = made
        return done[node]

    return replace(stage, bodies=tuple(map(limited, stage.bodies)))


def _loose(stage: StageOp, steps: frozenset[str]) -> Iterator[Doubt]:
    try:
        found = doubts(stage, steps)
    except _TooMany:
        known = _of_axes(stage)
        for load in stage.loads():
            yield from _of_load(load, known, (), steps)
        return
    for doubt in found:
        if doubt.is_on_data or any(isinstance(v, Symbol) for v in _box(doubt, stage)):
            yield doubt


def _chooses_by_data(node: Node) -> bool:
    return isinstance(node, Select) and reads_memory(node.cond)


def _limited(index: Expr, extent: Expr, known: Bounds) -> Expr:
    """The index, at least 0 and below its extent if that is a number, where this is not proved."""
    low = index if known.at_least(index, 0) else maximum(index, const(0))
    below = not isinstance(extent, Const) or known.below(low, int(extent.value))
    return low if below else minimum(low, extent - 1)


__all__ = ["check_reads", "kept_inside"]
