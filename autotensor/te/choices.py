"""Writes the terms of a reduction as choices of one form, however their author wrote them.

    Σ_k i32(p[k] == i)                        ──▶     Σ_k select(i == p[k], 1, 0)
    Σ_k select(p[k] != i, 0, u[k])            ──▶     Σ_k select(i == p[k], u[k], 0)
    Σ_k select(k < i + 1, u[k], 0)            ──▶     Σ_k select(k <= i, u[k], 0)
    Σ_k select(i32(i) == p[k], 1, 0) * n[k]   ──▶     Σ_k select(i == i64(p[k]), n[k], 0)        of integers

`terms.py` looks for choices of this form. Products of floats stay, because 0 times infinity
is not neutral.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from autotensor.base.dtype import int64
from autotensor.ir.affine import Affine, affine, excess, to_expr
from autotensor.ir.bounds import NEGATED
from autotensor.ir.expr import Binary, Cast, Cmp, Compare, Const, Expr, Op, Select, Var, all_of, cast, const
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.visit import free_vars
from autotensor.te.stage import StageOp

Extents = Mapping[Expr, int]


@lru_cache(maxsize=4096)
def in_choices(op: StageOp) -> StageOp:
    """The op, with each term that is a choice written as `select(condition, term, neutral)`.

    Where that is possible, an axis stands alone on one side of each comparison in the condition.
    """
    if op.combiner is None:
        return op
    extents: dict[Expr, int] = {a.var: a.extent for a in op.all_axes}
    pairs = zip(op.bodies, op.combiner.identity, strict=True)
    return replace(op, bodies=tuple(_body(body, first, extents) for body, first in pairs))


def _body(body: Expr, neutral: Expr, extents: Extents) -> Expr:
    found = choice(body, neutral)
    if found is None or found.cond.dtype.lanes != 1:
        return body
    return Select(transform(found.cond, lambda n: _comparison(n, extents)), found.then, found.otherwise)


def choice(e: Expr, neutral: Expr) -> Select | None:
    """The term as a choice that gives `neutral` where its condition fails; None if the term has another
    form."""
    zero = isinstance(neutral, Const) and neutral.value == 0
    match e:
        case Select(_, _, Const() as otherwise) if otherwise == neutral:
            return e
        case Select(Compare(op, a, b), Const() as then, otherwise) if then == neutral and a.dtype.is_int:
            return Select(Compare(NEGATED[op], a, b), otherwise, neutral)
        case Cast(t, cond) if zero and cond.dtype.is_bool and not t.is_bool:
            return Select(cond, const(1, t), neutral)
        case Binary(Op.MUL, a, b) if zero and e.dtype.is_int:
            for first, other in ((a, b), (b, a)):
                found = choice(first, neutral)
                if found is not None:
                    more = choice(other, neutral)
                    conds, rest = ((), other) if more is None else ((more.cond,), more.then)
                    return Select(all_of(found.cond, *conds), Binary(Op.MUL, found.then, rest), neutral)
    return None


def _comparison(node: Node, extents: Extents) -> Compare | None:
    """A comparison of integers with an axis alone on one side; None where the comparison stays as it is."""
    if not isinstance(node, Compare) or not node.a.dtype.is_int or node.a.dtype.lanes != 1:
        return None
    a, b = (_place(e, extents) for e in (node.a, node.b))
    if a not in extents and b not in extents and node.a.dtype != int64:
        return None
    same = Compare(node.op, cast(int64, a), cast(int64, b))
    if a in extents and b in extents:
        return same
    if node.op is Cmp.EQ:
        return same if a in extents or b in extents else _equation(same, extents)
    total = excess(same)
    ordered = None if total is None else _order(total, extents)
    return same if ordered is None else ordered


def _place(e: Expr, extents: Extents) -> Expr:
    """The axis, if `e` is an axis converted to a type that holds all its values; otherwise `e` as it is."""
    if isinstance(e, Cast) and e.a in extents:
        last = const(extents[e.a] - 1)
        return e.a if cast(int64, cast(e.dtype, last)) == last else e
    return e


def _equation(equal: Compare, extents: Extents) -> Compare:
    """i + 1 == p[k]   ──▶   i == p[k] - 1        modulo 2**64, like all integer arithmetic"""
    total = affine(equal.a - equal.b)
    for term, k in total.terms.items() if total is not None else ():
        assert total is not None
        rest = total.without(term).scale(-k)
        if term in extents and abs(k) == 1 and not any(term in free_vars(t) for t in rest.terms):
            return Compare(Cmp.EQ, term, to_expr(rest))
    return equal


def _order(total: Affine, extents: Extents) -> Compare | None:
    """k - i - 1 < 0   ──▶   k <= i        for two axes; `total` is at most 0 where the condition holds"""
    match [*total.terms.items()]:
        case [(Var() as x, 1), (Var() as y, -1)] | [(Var() as y, -1), (Var() as x, 1)]:
            if x in extents and y in extents and total.constant in (0, 1):
                return Compare(Cmp.LT if total.constant else Cmp.LE, x, y)
    return None


__all__ = ["choice", "in_choices"]
