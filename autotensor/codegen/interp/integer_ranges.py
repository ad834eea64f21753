"""Intervals of scalar integers in a kernel that the interpreter runs. They show where a value may be outside
its type, and where an index may be outside its shape.

    with i in 0..15 and j in 0..3:   ranges.of(i*4 + j)  ──▶  (0, 63)

This module does less than `ir/bounds.py`, which is for passes. It decides which checks the interpreter can
leave out, and the interpreter defines the loop IR. So the module stays small enough to be verified by
reading.
"""

from __future__ import annotations

from autotensor.base.dtype import DType, int64
from autotensor.ir.expr import Binary, Broadcast, Call, Cast, Const, Expr, Neg, Op, Ramp, Select, Unary, Var

Interval = tuple[int, int]


def limits(t: DType) -> Interval:
    """Least and greatest value of an integer type."""
    if t.is_bool:
        return 0, 1
    return (-(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1) if t.kind == "int" else (0, (1 << t.bits) - 1)


class Ranges:
    """Ranges of the variables bound so far, and of expressions over them."""

    def __init__(self) -> None:
        self._ranges: dict[Var, Interval] = {}
        self._known: dict[Expr, Interval] = {}

    def bind(self, var: Var, interval: Interval) -> None:
        if self._ranges.get(var, interval) != interval:
            # bound again elsewhere: ranges derived from the old range are not valid any more
            self._known.clear()
        self._ranges[var] = interval

    def of(self, e: Expr) -> Interval:
        """Bounds of the value as stored: within its type."""
        if not (e.dtype.is_int or e.dtype.is_bool):
            return limits(int64)
        low, high = self.exact(e)
        least, most = limits(e.dtype)
        return (low, high) if least <= low and high <= most else (least, most)

    def exact(self, e: Expr) -> Interval:
        """Bounds of the value before it is wrapped."""
        found = self._known.get(e)
        if found is None:
            found = self._known[e] = self._found(e)
        return found

    def _found(self, e: Expr) -> Interval:
        match e:
            case Const(value):
                return int(value), int(value)
            case Var():
                return self._ranges.get(e, limits(e.dtype))
            case Binary(op, a, b) if e.dtype.is_int:
                return _combine(op, self.of(a), self.of(b), limits(e.dtype))
            case Unary(Neg.NEG, a):
                low, high = self.of(a)
                return -high, -low
            case Unary(Neg.NOT, a) if a.dtype.is_int:
                low, high = self.of(a)
                return ~high, ~low
            case Select(_, a, b):
                x, y = self.of(a), self.of(b)
                return min(x[0], y[0]), max(x[1], y[1])
            case Cast(_, a) if a.dtype.is_int or a.dtype.is_bool:
                return self.of(a)
            case Call("abs", (a,)):
                low, high = self.of(a)
                return 0, max(-low, high)
            case Ramp(base, stride, lanes):
                low, high = self.of(base)
                return low + min(0, stride * (lanes - 1)), high + max(0, stride * (lanes - 1))
            case Broadcast(a):
                return self.of(a)
            case _:
                return limits(e.dtype)


def _combine(op: Op, x: Interval, y: Interval, default: Interval) -> Interval:
    match op:
        case Op.ADD:
            return x[0] + y[0], x[1] + y[1]
        case Op.SUB:
            return x[0] - y[1], x[1] - y[0]
        case Op.MUL:
            corners = [a * b for a in x for b in y]
            return min(corners), max(corners)
        case Op.FLOORDIV if y[0] > 0:
            corners = [a // b for a in x for b in y]
            return min(corners), max(corners)
        case Op.FLOORDIV:  # the least number divided by -1 is outside the type
            most = max(abs(x[0]), abs(x[1]))
            return -most, most
        case Op.MOD if y[0] > 0:
            return x if x[0] >= 0 and x[1] < y[0] else (0, y[1] - 1)
        case Op.MIN:
            return min(x[0], y[0]), min(x[1], y[1])
        case Op.MAX:
            return max(x[0], y[0]), max(x[1], y[1])
        case Op.SHL:
            return default[0] - 1, default[1] + 1  # may be outside the type
        case Op.SHR if y[0] >= 0:
            return min(x[0], 0), max(x[1], 0)
        case Op.AND if x[0] >= 0 and y[0] >= 0:
            return 0, min(x[1], y[1])
        case _:
            return default
