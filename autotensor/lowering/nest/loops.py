"""A stage's loops while they are nested, and the places where their conditions may stand.

    guards   i0*8 + i1 < 20         as soon as all their variables are bound          `settled`
             …                      that some point inside holds, further out         `some_point`
    needs    j <= i                 that somebody uses a point inside, further out    `some_need`

A condition that stands further out switches off whole loops; a condition that is placed already is not
repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.ir.bounds import Interval, prove
from autotensor.ir.expr import Binary, Cmp, Compare, Const, Expr, Op, Symbol, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import free_vars
from autotensor.lowering.index_limits import weakest
from autotensor.schedule.axis import Axis
from autotensor.schedule.extents import leaf_var
from autotensor.schedule.state import Stage


@dataclass(frozen=True, slots=True)
class Loops:
    """A stage's loops with everything that nesting needs to know about them."""

    stage: Stage
    values: dict[str, Expr]  # op axis → expression over loop variables, base included
    local: dict[str, Expr]  # op axis → the same without the base: index into the private buffer
    lets: dict[str, tuple[tuple[Var, Expr], ...]]  # leaf → variables defined right inside it
    guards: tuple[Expr, ...]
    targets: tuple[tuple[Buffer, tuple[Expr, ...]], ...] = ()  # accumulators in place of the stage's buffers
    skips: tuple[Expr, ...] = ()  # conditions of a reduction's terms; where one is false the term is left out
    bodies: tuple[Expr, ...] = ()  # the op's bodies without what became a skip
    needs: tuple[Expr, ...] = ()  # conditions outside of which no reader uses the stage's values
    wanted: tuple[Expr, ...] = ()  # conditions of data for the stage to be computed at all


def settled(
    loops: Loops,
    placed: frozenset[Expr],
    bound: tuple[Axis, ...],
    among: tuple[Expr, ...] | None = None,
) -> list[Expr]:
    """Guards (or conditions `among` others) not yet placed whose variables are all bound."""
    known = bound_vars(loops, bound)
    own = bound_vars(loops, loops.stage.leaves)
    wanted = loops.guards if among is None else among
    return [g for g in wanted if g not in placed and (free_vars(g) & own) <= known]


def some_point(
    loops: Loops, placed: frozenset[Expr], bound: tuple[Axis, ...], ranges: dict[Var, Interval]
) -> list[Expr]:
    """Conditions for the loops inside to have any point at all: where an outer loop overhangs, attached
    stages need not be computed.

    An overhang is a sum of loops below an extent: it is least where the loops inside are 0.
    """
    known = bound_vars(loops, bound)
    inside = bound_vars(loops, loops.stage.leaves) - known
    out: list[Expr] = []
    for g in loops.guards:
        if g in placed or not isinstance(g, Compare) or g.op is not Cmp.LT or not _is_extent(g.b):
            continue
        if not free_vars(g) & inside or not _is_sum(g.a):
            continue
        least = simplify(substitute(g, {v: const(0) for v in free_vars(g) & inside}), ranges)
        if free_vars(least) and prove(least, ranges) is not True:
            out.append(least)
    return out


def some_need(
    loops: Loops, placed: frozenset[Expr], bound: tuple[Axis, ...], ranges: dict[Var, Interval]
) -> list[Expr]:
    """Conditions for a point of the loops inside to have a reader; they may hold for other points too."""
    inside = bound_vars(loops, loops.stage.leaves) - bound_vars(loops, bound)
    found = (weakest(c, inside, ranges) for c in loops.needs)
    return [c for c in found if c is not None and c not in placed and prove(c, ranges) is not True]


def bound_vars(loops: Loops, bound: tuple[Axis, ...]) -> frozenset[Var]:
    """The variables that are known inside these loops."""
    name = loops.stage.name
    known = {leaf_var(name, a.name) for a in bound}
    for a in bound:
        known.update(v for v, _ in loops.lets.get(a.name, ()))
    return frozenset(known)


def _is_extent(e: Expr) -> bool:
    """Whether it is the same in all iterations."""
    return isinstance(e, Const) or all(isinstance(v, Symbol) for v in free_vars(e))


def _is_sum(e: Expr) -> bool:
    """Whether an index is made of variables and positive numbers by addition and multiplication."""
    match e:
        case Var():
            return True
        case Const(value):
            return value >= 0
        case Binary(Op.ADD | Op.MUL, a, b):
            return _is_sum(a) and _is_sum(b)
        case _:
            return False


__all__ = ["Loops", "bound_vars", "settled", "some_need", "some_point"]
