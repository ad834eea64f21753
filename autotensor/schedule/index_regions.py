"""Regions that an index covers while some loops run and others stand still. Arithmetic for `extents.py`.

    x in xo*16 … xo*16 + 15                    Span(16, base xo*16)
    A[2*x + k - 1], k in 0 … 2                 Reach(-1 … 31, base xo*32)

A base is stored in three forms. `base` is an expression, which only lowering needs. `at` is the value of that
expression for one random assignment of numbers to loop variables, modulo a prime. Two bases differ by a
constant exactly when their `at`s do (with an error of one in 10^9), so reads that start together are joined.
Numbers modulo a prime can be divided, so this also holds for half of a base. `step` is a divisor of the base;
0 means that the base is 0.

Every number may be an int, or an int64 array over a population of candidates. All operations here work on
both.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Const, Expr, Op, Var, binary, const
from autotensor.schedule.formulas import elementwise

Number = Any  # int, or int64 array [candidates], or a Formula of these
Truth = Any  # bool, or bool array [candidates], or a Formula of these

NEAR = 1 << 31  # bases whose constant difference is smaller may be joined; random numbers are further apart


# -- numbers -----------------------------------------------------------------------------------------------


@elementwise
def ceil_div(a: Number, b: Number) -> Number:
    return -(-a // b)


def least(a: Number, b: Number) -> Number:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def most(a: Number, b: Number) -> Number:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


def where(cond: Truth, a: Number, b: Number) -> Number:
    return (a if cond else b) if isinstance(cond, bool) else np.where(cond, a, b)


def either(a: Truth, b: Truth) -> Truth:
    return (a or b) if isinstance(a, bool) and isinstance(b, bool) else np.logical_or(a, b)


def both(a: Truth, b: Truth) -> Truth:
    return (a and b) if isinstance(a, bool) and isinstance(b, bool) else np.logical_and(a, b)


def divisor(a: Number, b: Number) -> Number:
    """The greatest common divisor. For 0 and b it is b."""
    return math.gcd(a, b) if isinstance(a, int) and isinstance(b, int) else np.gcd(a, b)


PRIME = (1 << 61) - 1  # a Mersenne prime: multiplying by a power of two rotates the bits


def modular(x: Number) -> Number:
    """The remainder modulo the prime, at least 0."""
    return x % PRIME


@elementwise
def multiplied(at: Number, k: Number) -> Number:
    """at × k modulo the prime. For arrays, 64 bits are enough for all intermediate values."""
    if isinstance(at, int) and isinstance(k, int):
        return at * k % PRIME
    k = modular(k)
    high, low = k >> 31, k & ((1 << 31) - 1)  # k divided into 30 and 31 bits
    return modular(_by_half(_by_half(at, high), 1 << 31) + _by_half(at, low))


def _by_half(at: Number, k: Number) -> Number:
    """The same product for k of at most 31 bits."""
    high, low = at >> 31, at & ((1 << 31) - 1)
    t = modular(high * k)
    turned = (t >> 30) + ((t & ((1 << 30) - 1)) << 31)  # t × 2^31
    return modular(turned + modular(low * k))


def divided(at: Number, c: int) -> Number:
    """The value that stands for a base divided by c, if c divides the base."""
    return multiplied(at, pow(c, -1, PRIME))


@lru_cache(maxsize=4096)
def somewhere(name: str) -> int:
    """The random number that stands for a variable."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % (PRIME - 1) + 1


@elementwise
def scrambled(at: Number, by: Number) -> Number:
    """The number that stands for a quotient or remainder of a base: 0 for 0, else unrelated to the base."""
    mixed = multiplied(at ^ (at >> 29), 0x1F3D5B79A2C4E685) + modular(by * 0x2545F4914F6)
    return where(at == 0, 0, modular(mixed) | 1)


# -- indices -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """A load's index in one dimension: s = `constant` + Σ coefficient × axis, or s // div, or s % mod."""

    steps: Mapping[str, int]  # axis → coefficient (never 0), in order of appearance
    constant: int
    div: int = 0
    mod: int = 0

    @property
    def is_sum(self) -> bool:
        return not self.div and not self.mod

    @property
    def axis(self) -> str | None:
        """The axis that the whole index consists of."""
        alone = self.is_sum and not self.constant and [*self.steps.values()] == [1]
        return next(iter(self.steps)) if alone else None


@lru_cache(maxsize=8192)
def access(e: Expr) -> Access | None:
    """The index as an Access, if it is a sum of axes, or a quotient or remainder of such a sum; else None."""
    match e:
        case Binary(Op.FLOORDIV, a, Const(c)) if c > 0:
            inner = access(a)
            if inner is not None and not inner.mod:
                return Access(inner.steps, inner.constant, max(1, inner.div) * int(c))
        case Binary(Op.MOD, a, Const(c)) if c > 0:
            of = _of_axes(a)
            if of is not None:
                return Access(*of, mod=int(c))
        case Binary(Op.ADD, a, Const(c)):
            inner = access(a)
            if inner is not None and inner.div:  # x // d + c is (x + c*d) // d
                return Access(inner.steps, inner.constant + int(c) * inner.div, inner.div)
    total = _of_axes(e)
    return None if total is None else Access(*total)


def _of_axes(e: Expr) -> tuple[dict[str, int], int] | None:
    """The coefficients and the constant of a sum of axes."""
    a = affine(e)
    steps = {} if a is None else {t.name: k for t, k in a.terms.items() if isinstance(t, Var)}
    return None if a is None or len(steps) < len(a.terms) else (steps, a.constant)


# -- spans and reaches -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """The values of an axis: `extent` numbers, beginning at the base."""

    extent: Number
    at: Number = 0
    step: Number = 0
    base: Expr | None = None
    gap: Number = 1  # the indices differ from the base by multiples of this; 0: they equal the base
    cell: Number = 0  # the needed part lies between two neighbouring multiples of this; 0: none is known


@dataclass(frozen=True, slots=True)
class Reach:
    """The elements that an index touches: base + low … base + top - 1. If `every`, they are not known, and
    may be any elements."""

    low: Number
    top: Number
    at: Number = 0
    step: Number = 0
    base: Expr | None = None
    every: Truth = False
    gap: Number = 1  # as in Span
    cell: Number = 0  # as in Span


EVERYTHING = Reach(0, 1, every=True)


def standing(var: Var, symbolic: bool, ahead: int = 0) -> Span:
    """The span of a loop that stands still, `ahead` iterations further on."""
    base = plus(var, const(ahead)) if symbolic else None
    return Span(1, modular(somewhere(var.name) + ahead), 1, base, 0)


def running(extent: Number, symbolic: bool) -> Span:
    """The span of a loop that runs fully, or of a whole dimension."""
    return Span(extent, 0, 0, const(0) if symbolic else None)


def moved(inner: Span, by: Span) -> Span:
    """A span inside a box, as a span of the whole dimension."""
    base = None if inner.base is None or by.base is None else plus(by.base, inner.base)
    return Span(inner.extent, modular(inner.at + by.at), divisor(inner.step, by.step), base, inner.gap)


def reach(e: Expr, axes: Mapping[str, Span]) -> Reach:
    """The elements that an index touches when its axes run over the given spans."""
    index = access(e)
    if index is not None and index.is_sum:
        return _sum_reach(index, axes)
    match e:
        case Binary(Op.ADD, a, b):
            return _added(reach(a, axes), reach(b, axes))
        case Binary(Op.SUB, a, b):
            return _added(reach(a, axes), _times(reach(b, axes), -1))
        case Binary(Op.MUL, a, Const(c)) | Binary(Op.MUL, Const(c), a):
            return _times(reach(a, axes), int(c))
        case Binary(Op.FLOORDIV, a, Const(c)) if int(c) > 0:
            return _quotient(reach(a, axes), int(c))
        case Binary(Op.MOD, a, Const(c)) if int(c) > 0:
            return _remainder(reach(a, axes), int(c))
        case _:
            return EVERYTHING


def _sum_reach(index: Access, axes: Mapping[str, Span]) -> Reach:
    low: Number = index.constant
    top: Number = index.constant + 1
    at: Number = 0
    step: Number = 0
    gap: Number = 0
    base: Expr | None = None
    for name, k in index.steps.items():
        span = axes.get(name)
        if span is None:
            return EVERYTHING
        width = k * (span.extent - 1)
        low, top = (low + width, top) if k < 0 else (low, top + width)
        at = modular(at + multiplied(span.at, k))
        step = divisor(step, abs(k) * span.step)
        gap = divisor(gap, abs(k) * span.gap)
        if k < 0:  # counted from the other end, which may have been cut off
            gap = divisor(gap, abs(width))
        if span.base is not None:
            base = span_plus(base, scaled(span.base, k))
    return Reach(low, top, at, step, base, gap=gap, cell=axes[index.axis].cell if index.axis else 0)


def span_plus(base: Expr | None, more: Expr) -> Expr:
    return more if base is None else plus(base, more)


def _added(a: Reach, b: Reach) -> Reach:
    base = a.base if b.base is None else span_plus(a.base, b.base)
    at, step = modular(a.at + b.at), divisor(a.step, b.step)
    every, gap = either(a.every, b.every), divisor(a.gap, b.gap)
    return Reach(a.low + b.low, a.top + b.top - 1, at, step, base, every, gap)


def _times(a: Reach, k: int) -> Reach:
    low, top = (a.low * k, (a.top - 1) * k + 1) if k > 0 else ((a.top - 1) * k, a.low * k + 1)
    base = None if a.base is None else scaled(a.base, k)
    if not k:
        return Reach(0, 1)
    gap = abs(k) * (a.gap if k > 0 else divisor(a.gap, a.top - 1 - a.low))
    return Reach(low, top, multiplied(a.at, k), abs(k) * a.step, base, a.every, gap)


def _settled(a: Reach) -> Reach:
    """The same reach with `low` 0: the constant becomes part of the base."""
    base = None if a.base is None else plus(a.base, const(int(a.low)))
    at, step = modular(a.at + a.low), divisor(a.step, abs(a.low))
    return Reach(0, a.top - a.low, at, step, base, a.every, a.gap)


def _quotient(a: Reach, c: int) -> Reach:
    """The quotients of a reach. If c divides the base, they are the quotients of both ends, and the base
    divided by c. Otherwise the base modulo c is a multiple of g and at most c - g, and the last quotient may
    be further by that.

    Steps that are multiples of c do not change the remainder. All values in a cell of c have the same
    quotient.
    """
    alone, whole = _in_cell(a, c), a.step % c == 0
    low, last = a.low // c, (a.top - 1) // c
    b = _settled(a)
    g = where(b.gap % c == 0, c, divisor(b.step, c))
    beyond = (b.top - 1 + c - g) // c
    base = a.base if whole is True else b.base
    return Reach(
        where(whole, low, 0),
        where(whole, where(alone, low, last), where(alone, 0, beyond)) + 1,
        where(whole, divided(a.at, c), scrambled(b.at, c)),
        where(whole, a.step // c, where(b.step % c == 0, b.step // c, 1)),
        None if base is None else binary(Op.FLOORDIV, base, const(c)),
        a.every,
    )


def _in_cell(a: Reach, c: int) -> Truth:
    """Whether the needed part lies between two neighbouring multiples of c."""
    return both(a.cell > 0, c % most(a.cell, 1) == 0)


def _remainder(a: Reach, c: int) -> Reach:
    """The remainders of a reach. If the needed part lies between two multiples of c, they are this part, and
    start anywhere. If the indices differ by multiples of c, there is only one remainder. Otherwise any
    remainder may occur.
    """
    alone = _in_cell(a, c)
    a = _settled(a)
    g = divisor(a.step, c)
    top = where(a.gap % c == 0, 1, a.top)
    fits = both(either(alone, top <= g), _known(a.every))
    still = both(fits, g != c)  # otherwise the base is 0
    base = None
    if a.base is not None:
        base = binary(Op.MOD, a.base, const(c)) if still else const(0)
    at, step = where(still, scrambled(a.at, -c), 0), where(still, g, 0)
    return Reach(0, where(fits, top, c), at, step, base)


def _known(every: Truth) -> Truth:
    return (not every) if isinstance(every, bool) else np.logical_not(every)


def join(a: Reach | None, b: Reach) -> Reach:
    """The smallest reach that holds both. It is everything if the distance of their bases is not known."""
    if a is None:
        return b
    apart = modular(b.at - a.at)
    apart = where(apart > PRIME // 2, apart - PRIME, apart)
    far = either(apart >= NEAR, apart <= -NEAR)
    by = where(far, 0, apart)
    low, top = least(a.low, b.low + by), most(a.top, b.top + by)
    gap = divisor(divisor(a.gap, b.gap), abs(a.low - b.low - by))
    return Reach(low, top, a.at, a.step, a.base, either(far, either(a.every, b.every)), gap)


def clip(r: Reach | None, dim: int, symbolic: bool) -> Span:
    """A reach as a span of a dimension. It is at most the whole dimension."""
    if r is None:
        return running(dim, symbolic)
    size = r.top - r.low
    whole = either(r.every, size >= dim)
    at = where(whole, 0, modular(r.at + r.low))
    step = where(whole, 0, divisor(r.step, abs(r.low)))
    base: Expr | None = None
    if symbolic:
        base = const(0) if whole else plus(const(int(r.low)), r.base)
    return Span(most(where(whole, dim, size), 0), at, step, base, where(whole, 1, r.gap))


def scaled(e: Expr, k: int) -> Expr:
    """e × k, simplified."""
    return e if k == 1 else const(int(e.value) * k) if isinstance(e, Const) else binary(Op.MUL, e, const(k))


def plus(a: Expr, b: Expr | None) -> Expr:
    """a + b, simplified."""
    if b is None or (isinstance(b, Const) and b.value == 0):
        return a
    return b if isinstance(a, Const) and a.value == 0 else binary(Op.ADD, a, b)
