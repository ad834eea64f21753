"""limits: bounds that a comparison of sums implies for some of its variables, whatever the others are.

    weakest(j*9 + k <= 48*i + l, {k, l})      ──▶     j*9 <= 48*i + 47      for some k in 0 … 8, l in 0 … 47
    end(j <= 48*i + l, j, {l}, always)        ──▶     48*i + 1              for smaller j, it holds for all l

`partition` uses this module to decide where it cuts loops, and where loops end that depend on outer loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from autotensor.ir.affine import Affine, excess, to_expr
from autotensor.ir.bounds import Bounds, Interval, bounds
from autotensor.ir.expr import Cmp, Compare, Expr, Var, compare, const
from autotensor.ir.visit import free_vars


def weakest(cond: Expr, inside: Set[Var], ranges: dict[Var, Interval]) -> Expr | None:
    """The condition under which `cond` holds for some values of the variables `inside`; None if unknown."""
    return _apart_from(cond, inside, ranges, always=False)


def strongest(cond: Expr, inside: Set[Var], ranges: dict[Var, Interval]) -> Expr | None:
    """The condition under which `cond` holds for all values of the variables `inside`; None if unknown."""
    return _apart_from(cond, inside, ranges, always=True)


def _apart_from(cond: Expr, inside: Set[Var], ranges: dict[Var, Interval], always: bool) -> Expr | None:
    total = excess(cond) if isinstance(cond, Compare) else None
    rest = None if total is None else _without(total, inside, bounds(ranges), always)
    return None if rest is None else compare(Cmp.LE, to_expr(rest), const(0))


def end(cond: Compare, var: Var, inside: Set[Var], known: Bounds, *, always: bool) -> Expr | None:
    """An end such that the comparison holds exactly for the values of `var` below it.

    It holds there for all values of the variables `inside` (always), or for some. None if the comparison does
    not give such an end.
    """
    total = excess(cond)
    if total is None or (k := total.coefficient(var)) <= 0:
        return None
    others = total.without(var)
    rest = _without(others, inside, known, always)
    if rest is None or any(var in free_vars(t) for t in rest.terms):
        return None
    return to_expr(rest.scale(-1)) // k + 1  # k*var + rest <= 0


def holds(cond: Compare, var: Var, known: Bounds) -> Interval | None:
    """The values of `var` for which the comparison holds, whatever the other variables are."""
    return _solve(cond, var, known, always=True)


def may_hold(cond: Compare, var: Var, known: Bounds) -> Interval:
    """The values of `var` for which the comparison holds for some values of the other variables."""
    return _solve(cond, var, known, always=False) or Interval(None, None)


def _solve(cond: Compare, var: Var, known: Bounds, always: bool) -> Interval | None:
    total = excess(cond)
    if total is None or any(var in free_vars(t) for t in total.opaque_terms()):
        return None
    k = total.coefficient(var)
    rest = known.of_affine(Affine(total.without(var).terms, 0, total.dtype))
    others = rest.hi if always else rest.lo
    if k == 0 or others is None:
        return None
    limit = -total.constant - others  # k*var <= limit
    return Interval(None, limit // k) if k > 0 else Interval(-(limit // -k), None)


def _without(total: Affine, inside: Set[Var], known: Bounds, always: bool) -> Affine | None:
    """The sum with terms of `inside` at their greatest (always) or least value; None if that is unknown."""
    gone = {t: k for t, k in total.terms.items() if free_vars(t) & inside}
    bound = extreme(gone, known, always)
    if bound is None:
        return None
    left = {t: k for t, k in total.terms.items() if t not in gone}
    return Affine(left, total.constant + bound, total.dtype)


def extreme(terms: Mapping[Expr, int], known: Bounds, always: bool) -> int | None:
    """The greatest (always) or the least value of a sum; None if it is unknown."""
    total = 0
    for term, k in terms.items():
        reach = known.of(term).times(k)
        bound = reach.hi if always else reach.lo
        if bound is None:
            return None
        total += bound
    return total


__all__ = ["end", "holds", "may_hold", "strongest", "weakest"]
