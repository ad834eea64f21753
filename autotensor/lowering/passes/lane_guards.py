"""lane guards: loads that all lanes share run only if some lane takes part.

    for j in vectorized(8):                                for j in vectorized(8):
      if j0*8 + j < n: C[j0*8 + j] += A[j0]          ──▶     if j0*8 < n:
                                                               if j0*8 + j < n: C[j0*8 + j] += A[j0]

A vectorized loop makes a mask of a condition that differs between its lanes. A load that is the same for
all lanes is done once, whatever the mask says. If no lane fulfils the condition, and only the condition
proves that the load is inside its buffer, memory outside would be read. So a condition that is the same for
all lanes is put around it: the condition of the lane that fulfils it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autotensor.base.errors import LoweringError
from autotensor.ir.affine import affine
from autotensor.ir.bounds import NO_RANGES, bounds
from autotensor.ir.expr import Cmp, Compare, Const, Expr, Load, Var, all_of, conjuncts, const
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import Alloc, Evaluate, For, ForKind, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import any_node, collect, free_vars
from autotensor.lowering.passes.inside_extents import Facts


def lane_guards(body: Stmt) -> Stmt:
    """The statement with conditions around those that differ between lanes, where loads need them.

    Raises LoweringError where no such condition is found.
    """
    if not any_node(body, _is_vectorized):
        return body
    return _Guards().stmt(body, _Place(Facts(bounds(NO_RANGES)), Facts(bounds(NO_RANGES))))


def _is_vectorized(node: Node) -> bool:
    return isinstance(node, For) and node.kind is ForKind.VECTORIZED


@dataclass(frozen=True)
class _Place:
    """The facts that hold at a statement."""

    of_lane: Facts  # for one lane
    of_all: Facts  # whatever lanes take part: without the conditions that differ between lanes
    lanes: Mapping[Var, For | None] = field(default_factory=dict)  # what differs; loops, or None for a Let

    def differs(self, node: Node) -> bool:
        return bool(self.lanes) and not free_vars(node).isdisjoint(self.lanes)

    def where(self, cond: Expr, holds: bool = True) -> _Place:
        of_all = self.of_all
        for part in conjuncts(cond) if holds else (cond,):
            if not self.differs(part):
                of_all = of_all.where(part, holds)
        return replace(self, of_lane=self.of_lane.where(cond, holds), of_all=of_all)


class _Guards:
    """Rewrites statements. `loads` are the loads so far that only conditions of lanes keep inside."""

    def __init__(self) -> None:
        self.loads: list[Load] = []

    def stmt(self, s: Stmt, place: _Place) -> Stmt:
        match s:
            case For(var, begin, extent, kind, body, thread):
                lanes = {**place.lanes, var: s} if kind is ForKind.VECTORIZED else place.lanes
                inner = _Place(place.of_lane.in_loop(s), place.of_all.in_loop(s), lanes)
                self.check(place, begin, extent)
                return For(var, begin, extent, kind, self.stmt(body, inner), thread)
            case Let(var, value, body):
                lanes = {**place.lanes, var: None} if place.differs(value) else place.lanes
                inner = _Place(place.of_lane.in_let(s), place.of_all.in_let(s), lanes)
                self.check(place, value)
                return Let(var, value, self.stmt(body, inner))
            case If():
                return self.branch(s, place)
            case Seq(stmts):
                return seq(*(self.stmt(x, place) for x in stmts))
            case Alloc(buffer, body):
                return Alloc(buffer, self.stmt(body, place))
            case Store(_, indices, value, mask):
                under = place if mask is None else place.where(mask)
                self.check(under, *indices, value)
            case Evaluate(value):
                self.check(place, value)
        return s

    def branch(self, s: If, place: _Place) -> Stmt:
        self.check(place, s.cond)
        if not place.differs(s.cond):
            other = None if s.otherwise is None else self.stmt(s.otherwise, place.where(s.cond, False))
            return If(s.cond, self.stmt(s.then, place.where(s.cond)), other)
        before, self.loads = self.loads, []
        then = self.stmt(s.then, place.where(s.cond))
        inside, self.loads = self.loads, []
        other = None if s.otherwise is None else self.stmt(s.otherwise, place.where(s.cond, False))
        if self.loads:  # the reads on the other side
            raise _unguarded(self.loads[0])
        self.loads = [*before, *inside]  # conditions further out may be needed, too
        if not inside:
            return If(s.cond, then, other)
        guard = _of_some_lane(s.cond, place)
        if other is not None or guard is None:
            raise _unguarded(inside[0])
        return If(guard, If(s.cond, then, None), None)

    def check(self, place: _Place, *exprs: Expr) -> None:
        """Notes the loads that are the same for all lanes, and inside for a lane that takes part only."""
        if not place.lanes:
            return
        for e in exprs:
            for load in collect(e, Load):
                if not place.differs(load) and _needs_lane(load, place):
                    self.loads.append(load)


def _needs_lane(load: Load, place: _Place) -> bool:
    one, every = place.of_lane, place.of_all
    if load.mask is not None:
        one, every = one.where(load.mask), every.where(load.mask)
    pairs = list(zip(load.indices, load.buffer.dims, strict=True))
    return any(not every.inside(i, n) and one.inside(i, n) for i, n in pairs)


def _of_some_lane(cond: Expr, place: _Place) -> Expr | None:
    """A condition that is the same for all lanes, and holds if `cond` does for any; None: none was found."""
    found = []
    for part in conjuncts(cond):
        if not place.differs(part):
            found.append(part)
        elif (first := _of_first_lane(part, place)) is not None:
            found.append(first)
    return all_of(*found) if found else None


def _of_first_lane(part: Expr, place: _Place) -> Expr | None:
    """The comparison of the lane for which it holds most easily, if it is a sum that grows or falls."""
    if not isinstance(part, Compare) or part.op not in (Cmp.LT, Cmp.LE, Cmp.GT, Cmp.GE):
        return None
    sides = affine(part.a), affine(part.b)
    if sides[0] is None or sides[1] is None:
        return None
    difference = sides[0].minus(sides[1])
    values: dict[Var, Expr] = {}
    for term, k in difference.terms.items():
        if not place.differs(term):
            continue
        loop = place.lanes.get(term) if isinstance(term, Var) else None
        if loop is None or not isinstance(loop.extent, Const):
            return None
        least = (k > 0) == (part.op in (Cmp.LT, Cmp.LE))
        values[loop.var] = loop.begin if least else loop.begin + const(int(loop.extent.value) - 1)
    return simplify(substitute(part, values))


def _unguarded(load: Load) -> LoweringError:
    return LoweringError(
        f"{load} is the same for all lanes of a vectorized loop, and inside of {load.buffer.name!r} only for "
        "lanes that fulfil a condition.",
        fix="Vectorize another loop, or unroll this one.",
    )


__all__ = ["lane_guards"]
