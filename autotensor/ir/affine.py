"""Index expressions as sums: `8*yo + yi + 3` is `{yo: 8, yi: 1} + 3`.

A term is a Var or a sub-expression that is not taken apart (`x // 4`, `min(a, b)`, a load). Every scalar
integer expression has this form, in the worst case with itself as the only term. The sum equals the
expression modulo 2**bits. int64, the type of indices, is assumed never to overflow.

    affine(yo*8 + yi)            the form that lowering, strides and bounds read
    a.divisor                    the greatest number known to divide the value
    to_expr(a, order=loops)      back to an expression, terms in a given order, constant last
    recombine(a)                 k*c*(x//c) + k*(x%c)  ->  k*x
    split_by(a, c)               a = c*quotient + rest
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from autotensor.base.dtype import DType, int64, wrap_int
from autotensor.ir.expr import Binary, Cast, Cmp, Compare, Const, Expr, Load, Neg, Op, Unary, Var, const
from autotensor.ir.visit import contains, free_vars

_LARGE = 1 << 63


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant` + the sum of coefficient × term.

    No coefficient is 0, and terms are in order of appearance.
    """

    terms: Mapping[Expr, int]
    constant: int
    dtype: DType

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, term: Expr) -> int:
        return self.terms.get(term, 0)

    def single(self) -> Expr | None:
        """The term `t` if the sum is exactly `1*t + 0`, else None."""
        if self.constant == 0 and len(self.terms) == 1:
            ((term, k),) = self.terms.items()
            return term if k == 1 else None
        return None

    def opaque_terms(self) -> Iterator[Expr]:
        """Terms that are not plain variables."""
        return (t for t in self.terms if not isinstance(t, Var))

    @property
    def divisor(self) -> int:
        """The greatest number known to divide the value; 0 for the constant 0."""
        return gcd(self.constant, *(k * _divisor(t) for t, k in self.terms.items()))

    def shift(self, k: int) -> Affine:
        return Affine(self.terms, self.constant + k, self.dtype)

    def scale(self, k: int) -> Affine:
        return Affine({t: k * c for t, c in self.terms.items()} if k else {}, k * self.constant, self.dtype)

    def plus(self, other: Affine, k: int = 1) -> Affine:
        """`self + k * other`."""
        terms = dict(self.terms)
        for t, c in other.terms.items():
            total = terms.get(t, 0) + k * c
            if total:
                terms[t] = total
            else:
                terms.pop(t, None)
        return Affine(terms, self.constant + k * other.constant, self.dtype)

    def minus(self, other: Affine) -> Affine:
        return self.plus(other, -1)

    def without(self, term: Expr) -> Affine:
        """The sum without this term."""
        return Affine({t: k for t, k in self.terms.items() if t is not term}, self.constant, self.dtype)


@lru_cache(maxsize=1 << 14)
def affine(expr: Expr) -> Affine | None:
    """The expression as a sum, recombined; None unless it is a scalar integer.

    >>> i = Var("i")
    >>> affine((i + 2) * 8 - i).terms == {i: 7}
    True
    """
    if not expr.dtype.is_int or expr.dtype.lanes != 1:
        return None
    terms: dict[Expr, int] = {}
    constant = gather(expr, 1, terms)
    return recombine(Affine({t: k for t, k in terms.items() if k}, constant, expr.dtype))


def gather(e: Expr, k: int, terms: dict[Expr, int]) -> int:
    """Adds `k * e` to `terms`, in which coefficients may become 0, and returns its constant part."""
    match e:
        case Const(value):
            return k * int(value)
        case Binary(Op.ADD, a, b):
            return gather(a, k, terms) + gather(b, k, terms)
        case Binary(Op.SUB, a, b):
            return gather(a, k, terms) + gather(b, -k, terms)
        case Binary(Op.MUL, a, Const(c)) | Binary(Op.MUL, Const(c), a):
            return gather(a, k * int(c), terms)
        case Binary(Op.SHL, a) if (factor := factor_of(e)) is not None:
            return gather(a, k * factor, terms)
        case Unary(Neg.NEG, a):
            return gather(a, -k, terms)
        case Cast(_, a) if _transparent(e, a):
            return gather(a, k, terms)
    terms[e] = terms.get(e, 0) + k
    return 0


@lru_cache(maxsize=1024)
def excess(cond: Compare) -> Affine | None:
    """A sum that is at most 0 exactly when the comparison holds; None if it does not compare sums."""
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


def without_limits(e: Expr) -> Expr:
    """An index without the constants that limit it: `i + 1` for `max(min(i + 1, 9), 0)`."""
    while isinstance(e, Binary) and e.op in (Op.MIN, Op.MAX) and isinstance(e.b, Const):
        e = e.a
    return e


@lru_cache(maxsize=1 << 14)  # an unrolled loop simplifies its indices once for each copy
def summands(e: Expr) -> tuple[tuple[tuple[Expr, int], ...], int]:
    """The parts of a sum as they are written, each with its factor, and the total of the sum's constants.

    A product is one part, unless one factor is constant. A multiple of a sum of data is one part, too,
    because taking (x + y)*3 apart would multiply twice.
    """
    parts: list[tuple[Expr, int]] = []
    constant = _take_apart(e, 1, parts)
    return tuple(parts), constant


def _take_apart(e: Expr, k: int, parts: list[tuple[Expr, int]]) -> int:
    """Adds the parts of `k * e` to `parts`, and returns the constant of `k * e`."""
    if isinstance(e, Const):
        return k * int(e.value)
    if isinstance(e, Binary):
        op, a, b = e.op, e.a, e.b
        if op is Op.ADD:
            return _take_apart(a, k, parts) + _take_apart(b, k, parts)
        if op is Op.SUB:
            return _take_apart(a, k, parts) + _take_apart(b, -k, parts)
        if op is Op.MUL:
            a, b = (b, a) if isinstance(a, Const) else (a, b)
            if isinstance(b, Const) and (e.dtype == int64 or not is_sum(a)):
                return _take_apart(a, k * int(b.value), parts)
        elif op is Op.SHL and (factor := factor_of(e)) is not None:
            return _take_apart(a, k * factor, parts)
    elif isinstance(e, Unary) and e.op is Neg.NEG:
        return _take_apart(e.a, -k, parts)
    parts.append((e, k))
    return 0


def is_sum(e: Expr) -> bool:
    """Whether `e` is a sum, difference, product, shift by a constant or negation of scalar integers."""
    if isinstance(e, Binary):
        op = e.op
        if op is Op.ADD or op is Op.SUB or op is Op.MUL or (op is Op.SHL and factor_of(e) is not None):
            return e.dtype.is_int and e.dtype.lanes == 1
        return False
    return isinstance(e, Unary) and e.op is Neg.NEG and e.dtype.is_int and e.dtype.lanes == 1


def factor_of(shift: Expr) -> int | None:
    """The factor of a shift to the left; None if the shift is not constant, or shifts out all bits."""
    match shift:
        case Binary(Op.SHL, _, Const(c)) if 0 <= int(c) < shift.dtype.bits:
            return 1 << int(c)
    return None


def _transparent(e: Expr, a: Expr) -> bool:
    """Whether the sum of a cast's operand is also the sum of the cast.

    This holds for narrowing, modulo 2**bits. It also holds for widening of signed 32-bit arithmetic without
    loads: that is an index, and it was narrowed only because its values fit.
    """
    source, target = a.dtype, e.dtype
    if not source.is_int or source.kind == "uint":
        return False
    if target.bits <= source.bits:
        return True
    return source.bits >= 32 and not isinstance(a, Var) and not contains(a, Load)


# -- the law x = c*(x//c) + x%c ------------------------------------------------------------------------------
def recombine(a: Affine) -> Affine:
    """Joins quotients and remainders of one value: `k*c*(x//c) + k*(x%c)` is `k*x`, for nested ones, too."""
    while True:
        step = _recombine_once(a)
        if step is None:
            return a
        a = step


def _recombine_once(a: Affine) -> Affine | None:
    for term, k in a.terms.items():
        match term:
            case Binary(Op.MOD, x, Const(c)) if c > 0:
                quotient = floordiv_term(x, int(c))
                if a.terms.get(quotient) == k * int(c):
                    return _replaced(a, (term, quotient), x, k)
                joined = _join_remainders(a, term, k, quotient)
                if joined is not None:
                    return joined
            case Binary(Op.FLOORDIV, x, Const(c)) if c > 0 and k % c == 0 and a.terms.get(x) == -k // int(c):
                remainder = Binary(Op.MOD, x, term.b)  # m*x - m*c*(x//c) = m*(x%c)
                return _replaced(a, (term, x), remainder, -k // int(c))
    return None


def _join_remainders(a: Affine, term: Binary, k: int, quotient: Expr) -> Affine | None:
    """k*(x%c) + k*c*(x//c % b) = k*(x % (b*c))."""
    x, c = term.a, int(term.b.value)  # type: ignore[attr-defined]
    for other, n in a.terms.items():
        match other:
            case Binary(Op.MOD, y, Const(b)) if y is quotient and n == k * c and other is not term:
                if not fits(int(b) * c, x.dtype):
                    continue
                whole = Binary(Op.MOD, x, const(int(b) * c, x.dtype))
                return _replaced(a, (term, other), whole, k)
    return None


def _replaced(a: Affine, old: tuple[Expr, Expr], new: Expr, k: int) -> Affine:
    """The sum with k*new in place of the first of the terms `old`, and without the second."""
    terms: dict[Expr, int] = {}
    constant, done = a.constant, False
    for t, n in a.terms.items():
        if t is not old[0] and t is not old[1]:
            terms[t] = terms.get(t, 0) + n
        elif not done:
            constant += gather(new, k, terms)
            done = True
    return Affine({t: n for t, n in terms.items() if n}, constant, a.dtype)


def fits(value: int, dtype: DType) -> bool:
    """Whether the type can hold a positive number."""
    return 0 < value == wrap_int(value, dtype)


def floordiv_term(x: Expr, c: int) -> Expr:
    """`x // c` with nested quotients merged: (y // b) // c = y // (b*c) for positive b, c."""
    match x:
        case Binary(Op.FLOORDIV, y, Const(b)) if b > 0 and fits(int(b) * c, x.dtype):
            return Binary(Op.FLOORDIV, y, const(int(b) * c, x.dtype))
    return Binary(Op.FLOORDIV, x, const(c, x.dtype))


# -- division ------------------------------------------------------------------------------------------------
def split_by(a: Affine, c: int) -> tuple[Affine, Affine]:
    """(quotient, rest) with a = c*quotient + rest. The rest has the terms that c does not divide.

    The constant of the rest is in 0..c-1. So `a // c = quotient + rest // c` and `a % c = rest % c` for every
    c > 0.
    """
    whole = {t: k // c for t, k in a.terms.items() if k % c == 0}
    part = {t: k for t, k in a.terms.items() if k % c}
    return Affine(whole, a.constant // c, a.dtype), Affine(part, a.constant % c, a.dtype)


def _divisor(term: Expr) -> int:
    """The greatest number known to divide a term of a sum."""
    match term:
        case Binary(Op.MIN | Op.MAX | Op.MOD | Op.XOR, a, b):
            x, y = affine(a), affine(b)
            if x is not None and y is not None:
                both = gcd(x.divisor, y.divisor)
                return both if term.op is not Op.XOR else both & -both  # bits that are 0 in both
        case Binary(Op.MUL, a, b):
            x, y = affine(a), affine(b)
            return 1 if x is None or y is None else x.divisor * y.divisor
    return 1


def stride(index: Expr, var: Var) -> int | None:
    """The growth of `index` when `var` grows by one; None if it is not a constant.

    >>> i, j = Var("i"), Var("j")
    >>> stride(i * 8 + j, i), stride(i * 8 + j, Var("k")), stride(i // 2, i)
    (8, 0, None)
    """
    a = affine(index)
    if a is None or any(var in free_vars(t) for t in a.opaque_terms()):
        return None
    return a.coefficient(var)


def is_multiple(e: Expr, n: int) -> bool:
    """Whether a scalar index is surely a multiple of n.

    >>> i = Var("i")
    >>> is_multiple(i * 8 + 4, 4), is_multiple(i * 8 + 4, 8)
    (True, False)
    """
    a = affine(e)
    return a is not None and a.divisor % n == 0


# -- back to expressions -------------------------------------------------------------------------------------
def to_expr(a: Affine, order: Iterable[Expr] | None = None) -> Expr:
    """The sum as an expression: the terms in `order`, then the others as they appeared, then the constant.

    If any part of the sum is positive, the text does not begin with a minus.
    """
    dtype = a.dtype
    if not a.terms:
        return _number(a.constant, dtype)
    if dtype is int64:
        items, constant = list(a.terms.items()), a.constant
    else:
        items = [(t, k) for t, k in ((t, _in_type(k, dtype)) for t, k in a.terms.items()) if k]
        constant = _in_type(a.constant, dtype)
    if order is not None:
        rank = {t: n for n, t in enumerate(order)}
        items.sort(key=lambda item: rank.get(item[0], len(rank)))
    lead = next((n for n, (_, k) in enumerate(items) if k > 0), 0)
    if not items or (items[lead][1] < 0 and constant > 0):  # 17 - i*8
        out: Expr = _number(constant, dtype)
        constant = 0
    else:
        term, k = items.pop(lead)
        term = _of_type(term, dtype)
        out = Unary(Neg.NEG, term) if k == -1 else _times(term, k)
    for term, k in items:
        out = _plus(out, _of_type(term, dtype), k)
    return _plus(out, _number(1, dtype), constant) if constant else out


def _number(k: int, dtype: DType) -> Expr:
    """k modulo 2**bits as a constant."""
    return Const(k, dtype) if dtype is int64 and -_LARGE < k < _LARGE else const(wrap_int(k, dtype), dtype)


def _in_type(k: int, dtype: DType) -> int:
    """k if the type can represent it, else k modulo 2**bits."""
    return k if dtype.bits == 64 or abs(k) < 1 << (dtype.bits - 1) else wrap_int(k, dtype)


def _plus(out: Expr, term: Expr, k: int) -> Expr:
    """`out + k*term`, written as a subtraction for negative k.

    The least number of a type has no positive counterpart, so it stays a sum.
    """
    if k > 0 or (term.dtype.kind == "int" and -k >> (term.dtype.bits - 1)):
        return Binary(Op.ADD, out, _times(term, k))
    return Binary(Op.SUB, out, _times(term, -k))


def _times(term: Expr, k: int) -> Expr:
    if k == 1:
        return term
    number = _number(k, term.dtype)
    return number if isinstance(term, Const) else Binary(Op.MUL, term, number)


def _of_type(term: Expr, dtype: DType) -> Expr:
    return term if term.dtype is dtype else Cast(dtype, term)
