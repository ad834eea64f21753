"""Flat indices taken apart: constant + Σ coefficient·term, and the lanes of vector indices.

    (io*14 + 3)*1024 + k            ──▶  Affine(3072, {io: 14336, k: 1})
    Ramp(j*32 + 16, 1, 16)          ──▶  Affine(16, {j: 32}), offsets 0, 1, … 15

Terms are loop variables or opaque sub-expressions. Addresses are built from this (memory.py), outermost
term first and the constant last, so that rows of a register tile share one base register and differ in the
displacement only.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import gcd

from autotensor.ir.expr import Binary, Broadcast, Cast, Const, Expr, Load, Op, Ramp, Var
from autotensor.ir.visit import any_node


@dataclass(frozen=True, slots=True)
class Affine:
    """An integer expression as `constant + Σ terms`; no term has coefficient 0."""

    constant: int
    terms: dict[Expr, int]

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        if not other.terms:
            return Affine(self.constant + factor * other.constant, self.terms)
        terms = dict(self.terms)
        for term, c in other.terms.items():
            new = terms.get(term, 0) + factor * c
            if new:
                terms[term] = new
            else:
                terms.pop(term, None)
        return Affine(self.constant + factor * other.constant, terms)

    def times(self, factor: int) -> Affine:
        if factor == 0:
            return Affine(0, {})
        return Affine(self.constant * factor, {t: c * factor for t, c in self.terms.items()})

    def divisor(self) -> int:
        """The greatest number known to divide the value; 0 for the constant 0."""
        return gcd(self.constant, *self.terms.values())


def affine(e: Expr, memo: dict[Expr, Affine]) -> Affine:
    """A scalar integer expression taken apart."""
    found = memo.get(e)
    if found is None:
        found = memo[e] = _affine(e, memo)
    return found


def _affine(e: Expr, memo: dict[Expr, Affine]) -> Affine:
    match e:
        case Const(value):
            return Affine(int(value), {})
        case Binary(Op.ADD, a, b):
            return affine(a, memo).plus(affine(b, memo))
        case Binary(Op.SUB, a, b):
            return affine(a, memo).plus(affine(b, memo), -1)
        case Binary(Op.MUL, a, b):
            x, y = affine(a, memo), affine(b, memo)
            if not y.terms:
                return x.times(y.constant)
            if not x.terms:
                return y.times(x.constant)
        case Binary(Op.SHL, a, Const(value)) if 0 <= int(value) < 63:
            return affine(a, memo).times(1 << int(value))
    return Affine(0, {e: 1})


def lanes_of(e: Expr, memo: dict[Expr, Affine]) -> tuple[Affine, tuple[int, ...]] | None:
    """A vector index as a scalar base and one constant offset per lane; None when it has no such form."""
    n = e.dtype.lanes
    match e:
        case Ramp(base, stride, count):
            return affine(base, memo), tuple(k * stride for k in range(count))
        case Broadcast(a, count):
            return affine(a, memo), (0,) * count
        case Binary((Op.ADD | Op.SUB) as op, a, b):
            x, y = lanes_of(a, memo), lanes_of(b, memo)
            if x is None or y is None:
                return None
            sign = 1 if op is Op.ADD else -1
            return x[0].plus(y[0], sign), tuple(p + sign * q for p, q in zip(x[1], y[1], strict=True))
        case Binary(Op.MUL, a, b):
            x, y = lanes_of(a, memo), lanes_of(b, memo)
            for p, q in ((x, y), (y, x)):
                if p is not None and q is not None and not q[0].terms and len(set(q[1])) == 1:
                    factor = q[0].constant + q[1][0]
                    return p[0].times(factor), tuple(factor * o for o in p[1])
            return None
        case Binary((Op.FLOORDIV | Op.MOD) as op, a, b):
            x, c = lanes_of(a, memo), positive_constant(b)
            if x is None or c is None or any(k % c for k in x[0].terms.values()):
                return None
            places = tuple(x[0].constant + o for o in x[1])
            if op is Op.MOD:
                return Affine(0, {}), tuple(p % c for p in places)
            return Affine(0, {t: k // c for t, k in x[0].terms.items()}), tuple(p // c for p in places)
    return (affine(e, memo), (0,)) if n == 1 else None


def not_negative(e: Expr, known: Collection[Expr]) -> bool:
    """Whether a scalar or vector index is certainly >= 0, given variables that are; cheap and incomplete."""
    match e:
        case Const(value):
            return int(value) >= 0
        case Var():
            return e in known
        case Binary(Op.ADD | Op.MUL, a, b):  # sums of data may wrap around
            small = e.dtype.kind == "uint" or not any_node(e, lambda n: isinstance(n, (Cast, Load)))
            return small and not_negative(a, known) and not_negative(b, known)
        case Binary(Op.MIN | Op.AND | Op.SHR, a, b):
            return not_negative(a, known) and not_negative(b, known)
        case Binary(Op.MAX, a, b):
            return not_negative(a, known) or not_negative(b, known)
        case Binary(Op.MOD, _, b):
            return positive_constant(b) is not None
        case Binary(Op.FLOORDIV, a, b):
            return positive_constant(b) is not None and not_negative(a, known)
        case Broadcast(a, _):
            return not_negative(a, known)
        case Ramp(base, stride, _):
            return stride >= 0 and not_negative(base, known)
        case Cast(type=t, a=a):
            return a.dtype.kind in ("uint", "bool") and t.bits > a.dtype.bits
    return e.dtype.kind == "uint"


def below(e: Expr, n: int) -> bool:
    """Whether an integer is certainly in 0 … n - 1; cheap and incomplete."""
    match e:
        case Broadcast(a, _):
            return below(a, n)
        case Const(value):
            return 0 <= int(value) < n
        case Binary(Op.AND, a, b):
            return below(a, n) or below(b, n)
        case Binary(Op.MOD, _, b):
            return (positive_constant(b) or n + 1) <= n
        case Binary(Op.MIN, a, b):
            return (below(a, n) and not_negative(b, ())) or (below(b, n) and not_negative(a, ()))
    return False


def positive_constant(e: Expr) -> int | None:
    """The value of a constant, possibly in all lanes, when it is > 0."""
    if isinstance(e, Broadcast):
        e = e.a
    if isinstance(e, Const) and e.dtype.is_int and int(e.value) > 0:
        return int(e.value)
    return None
