"""Intervals of integers, and the arithmetic of operators on intervals, which `bounds` uses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from autotensor.base.dtype import DType
from autotensor.ir.expr import Op, Var


class Interval(NamedTuple):
    """The integers from `lo` to `hi`, both included; None means unbounded."""

    lo: int | None
    hi: int | None

    def __str__(self) -> str:
        return f"[{'-inf' if self.lo is None else self.lo}, {'inf' if self.hi is None else self.hi}]"

    @property
    def value(self) -> int | None:
        """The only member, if there is exactly one."""
        return self.lo if self.lo == self.hi else None

    def has(self, x: int) -> bool:
        return (self.lo is None or self.lo <= x) and (self.hi is None or x <= self.hi)

    def within(self, other: Interval) -> bool:
        return (other.lo is None or (self.lo is not None and self.lo >= other.lo)) and (
            other.hi is None or (self.hi is not None and self.hi <= other.hi)
        )

    def meet(self, other: Interval) -> Interval:
        """The members of both intervals.

        No interval is empty: in code that is never reached, this is `self`.
        """
        lo = other.lo if self.lo is None else self.lo if other.lo is None else max(self.lo, other.lo)
        hi = other.hi if self.hi is None else self.hi if other.hi is None else min(self.hi, other.hi)
        return self if lo is not None and hi is not None and lo > hi else Interval(lo, hi)

    def hull(self, other: Interval) -> Interval:
        """The least interval that contains both."""
        lo = None if self.lo is None or other.lo is None else min(self.lo, other.lo)
        hi = None if self.hi is None or other.hi is None else max(self.hi, other.hi)
        return Interval(lo, hi)

    def plus(self, other: Interval) -> Interval:
        lo = None if self.lo is None or other.lo is None else self.lo + other.lo
        hi = None if self.hi is None or other.hi is None else self.hi + other.hi
        return Interval(lo, hi)

    def shift(self, k: int) -> Interval:
        return Interval(None if self.lo is None else self.lo + k, None if self.hi is None else self.hi + k)

    def times(self, k: int) -> Interval:
        if k == 0:
            return Interval(0, 0)
        lo, hi = (self.lo, self.hi) if k > 0 else (self.hi, self.lo)
        return Interval(None if lo is None else lo * k, None if hi is None else hi * k)


Ranges = Mapping[Var, Interval]

EVERYTHING = Interval(None, None)
BOOL = Interval(0, 1)
LONG = Interval(-(1 << 63), (1 << 63) - 1)  # all values of int64 data
NO_RANGES: Ranges = {}


@lru_cache(maxsize=64)
def dtype_interval(dtype: DType) -> Interval:
    """All values of the type. int64 counts as unbounded: indices never overflow; `bounds` handles data."""
    if dtype.is_bool:
        return BOOL
    if not dtype.is_int or (dtype.bits == 64 and dtype.kind == "int"):
        return EVERYTHING
    if dtype.kind == "uint":
        return Interval(0, (1 << dtype.bits) - 1)
    return Interval(-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)


def wrapped(i: Interval, dtype: DType) -> Interval:
    """`i` if the type holds all of it.

    Otherwise the whole range of the type, as the value may have wrapped.
    """
    whole = dtype_interval(dtype.element)
    return i if whole is EVERYTHING or i.within(whole) else whole


# -- operators on intervals ----------------------------------------------------------------------------------
def binary_interval(op: Op, a: Interval, b: Interval) -> Interval:
    """All `x op y` for x in a, y in b, as mathematical integers."""
    match op:
        case Op.ADD:
            return a.plus(b)
        case Op.SUB:
            return a.plus(b.times(-1))
        case Op.MUL:
            return _product(a, b)
        case Op.FLOORDIV:
            return _quotient(a, b)
        case Op.MOD:
            return _remainder(a, b)
        case Op.MIN:
            hi = a.hi if b.hi is None else b.hi if a.hi is None else min(a.hi, b.hi)
            return Interval(None if a.lo is None or b.lo is None else min(a.lo, b.lo), hi)
        case Op.MAX:
            lo = a.lo if b.lo is None else b.lo if a.lo is None else max(a.lo, b.lo)
            return Interval(lo, None if a.hi is None or b.hi is None else max(a.hi, b.hi))
        case Op.AND:
            return _bit_and(a, b)
        case Op.OR | Op.XOR:
            if a.lo is None or b.lo is None or a.hi is None or b.hi is None or a.lo < 0 or b.lo < 0:
                return EVERYTHING
            return Interval(0, (1 << max(a.hi, b.hi).bit_length()) - 1)
        case Op.SHL if b.value is not None and 0 <= b.value < 64:
            return a.times(1 << b.value)
        case Op.SHR if b.value is not None and 0 <= b.value < 64:
            return _quotient(a, Interval(1 << b.value, 1 << b.value))
    return EVERYTHING


def _product(a: Interval, b: Interval) -> Interval:
    if b.value is not None:
        return a.times(b.value)
    if a.value is not None:
        return b.times(a.value)
    if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
        positive = a.lo is not None and b.lo is not None and a.lo >= 0 and b.lo >= 0
        return Interval(a.lo * b.lo if positive else None, None)  # type: ignore[operator]
    corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return Interval(min(corners), max(corners))


def _quotient(a: Interval, b: Interval) -> Interval:
    if b.lo is None or b.hi is None or (b.lo <= 0 <= b.hi):
        return EVERYTHING
    c = b.value
    if c is not None:
        lo, hi = (a.lo, a.hi) if c > 0 else (a.hi, a.lo)
        return Interval(None if lo is None else lo // c, None if hi is None else hi // c)
    if a.lo is None or a.hi is None:
        return EVERYTHING
    corners = [x // y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return Interval(min(corners), max(corners))


def _remainder(a: Interval, b: Interval) -> Interval:
    c = b.value
    if c is not None and c != 0 and a.lo is not None and a.hi is not None and a.lo // c == a.hi // c:
        return Interval(a.lo % c, a.hi % c) if a.lo <= a.hi else Interval(0, 0)
    if b.lo is not None and b.lo > 0:
        hi = None if b.hi is None else b.hi - 1
        if a.lo is not None and a.lo >= 0 and a.hi is not None:
            hi = a.hi if hi is None else min(hi, a.hi)
        return Interval(0, hi)
    if b.hi is not None and b.hi < 0:
        return Interval(None if b.lo is None else b.lo + 1, 0)
    return EVERYTHING


def _bit_and(a: Interval, b: Interval) -> Interval:
    """A non-negative operand bounds the result."""
    tops = [i.hi for i in (a, b) if i.lo is not None and i.lo >= 0]
    if not tops:
        return EVERYTHING
    known = [t for t in tops if t is not None]
    return Interval(0, min(known) if known else None)
