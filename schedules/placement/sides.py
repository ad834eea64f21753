"""If a condition is the same in a whole loop, it is tested before the loop (`unswitch`).

So an iteration of a stage costs only one side of the condition.

out[k, i, j] = select(k == 0, f(i, j), select(k == 1, g(i, j), h(i, j)))     k < 9: 1/9, 1/9 and 7/9
out[i, j]    = select(i % 2 == 0, f(i, j), g(i, j))                          half of each
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from autotensor.ir.expr import Binary, Cmp, Compare, Const, Expr, Op, Select, Var
from autotensor.ir.visit import free_vars
from autotensor.te.dag import StageOp
from schedules.placement.cost import Group, evaluation
from schedules.placement.reads import points_read


def mean_evaluation(group: Group, op: StageOp, inlined: frozenset[str]) -> float:
    """The cycles for a vector of a stage's elements with other stages inlined: the mean of the stage's
    sides."""
    return sum(share * _evaluation(group, op, side, inlined) for share, side in sides(op))


def _evaluation(group: Group, op: StageOp, side: StageOp, inlined: frozenset[str]) -> float:
    order = tuple(side if o is op else o for o in group.order)
    return evaluation(replace(group, order=order), side, inlined, points_read(side, inlined, order))


@lru_cache(maxsize=1024)
def sides(op: StageOp) -> tuple[tuple[float, StageOp], ...]:
    """The stage with each side of the conditions that are the same in its loops over vectors, and the share
    of each side. Without such conditions, it is the stage itself."""
    if op.is_reduction or len(op.bodies) != 1 or not op.axes:
        return ((1.0, op),)
    shared: dict[Expr, int] = {a.var: a.extent for a in op.axes[:-1]}
    found = _sides(op.bodies[0], 1.0, shared)
    return tuple((share, op if b is op.bodies[0] else replace(op, bodies=(b,))) for share, b in found)


def _sides(body: Expr, share: float, left: Mapping[Expr, int]) -> Iterator[tuple[float, Expr]]:
    """The sides of an expression. left: the number of values that each axis, or a remainder of it, may
    have."""
    match body:
        case Select(Compare(Cmp.EQ, what, Const()), a, b) if count := _count(what, left):
            yield from _sides(a, share / count, {**left, what: 1})
            yield from _sides(b, share - share / count, {**left, what: count - 1})
        case _:
            yield share, body


def _count(what: Expr, left: Mapping[Expr, int]) -> int:
    """The number of values that an expression may still have; 0 if it is not known."""
    match what:
        case Binary(Op.MOD, Var() | Binary(), Const(n)) if free_vars(what) <= left.keys():
            return left.get(what, int(n))
    return left.get(what, 0)
