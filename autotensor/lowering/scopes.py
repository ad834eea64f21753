"""What is known inside loops and Lets, for passes that walk from the top."""

from __future__ import annotations

from autotensor.ir.bounds import Bounds, Interval
from autotensor.ir.expr import Expr, Var


def in_loop(known: Bounds, var: Var, begin: Expr, extent: Expr) -> Bounds:
    """`known` with the loop variable in begin … begin + extent - 1."""
    first, turns = known.of(begin), known.of(extent)
    last = None if first.hi is None or turns.hi is None else first.hi + turns.hi - 1
    return known.with_range(var, Interval(first.lo, last))


def in_let(known: Bounds, var: Var, value: Expr) -> Bounds:
    """`known` with the variable in the range of its value."""
    return known.with_range(var, known.of(value)) if value.dtype.is_int and value.dtype.lanes == 1 else known
