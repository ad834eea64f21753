"""limits: what a comparison of sums says about some of its variables, whatever the others are.

    weakest(j*9 + k <= 48*i + l, {k, l})      ──▶     j*9 <= 48*i + 47      for some k in 0 … 8, l in 0 … 47
    end(j <= 48*i + l, j, {l}, always)        ──▶     48*i + 1              below it j holds for all l

Ends of loops that depend on loops outside come from here.
"""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from autotensor.ir.affine import Affine, affine, to_expr
from autotensor.ir.bounds import Bounds, Interval, bounds
from autotensor.ir.expr import Cmp, Compare, Expr, Var, compare, const
from autotensor.ir.visit import free_vars


@lru_cache(maxsize=1024)
def excess(cond: Compare) -> Affine | None:
    """A sum that is at most 0 exactly when the comparison holds; None unless it is one of sums."""
    if not cond.a.dtype.is_int or cond.a.dtype.lanes != 1:
        return None
    match cond.op:
        case Cmp.LT:
            return affine(cond.a - cond.b + 1)
        case Cmp.LE:
            return affine(cond.a - cond.b)
        case Cmp.GT:
            return affine(cond.b - cond.a + 1)
        case Cmp.GE:
            return affine(cond.b - cond.a)
        case _:
            return None


def weakest(cond: Expr, inside: Set[Var], ranges: dict[Var, Interval]) -> Expr | None:
    """The condition that `cond` holds for some values of the variables `inside`; None if it says nothing."""
    total = excess(cond) if isinstance(cond, Compare) else None
    rest = None if total is None else _without(total, inside, bounds(ranges), always=False)
    return None if rest is None else compare(Cmp.LE, to_expr(rest), const(0))


def end(cond: Compare, var: Var, inside: Set[Var], known: Bounds, *, always: bool) -> Expr | None:
    """The values of `var` below it are those where the comparison holds, for all values of the variables
    `inside` (always) or for some; None when it bounds `var` in no such way.
    """
    total = excess(cond)
    if total is None or (k := total.coefficient(var)) <= 0:
        return None
    others = Affine({t: c for t, c in total.terms.items() if t is not var}, total.constant, total.dtype)
    rest = _without(others, inside, known, always)
    if rest is None or any(var in free_vars(t) for t in rest.terms):
        return None
    return to_expr(rest.scale(-1)) // k + 1  # k*var + rest <= 0


def _without(total: Affine, inside: Set[Var], known: Bounds, always: bool) -> Affine | None:
    """The sum with terms of `inside` at their greatest (always) or least; None where those are unknown."""
    constant, left = total.constant, {}
    for term, k in total.terms.items():
        if not free_vars(term) & inside:
            left[term] = k
            continue
        reach = known.of(term).times(k)
        bound = reach.hi if always else reach.lo
        if bound is None:
            return None
        constant += bound
    return Affine(left, constant, total.dtype)


__all__ = ["end", "excess", "weakest"]
