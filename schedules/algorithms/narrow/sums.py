"""Sums of integers that fit into a narrower type are computed in this type, and widened at the end.

    C[i] = Σ_k select(E[k] <= X[i], 1, 0)          of int64, of 64 terms

        ──▶   C.narrow[i] = Σ_k select(E[k] <= X[i], 1, 0)          of int32
              C[i]        = i64(C.narrow[i])

A vector of narrow sums has more lanes. The result is exact, because sums, differences and products wrap
around in any type, and the number of terms times the range of one term fits. The type is not narrower than
the tensors that are read, because a comparison has as many lanes as its operands.
"""

from __future__ import annotations

from math import prod

from autotensor.base.dtype import DType, int8, int16, int32, uint8, uint16, wrap_int
from autotensor.ir.bounds import Interval, bounds
from autotensor.ir.expr import Binary, Cast, Combiner, Const, Expr, Load, Op, Select, Var, cast, const
from autotensor.ir.func import Buffer
from autotensor.ir.intervals import dtype_interval
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import collect
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp

NAME = "narrow_sums"
TYPES = (uint8, int8, uint16, int16, int32)  # narrowest first


def narrow_sums(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The sum in a narrow type, and the stage that widens it; None if the stage is not a sum of integers, or
    if the sum may not fit."""
    op = stage.op
    if op.combiner is None or op.combiner.name != "sum" or len(op.bodies) != 1 or op.is_open or not op.axes:
        return None
    type_ = _type_of(op)
    if type_ is None:
        return None
    name = fresh(f"{op.name}.narrow", set(state.names))
    (wide,) = op.buffers
    narrow = Buffer(name, wide.shape, type_)
    whole = cast(wide.dtype, Load(narrow, tuple(a.var for a in op.axes)))
    terms = (simplify(_narrowed(op.bodies[0], type_)),)
    return (
        StageOp(name, op.axes, op.reduce_axes, terms, _sum(type_), (narrow,)),
        StageOp(op.name, op.axes, (), (whole,), None, op.buffers, op.tag),
    )


def _type_of(op: StageOp) -> DType | None:
    """The narrowest type for the sum of an op; None if this is the op's own type."""
    (body,) = op.bodies
    if not body.dtype.is_int:
        return None
    term = bounds({a.var: Interval(0, a.extent - 1) for a in op.all_axes}).of(body)
    if term.lo is None or term.hi is None or term.within(Interval(0, 0)):
        return None
    count = prod(a.extent for a in op.reduce_axes)
    total = Interval(min(0, term.lo * count), max(0, term.hi * count))
    least = max((x.dtype.bits for x in _compared(op)), default=8)
    fitting = (t for t in TYPES if t.bits >= least and total.within(dtype_interval(t)))
    return next((t for t in fitting if t.bits < body.dtype.bits), None)


def _compared(op: StageOp) -> list[Load]:
    """The loads of the terms, without the loads in their indices."""
    inner = {x for load in op.loads() for i in load.indices for x in collect(i, Load)}
    return [x for x in op.loads() if x not in inner]


def _sum(t: DType) -> Combiner:
    x, y = Var("lhs0", t), Var("rhs0", t)
    return Combiner("sum", (x,), (y,), (Binary(Op.ADD, x, y),), (const(0, t),))


def _narrowed(e: Expr, t: DType) -> Expr:
    """The low bits of an integer expression, computed from the low bits of its operands."""
    match e:
        case Const(value):
            return const(wrap_int(int(value), t), t)
        case Select(cond, a, b):
            return Select(cond, _narrowed(a, t), _narrowed(b, t))
        case Binary(Op.ADD | Op.SUB | Op.MUL as op, a, b):
            return Binary(op, _narrowed(a, t), _narrowed(b, t))
        case Cast(_, a) if a.dtype.is_int and e.dtype.bits >= t.bits:
            return _narrowed(a, t) if a.dtype.bits > t.bits else cast(t, a)
    return cast(t, e)


ALGORITHMS.add(NAME, Algorithm(NAME, narrow_sums))
