"""Laws of comparisons, conditions, selects and floating point, as rules for `simplify`.

An integer comparison is decided by range, or brought into one form: positive terms on the left, the others on
the right, divided by their common divisor. For floats, there are only laws that hold for every bit pattern,
so never x*0, x - x, x + 0.0 or not (x < y).
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from autotensor.ir.affine import Affine, split_by, to_expr
from autotensor.ir.bounds import NEGATED
from autotensor.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Broadcast,
    Cmp,
    Compare,
    Const,
    Expr,
    Neg,
    Op,
    Select,
    Unary,
    const,
)
from autotensor.ir.laws.types import boolean, scalar, scalar_float
from autotensor.ir.rewrite import rule

if TYPE_CHECKING:
    # the simplifier applies the laws, and gives them what is known
    from autotensor.ir.simplify import Simplifier


# -- comparisons ---------------------------------------------------------------------------------------------
@rule(Compare)
def decide(e: Compare, s: Simplifier) -> Expr | None:
    """Conditions that always hold or never hold."""
    known = s.bounds.decide(e)
    return None if known is None else const(known, e.dtype)


@rule(Compare, when=scalar)
def normal_comparison(e: Compare, s: Simplifier) -> Expr | None:
    """One form for every comparison of integers: `8*i + 8 <= 16` is `i < 2`."""
    if not e.a.dtype.is_int or e.a.dtype.lanes != 1 or not (s.bounds.exact(e.a) and s.bounds.exact(e.b)):
        return None
    x, y = s.affine(e.a), s.affine(e.b)
    match e.op:
        case Cmp.EQ | Cmp.NE:
            return _equation(e.op, x.minus(y), s)
        case Cmp.LT:  # x < y  is  x - y <= -1
            return _at_most(x.minus(y), -1, s)
        case Cmp.LE:
            return _at_most(x.minus(y), 0, s)
        case Cmp.GT:
            return _at_most(y.minus(x), -1, s)
        case _:
            return _at_most(y.minus(x), 0, s)


def _equation(op: Cmp, d: Affine, s: Simplifier) -> Expr | None:
    g = gcd(*d.terms.values(), d.constant)  # `decide` has handled constants that g does not divide
    terms = {t: k // g for t, k in d.terms.items()}
    if next(iter(terms.values())) < 0:
        terms, g = {t: -k for t, k in terms.items()}, -g
    return _compared(op, *_sides(terms, -d.constant // g, d), s)


def _compared(op: Cmp, left: Affine, right: Affine, s: Simplifier) -> Expr | None:
    """The comparison; None if a side may wrap around although the original did not."""
    if s.bounds.fits(left) and s.bounds.fits(right):
        return Compare(op, to_expr(left), to_expr(right))
    return None


def _at_most(d: Affine, bound: int, s: Simplifier) -> Expr | None:
    """`d <= bound`."""
    terms, bound = dict(d.terms), bound - d.constant
    g = gcd(*terms.values())
    terms, bound = {t: k // g for t, k in terms.items()}, bound // g  # g*x <= b  is  x <= b // g
    terms, bound = _without_small_terms(Affine(terms, 0, d.dtype), bound, s)
    if all(k < 0 for k in terms.values()):  # -x <= b  is  x >= -b
        left = Affine({t: -k for t, k in terms.items()}, 0, d.dtype)
        return _compared(Cmp.GE, left, Affine({}, -bound, d.dtype), s)
    if bound == 0 and any(k < 0 for k in terms.values()):  # x - y <= 0  is  x <= y
        return _compared(Cmp.LE, *_sides(terms, 0, d), s)
    return _compared(Cmp.LT, *_sides(terms, bound + 1, d), s)  # x - y <= b  is  x < y + b + 1


def _without_small_terms(a: Affine, bound: int, s: Simplifier) -> tuple[dict[Expr, int], int]:
    """g*x + r <= b  is  x <= (b - r)//g, if that is the same number for all r: `8*i + j < 24` is `i < 3`."""
    for g in sorted({abs(k) for k in a.terms.values()} - {1}, reverse=True):
        whole, rest = split_by(a, g)
        if whole.terms and rest.terms:
            r = s.bounds.of_affine(rest)
            if r.lo is not None and r.hi is not None and (bound - r.lo) // g == (bound - r.hi) // g:
                return dict(whole.terms), (bound - r.lo) // g
    return dict(a.terms), bound


def _sides(terms: dict[Expr, int], bound: int, like: Affine) -> tuple[Affine, Affine]:
    """`terms = bound`: positive terms on the left, negative ones on the right, and a positive constant."""
    left = {t: k for t, k in terms.items() if k > 0}
    right = {t: -k for t, k in terms.items() if k < 0}
    moved = bound < 0 and bool(right)
    return Affine(left, -bound if moved else 0, like.dtype), Affine(right, 0 if moved else bound, like.dtype)


# -- conditions ----------------------------------------------------------------------------------------------
@rule(Binary, when=boolean)
def connective(e: Binary, s: Simplifier) -> Expr | None:
    """AND and OR of bools: constants, repetition, and a side that the other side implies."""
    if not e.dtype.is_bool or (e.op is not Op.AND and e.op is not Op.OR):
        return None
    a, b = e.a, e.b
    neutral = e.op is Op.AND  # TRUE & x = x, FALSE | x = x
    for x, y in ((a, b), (b, a)):
        value = constant_bool(x)
        if value is not None:
            return y if value == neutral else x
    if a is b:
        return a
    if e.dtype.lanes == 1:
        after = s.bounds.assuming(a, neutral).decide(b)
        if after is not None:  # a implies b: a & b = a; a implies not b: a & b = FALSE
            return a if after == neutral else const(not neutral, e.dtype)
        if s.bounds.assuming(b, neutral).decide(a) is neutral:
            return b
    return None


@rule(Unary, when=boolean)
def negated(e: Unary, s: Simplifier) -> Expr | None:
    """not TRUE, not not x, not (i < n)."""
    if e.op is not Neg.NOT or not e.dtype.is_bool:
        return None
    value = constant_bool(e.a)
    if value is not None:
        return const(not value, e.dtype)
    match e.a:
        # with a NaN, neither < nor >= holds
        case Compare(op, x, y) if x.dtype.is_int or op in (Cmp.EQ, Cmp.NE):
            return Compare(NEGATED[op], x, y)
    return None


@rule(Select)
def selects(e: Select, s: Simplifier) -> Expr | None:
    """A decided condition chooses a side; with equal sides, no condition is needed."""
    value = constant_bool(e.cond)
    if value is not None:
        return e.then if value else e.otherwise
    if e.then is e.otherwise:
        return e.then
    match e:
        case Select(c, Const(True), Const(False)) if (
            e.then is TRUE and e.otherwise is FALSE and c.dtype.lanes == 1
        ):
            return c
        case Select(Unary(Neg.NOT, c), x, y):
            return Select(c, y, x)
    return None


def constant_bool(e: Expr | None) -> bool | None:
    """The truth value of a constant condition, which may be a vector."""
    if isinstance(e, Broadcast):
        e = e.a
    return bool(e.value) if isinstance(e, Const) and e.type.is_bool else None


# -- floats --------------------------------------------------------------------------------------------------
_FOLDED = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide}


@rule(Binary, when=scalar_float)
def float_laws(e: Binary, s: Simplifier) -> Expr | None:
    """Constants are folded in their own precision; x*1, x/1, x - 0 and x + (-0) are x, bit for bit."""
    if not e.dtype.is_float or e.dtype.lanes != 1:
        return None
    a, b = e.a, e.b
    if isinstance(a, Const) and isinstance(b, Const) and e.op in _FOLDED:
        number: Any = e.dtype.numpy.type
        with np.errstate(all="ignore"):
            return const(float(_FOLDED[e.op](number(a.value), number(b.value))), e.dtype)
    for x, y in ((a, b), (b, a)):
        if isinstance(y, Const):
            v = float(y.value)
            if e.op is Op.MUL and v == 1.0:
                return x
            if e.op is Op.ADD and v == 0.0 and str(v) == "-0.0":
                return x
            if y is b and ((e.op is Op.DIV and v == 1.0) or (e.op is Op.SUB and str(v) == "0.0")):
                return x
    return None


LOGIC_LAWS = (decide, normal_comparison, connective, negated, selects, float_laws)
