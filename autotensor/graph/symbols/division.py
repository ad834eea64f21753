"""Extents divided by a number, without a remainder at any value of their symbols.

    h * 14 * w + n * 7      by 7    ──▶  h * 2 * w + n        by 2    ──▶  none

Heads of detectors write 14 * h * w numbers and read them as h * w rows of 14.
"""

from __future__ import annotations

from math import gcd

from autotensor.ir.expr import Binary, Const, Expr, Op, const
from autotensor.ir.simplify import simplify


def divided(extent: Expr, by: int) -> Expr | None:
    """The extent divided by a positive number; None if the number is not a factor of it."""
    return simplify(_over(extent, by)) if _factor(extent) % by == 0 else None


def _factor(extent: Expr) -> int:
    """A number of which the extent is a multiple; 0 if the extent is 0."""
    match extent:
        case Const(value=value):
            return abs(int(value))
        case Binary(op=Op.MUL):
            return _factor(extent.a) * _factor(extent.b)
        case Binary(op=Op.ADD | Op.SUB):
            return gcd(_factor(extent.a), _factor(extent.b))
    return 1


def _over(extent: Expr, by: int) -> Expr:
    """The extent divided by a divisor of its factor."""
    match extent:
        case Const(value=value):
            return const(int(value) // by, extent.type)
        case Binary(op=Op.MUL):
            part = gcd(_factor(extent.a), by)
            return _over(extent.a, part) * _over(extent.b, by // part)
        case Binary(op=Op.ADD):
            return _over(extent.a, by) + _over(extent.b, by)
        case Binary(op=Op.SUB):
            return _over(extent.a, by) - _over(extent.b, by)
    return extent


__all__ = ["divided"]
