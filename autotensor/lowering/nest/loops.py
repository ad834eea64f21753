"""A stage's loops while they are nested, and the places where their conditions may be tested.

    guards   i0*8 + i1 < 20         as soon as all their variables are bound                  `settled`
             …                      further out: whether some point inside satisfies them     `some_point`
    needs    j <= i                 further out: whether some reader uses a point inside      `some_need`

A condition that is tested further out switches off whole loops. A condition that is already placed is not
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
    """A stage's loops, with everything that nesting must know about them."""

    stage: Stage
    values: dict[str, Expr]  # op axis → expression over loop variables, with the base
    local: dict[str, Expr]  # op axis → the same without the base, as an index into the private buffer
    lets: dict[str, tuple[tuple[Var, Expr], ...]]  # loop → variables defined directly inside it
    guards: tuple[Expr, ...]
    targets: tuple[tuple[Buffer, tuple[Expr, ...]], ...] = ()  # accumulators that replace the stage's buffers
    # conditions of a reduction's terms; a term with a false condition is left out
    skips: tuple[Expr, ...] = ()
    bodies: tuple[Expr, ...] = ()  # the op's bodies without the conditions that became skips
    needs: tuple[Expr, ...] = ()  # if one of these conditions fails, no reader uses the stage's values
    wanted: tuple[Expr, ...] = ()  # conditions on data; the stage is computed only if they hold


def settled(
    loops: Loops,
    placed: frozenset[Expr],
    bound: tuple[Axis, ...],
    among: tuple[Expr, ...] | None = None,
) -> list[Expr]:
    """The guards (or conditions of `among`) that are not yet placed and whose variables are all bound."""
    known = bound_vars(loops, bound)
    own = bound_vars(loops, loops.stage.leaves)
    wanted = loops.guards if among is None else among
    return [g for g in wanted if g not in placed and (free_vars(g) & own) <= known]


def some_point(
    loops: Loops, placed: frozenset[Expr], bound: tuple[Axis, ...], ranges: dict[Var, Interval]
) -> list[Expr]:
    """The conditions under which the loops inside have a point.

    If an outer loop overhangs, attached stages need not be computed beyond the extent.

    An overhang is compared as a sum of loops below an extent, and the sum is least if the loops inside are 0.
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
    """Conditions that hold if a point of the loops inside has a reader. They may also hold without such a
    point."""
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
    """Whether the expression is the same in all iterations."""
    return isinstance(e, Const) or all(isinstance(v, Symbol) for v in free_vars(e))


def _is_sum(e: Expr) -> bool:
    """Whether an index is computed from variables and non-negative numbers by addition and multiplication."""
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
