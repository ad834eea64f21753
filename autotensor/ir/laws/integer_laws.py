"""Laws of integer sums, quotients, remainders, minima and maxima, as rules for `simplify`.

The laws of quotients and remainders treat the dividend as a sum: multiples of the divisor move out, and a
rest smaller than the divisor vanishes. Laws that are false when a value wraps around check `s.bounds.exact`
first. `s` is the Simplifier; operands are already simple.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import TYPE_CHECKING

from autotensor.base.dtype import wrap_int
from autotensor.ir.affine import Affine, fits, recombine, split_by, to_expr
from autotensor.ir.arithmetic import constant_power
from autotensor.ir.bounds import Interval
from autotensor.ir.expr import Binary, Call, Cast, Const, Expr, Neg, Op, Select, Unary, cast, const
from autotensor.ir.laws.types import integer, scalar_integer
from autotensor.ir.rewrite import rule
from autotensor.ir.semantics import integer as integer_result
from autotensor.ir.semantics import integer_power

if TYPE_CHECKING:
    # the simplifier applies the laws, and gives them what is known
    from autotensor.ir.simplify import Simplifier

Parts = tuple[Affine, Affine]


# -- sums ----------------------------------------------------------------------------------------------------
def canonical_sum(a: Affine, s: Simplifier) -> Expr:
    """The one form of a sum: recombined, terms in order of appearance, constant last."""
    if len(a.terms) > 1 and any(isinstance(t, Binary) for t in a.terms):  # quotients and remainders
        a = join_divmod(recombine(a), s)
    return to_expr(a)


def join_divmod(a: Affine, s: Simplifier) -> Affine:
    """x%c = x - c*(x//c), used if the sum holds this quotient with its factor, in whatever form x//c is."""
    for term, k in a.terms.items():
        match term:
            case Binary(Op.MOD, x, Const(c)) if c > 0 and s.bounds.exact(x):
                quotient = s.affine(s.expr(Binary(Op.FLOORDIV, x, term.b)))
                if quotient.terms and all(
                    a.terms.get(t) == k * int(c) * n for t, n in quotient.terms.items()
                ):
                    without = a.without(term)
                    return join_divmod(recombine(without.plus(s.affine(x), k).plus(quotient, -k * int(c))), s)
                joined = _join_congruent(a, term, k, s)
                if joined is not None:
                    return join_divmod(recombine(joined), s)
    return a


def _join_congruent(a: Affine, remainder: Binary, k: int, s: Simplifier) -> Affine | None:
    """k*(x%c) + k*c*(y//c) = k*y, if c divides y - x: `(8*o + i)%7`, for example, has become `(o + i)%7`."""
    x, c = s.affine(remainder.a), int(remainder.b.value)  # type: ignore[attr-defined]
    for term, n in a.terms.items():
        match term:
            case Binary(Op.FLOORDIV, dividend, Const(d)) if (
                d == c and n == k * c and s.bounds.exact(dividend)
            ):
                y = s.affine(dividend)
                apart = y.minus(x)
                if apart.constant % c == 0 and all(m % c == 0 for m in apart.terms.values()):
                    rest = {t: m for t, m in a.terms.items() if t is not term and t is not remainder}
                    return Affine(rest, a.constant, a.dtype).plus(y, k)
    return None


# -- quotient and remainder ----------------------------------------------------------------------------------
@rule(Binary, when=scalar_integer)
def divide(e: Binary, s: Simplifier) -> Expr | None:
    """Quotients by a positive constant."""
    if e.op is not Op.FLOORDIV or not isinstance(e.b, Const) or e.dtype.lanes != 1 or e.b.value <= 0:
        return None
    x, c = e.a, int(e.b.value)
    if c == 1:  # x // 1 = x
        return x
    values = s.bounds.of(x)
    if values.lo is not None and values.hi is not None and values.lo // c == values.hi // c:
        return const(values.lo // c, e.dtype)  # all values of x have the same quotient
    match x:
        case Binary(Op.FLOORDIV, y, Const(b)) if b > 0 and fits(int(b) * c, e.dtype):
            return Binary(Op.FLOORDIV, y, const(int(b) * c, e.dtype))  # (y // b) // c = y // (b*c)
        case Binary(Op.MOD, y, Const(m)) if m > 0 and m % c == 0:
            quotient = Binary(Op.FLOORDIV, y, e.b)  # (y % (n*c)) // c = (y // c) % n
            return Binary(Op.MOD, quotient, const(int(m) // c, e.dtype))
    if not s.bounds.exact(x):
        return None
    whole, rest = split_by(s.affine(x), c)
    if (whole.terms or whole.constant) and s.bounds.fits(rest):  # (c*q + r) // c = q + r // c
        out = Binary(Op.FLOORDIV, to_expr(rest), e.b)
        return Binary(Op.ADD, to_expr(whole), out)
    for (whole, _), g in bounded_rests(s.affine(x), c, s):  # (g*q + r) // (g*c) = q // c  for 0 <= r < g
        return Binary(Op.FLOORDIV, to_expr(whole), const(c // g, e.dtype))
    return None


@rule(Binary, when=scalar_integer)
def remainder(e: Binary, s: Simplifier) -> Expr | None:
    """Remainders by a positive constant."""
    if e.op is not Op.MOD or not isinstance(e.b, Const) or e.dtype.lanes != 1 or e.b.value <= 0:
        return None
    x, c = e.a, int(e.b.value)
    if c == 1:  # x % 1 = 0
        return const(0, e.dtype)
    if not s.bounds.exact(x):
        return None
    values = s.bounds.of(x)
    a = s.affine(x)
    if values.lo is not None and values.hi is not None and values.lo // c == values.hi // c:
        # all values of x have the same quotient
        return s.sum_expr(Affine(a.terms, a.constant - values.lo // c * c, a.dtype))
    match x:
        case Binary(Op.MOD, y, Const(m)) if m > 0 and m % c == 0:
            return Binary(Op.MOD, y, e.b)  # (y % (n*c)) % c = y % c
    small = {t: _nearest(k, c) for t, k in a.terms.items()}
    reduced = Affine({t: k for t, k in small.items() if k}, a.constant % c, a.dtype)
    changed = reduced.constant != a.constant or any(small[t] != k for t, k in a.terms.items())
    if changed and s.bounds.fits(reduced):
        return Binary(Op.MOD, to_expr(reduced), e.b)  # (c*q + r) % c = r % c
    for (whole, rest), g in bounded_rests(a, c, s):  # (g*q + r) % (g*c) = g*(q % c) + r  for 0 <= r < g
        out = Binary(Op.MOD, to_expr(whole), const(c // g, e.dtype))
        return Binary(Op.ADD, Binary(Op.MUL, out, const(g, e.dtype)), to_expr(rest))
    return None


def _nearest(k: int, c: int) -> int:
    """k modulo c, or k itself if it is already smaller than c."""
    return k if abs(k) < c else k % c


def bounded_rests(a: Affine, c: int, s: Simplifier) -> Iterator[tuple[Parts, int]]:
    """((q, r), g) for each g > 1 that divides c, with a = g*q + r and r in 0..g-1; the largest g first."""
    for g in sorted({gcd(k, c) for k in a.terms.values()} - {1}, reverse=True):
        if g == c:
            continue
        whole, rest = split_by(a, g)
        if whole.terms and s.bounds.of_affine(rest).within(Interval(0, g - 1)):
            yield (whole, rest), g


# -- minimum and maximum -------------------------------------------------------------------------------------
@rule(Binary)
def least(e: Binary, s: Simplifier) -> Expr | None:
    """min and max, decided by range; constants move to the right."""
    if e.op is not Op.MIN and e.op is not Op.MAX:
        return None
    if e.a is e.b:  # min(x, x) = x
        return e.a
    if not e.dtype.is_int:
        return None
    chosen = _lesser(e.op, e.a, e.b, s)
    if chosen is not None:
        return chosen
    if isinstance(e.a, Const):
        return Binary(e.op, e.b, e.a)
    match e.a:
        case Binary(op, x, y) if op is e.op:  # min(min(x, y), z): z against each of them
            one = _lesser(op, x, e.b, s)
            if one is not None:
                return Binary(op, one, y) if one is x else Binary(op, y, one)
            one = _lesser(op, y, e.b, s)
            if one is not None:
                return Binary(op, x, one)
    match e.b:
        case Binary(op, x, y) if op is e.op:  # min(z, min(x, y)) = min(min(z, x), y)
            return Binary(op, Binary(op, e.a, x), y)
    return None


def _lesser(op: Op, x: Expr, y: Expr, s: Simplifier) -> Expr | None:
    d = s.bounds.difference(x, y)
    if d.hi is not None and d.hi <= 0:  # x <= y always
        return x if op is Op.MIN else y
    if d.lo is not None and d.lo >= 0:
        return y if op is Op.MIN else x
    return None


# -- bits, constants, casts ----------------------------------------------------------------------------------
@rule(Binary, when=scalar_integer)
def fold_integers(e: Binary, s: Simplifier) -> Expr | None:
    """Two constants become one."""
    if isinstance(e.a, Const) and isinstance(e.b, Const) and e.dtype.is_int:
        return const(integer_result(e.op, int(e.a.value), int(e.b.value), e.dtype), e.dtype)
    return None


@rule(Binary, when=integer)
def bits(e: Binary, s: Simplifier) -> Expr | None:
    """Laws of &, |, ^ and shifts."""
    if not e.dtype.is_int:
        return None
    match e:
        case Binary(Op.AND, x, Const(m)) if m >= 0 and (int(m) + 1) & int(m) == 0:
            values = s.bounds.of(x)  # x & (2**n - 1) = x  for 0 <= x < 2**n
            return x if values.lo is not None and values.within(Interval(0, int(m))) else None
        case Binary(Op.AND | Op.OR, x, y) if x is y:  # x & x = x | x = x
            return x
        case Binary(Op.OR | Op.XOR | Op.SHL | Op.SHR, x, Const(0)):
            return x
        case Binary(Op.SHL | Op.SHR as op, x, Const(n)) if not 0 <= n < e.dtype.bits:
            if op is Op.SHL or e.dtype.kind == "uint":
                return const(0, e.dtype)  # no bits are left
            return Binary(Op.SHR, x, const(e.dtype.bits - 1, e.dtype))  # the sign is
    return None


@rule(Cast)
def casts(e: Cast, s: Simplifier) -> Expr | None:
    """Constants convert now; a cast to a wider type and back vanishes; two lossless casts become one."""
    x, target = e.a, e.type
    if x.dtype == e.dtype:
        return x
    match x:
        case Const(value) if target.is_bool:
            return const(value != 0, target)  # NaN is not 0
        case Const():
            return cast(target, x)
        case Cast(_, y) if keeps_values(y, x, s):
            return y if y.dtype == e.dtype else Cast(target, y)
        case Select(cond, Const(), Const()) if cond.dtype.lanes == 1:
            return Select(cond, Cast(target, x.then), Cast(target, x.otherwise))
    if target.is_bool and x.dtype.is_int:
        values = s.bounds.of(x)  # bool(x) by range
        if not values.has(0):
            return const(True, e.dtype)
        return const(False, e.dtype) if values.value == 0 else None
    return None


def keeps_values(y: Expr, x: Expr, s: Simplifier) -> bool:
    """Whether casting `y` to the type of `x` keeps every value."""
    a, b = y.dtype, x.dtype
    return not b.is_bool and "bfloat" not in (a.kind, b.kind) and b.holds(a)


@rule(Unary)
def negation(e: Unary, s: Simplifier) -> Expr | None:
    """--x = x and ~~x = x; for floats, too."""
    if isinstance(e.a, Unary) and e.a.op is e.op:
        return e.a.a
    if isinstance(e.a, Const) and e.op is Neg.NEG and e.dtype.is_float:
        return const(-float(e.a.value), e.dtype)
    if isinstance(e.a, Const) and e.op is Neg.NOT and e.dtype.is_int:
        return const(wrap_int(~int(e.a.value), e.dtype), e.dtype)
    return None


@rule(Call, when=scalar_integer)
def powers(e: Call, s: Simplifier) -> Expr | None:
    """x**3 = x*x*x (integers). te writes it so at once; here, exponents that became constants."""
    match e:
        case Call("pow", (Const(a), Const(b))):
            return const(integer_power(int(a), int(b), e.dtype), e.dtype)
        case Call("pow", (x, Const(n))):
            return constant_power(x, n) if n else const(1, e.dtype)
    return None


@rule(Call, when=integer)
def absolute(e: Call, s: Simplifier) -> Expr | None:
    """abs(x) = x for x >= 0 (integers)."""
    if e.name == "abs" and e.dtype.is_int:
        lo = s.bounds.of(e.args[0]).lo
        return e.args[0] if lo is not None and lo >= 0 else None
    return None


INT_LAWS = (fold_integers, divide, remainder, least, bits, casts, negation, powers, absolute)
