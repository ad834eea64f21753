"""Heavy kernels: the parallel regions that threads share dynamically, and the parts into which these regions
may be cut.

    for y in parallel(8):              8 × 14 parts: part p is iterations 14*(p%14)//14 … of the inner loop
      for x in range(14): …            of y = p // 14

A parallel loop of few iterations is cut finer if the loop directly inside it has independent iterations. Any
cut gives the same bits: the same code runs an iteration in every thread, and no iteration reads elements that
another one wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from autotensor.ir.expr import Const, Expr, Load, Var
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.lane_offsets import Lanes, lanes_of
from autotensor.ir.node import Node, children
from autotensor.ir.statement_work import operations
from autotensor.ir.stmt import NOTHING, Alloc, For, ForKind, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import free_vars, loads, walk

# Least operations for each thread of a region that is shared dynamically: 200 us at 50 GFLOP/s. Models gain
# nothing from sharing lighter regions (4 million: the same medians; 2 cores, 2026-11).
HEAVY_OPERATIONS = 10_000_000


@dataclass(frozen=True, slots=True)
class Inner:
    """A loop directly inside the parallel one. If its tile does not divide the extent, a tail follows it."""

    loop: For
    begin: int
    extent: int
    tail: Stmt


@dataclass(frozen=True, slots=True)
class Heavy:
    """A parallel loop with so much work that threads take it in parts, each the next part when it is
    ready."""

    extent: int  # the extent of the parallel loop
    # inner loops that are cut, too; each iteration of the parallel loop runs one of them
    inner: Mapping[Stmt, Inner]
    cuts: int  # cuts of each iteration of the parallel loop; 1: inner loops are not cut
    most_threads: int  # the most threads of a team such that each has enough work

    @property
    def most_parts(self) -> int:
        return self.extent * self.cuts


def heavy(body: Stmt) -> Heavy | None:
    """The parallel loop of a kernel, if it has enough work for two threads, and at least two parts for
    each."""
    loop = parallel_loop(body)
    if loop is None or not isinstance(loop.extent, Const):
        return None
    extent = int(loop.extent.value)
    threads = operations(body) // HEAVY_OPERATIONS
    if threads < 2:
        return None
    inner = _inner(loop.body) or {}
    if not all(_is_independent(i) for i in inner.values()):
        inner = {}
    cuts = max((i.extent for i in inner.values()), default=1)
    threads = min(threads, extent * cuts // 2)
    return Heavy(extent, inner if cuts > 1 else {}, cuts, threads) if threads >= 2 else None


def parallel_loop(s: Stmt) -> For | None:
    """The parallel loop of a statement: the statement itself, or a loop inside its allocations and lets. A
    loop in a wrong place is found, too, for the error message."""
    if isinstance(s, For) and s.kind is ForKind.PARALLEL:
        return s
    below = (parallel_loop(c) for c in children(s) if isinstance(c, Stmt))
    return next((loop for loop in below if loop is not None), None)


def _inner(s: Stmt) -> dict[Stmt, Inner] | None:
    """The statements that are a loop with or without a tail: `s` itself, or one statement on each side of a
    condition. None if a side has no such statement."""
    match s:
        case For(_, Const(begin), Const(extent), ForKind.SERIAL, _):
            return {s: Inner(s, int(begin), int(extent), NOTHING)}
        case Seq((For(_, Const(begin), Const(extent), ForKind.SERIAL, _) as loop, *tail)):
            return {s: Inner(loop, int(begin), int(extent), seq(*tail))}
        case Let(_, value, body) if not loads(value):  # every part evaluates the value again
            return _inner(body)
        case If(cond, then, otherwise) if otherwise is not None and not loads(cond):
            sides = _inner(then), _inner(otherwise)
            return None if sides[0] is None or sides[1] is None else sides[0] | sides[1]
    return None


# -- independence --------------------------------------------------------------------------------------------


def _is_independent(inner: Inner) -> bool:
    """Whether the iterations of a loop, and its tail, write to different elements and read none of these
    elements. A False may be wrong."""
    found: dict[type[Node], list[Any]] = {Alloc: [], Store: [], Load: [], For: [], Let: []}
    for root in (inner.loop.body, inner.tail):
        for node in walk(root):
            found.get(type(node), []).append((node, root is inner.tail))
    own = {a.buffer for a, _ in found[Alloc]}
    stores: dict[Any, dict[tuple[Store, bool], None]] = {}
    for s, in_tail in found[Store]:
        if s.buffer not in own:
            stores.setdefault(s.buffer, {})[s, in_tail] = None
    if any(b.scope is not Scope.GLOBAL for b in stores) or not stores.keys().isdisjoint(
        x.buffer for x, _ in found[Load]
    ):
        return False
    values = _values([f for f, _ in found[For]])
    inside = frozenset({inner.loop.var, *values, *(x.var for x, _ in found[Let])})
    if inner.loop.var in values:
        return False  # the tail uses the variable, too
    return all(_apart(inner, b, tuple(places), values, inside) for b, places in stores.items())


def _values(loops: Sequence[For]) -> dict[Var, tuple[int, int] | None]:
    """The first and the last value of every variable, over all loops with this variable; None if unknown."""
    found: dict[Var, tuple[int, int] | None] = {}
    for loop in loops:
        begin, extent = _constant(loop.begin), _constant(loop.extent)
        if begin is None or not extent:
            found[loop.var] = None
            continue
        last = begin + extent - 1
        before = found.get(loop.var, (begin, last))
        found[loop.var] = before and (min(before[0], begin), max(before[1], last))
    return found


def _apart(
    inner: Inner,
    buffer: Buffer,
    stores: Sequence[tuple[Store, bool]],
    values: Mapping[Var, tuple[int, int] | None],
    inside: Set[Var],
) -> bool:
    """Whether stores to one buffer hit different elements in different iterations of a loop with variable v.

    A store of the tail (paired with True) counts as a store of one more iteration after the last, so that v
    has n values. Indices are base + c*v + rest, with the same base in all stores. If all rests lie within c
    of each other, up to multiples of some period of at least c*n, then the index determines v: different
    iterations write different elements.
    """
    taken: list[tuple[Lanes, bool]] = []
    for s, in_tail in stores:
        place = lanes_of(s.indices[0]) if len(s.indices) == 1 else None
        if place is None:
            return False
        taken.append((place, in_tail))
    moving = [{t: k for t, k in index.terms.items() if free_vars(t) & inside} for (index, _), _ in taken]
    bases = {
        frozenset(index.terms.items() - m.items()) for ((index, _), _), m in zip(taken, moving, strict=True)
    }
    v = inner.loop.var
    strides = {m.pop(v, 0) for (_, in_tail), m in zip(taken, moving, strict=True) if not in_tail}
    if len(bases) != 1 or len(strides) != 1 or 0 in strides:
        return False
    (c,) = strides
    reach = abs(c) * (inner.extent + any(in_tail for _, in_tail in taken))
    far: set[int] = set()
    rests: list[tuple[int, int]] = []
    for ((index, offsets), in_tail), terms in zip(taken, moving, strict=True):
        start = index.constant - (c * (inner.begin + inner.extent) if in_tail else 0)
        low, high = start + min(offsets), start + max(offsets)
        for term, k in terms.items():
            span = values.get(term) if isinstance(term, Var) else None
            if span is None:
                return False
            if abs(k) >= reach:
                far.add(k)
            else:
                low += min(k * span[0], k * span[1])
                high += max(k * span[0], k * span[1])
        rests.append((low, high))
    periods = [p for p in {reach, *buffer.row_major()} if p >= reach and all(k % p == 0 for k in far)]
    return any(_width(rests, p) < abs(c) for p in periods)


def _width(ranges: Sequence[tuple[int, int]], period: int) -> int:
    """The width of a range that holds all ranges, after each was moved by whole periods as near as possible
    to the first."""
    first = ranges[0][0]
    moved = [(low - first + period // 2) // period * period for low, _ in ranges]
    lows = [low - by for (low, _), by in zip(ranges, moved, strict=True)]
    highs = [high - by for (_, high), by in zip(ranges, moved, strict=True)]
    return max(highs) - min(lows)


def _constant(e: Expr) -> int | None:
    return int(e.value) if isinstance(e, Const) else None
