"""The number of operations that a stage really executes at one point.

    select(p == 0, a + b, select(p == 1, a - b, a))      2 of 3 rows add: 2/3 of an operation

A choice between rows by position, as in transforms, costs only one row, because the other rows vanish when
positions are unrolled. A repeated subexpression is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from autotensor.ir.expr import Binary, Call, Cmp, Compare, Expr, Load, Op, Select
from autotensor.ir.visit import contains
from autotensor.te.stage import StageOp, distinct_operations, evaluated

ROOTS = ("sqrt", "rsqrt")  # a root takes as long as a division
SINGLE = ("abs", "floor", "ceil", "round", "trunc")  # each of these functions is one instruction


@dataclass(frozen=True, slots=True)
class SlowWork:
    """Operations of one point that take many times as long as an addition."""

    divisions: int = 0  # divisions and square roots of floats
    calls: int = 0  # calls of functions of one number (exp)


NO_SLOW_WORK = SlowWork()


@lru_cache(maxsize=4096)
def slow_work(bodies: tuple[Expr, ...]) -> SlowWork:
    """The slow work of a stage's bodies. A repeated subexpression counts once."""
    divisions = calls = 0
    for e in evaluated(bodies):
        match e:
            case Binary(Op.DIV) if e.dtype.is_float:
                divisions += 1
            case Call(name) if name in ROOTS:
                divisions += 1
            case Call(name) if name not in SINGLE:
                calls += 1
    return SlowWork(divisions, calls)


def executed(op: StageOp) -> float:
    """The number of floating-point operations of one point, including joins."""
    return sum(_executed(body) for body in op.bodies) + op.joins()


@lru_cache(maxsize=4096)
def _executed(body: Expr) -> float:
    rows = _rows(body)
    if len(rows) == 1:
        return float(distinct_operations(body))
    return sum(_executed(row) for row in rows) / len(rows)


def _rows(body: Expr) -> list[Expr]:
    """The alternatives of a chain of choices by position; the body itself if there is no chain."""
    rows = []
    while isinstance(body, Select) and _is_position(body.cond):
        rows.append(body.then)
        body = body.otherwise
    return [*rows, body]


def _is_position(cond: Expr) -> bool:
    return (
        isinstance(cond, Compare) and cond.op is Cmp.EQ and cond.a.dtype.is_int and not contains(cond, Load)
    )
