"""Short sums of products of bytes are computed in float32, which holds every sum exactly.

    C[y, x, c] = Σ_{p, q} (X[y + p, x + q, c] - z) * (W[c, p, q] - v)               of int32

        ──▶   W.floats[c, p, q] = f32(W[c, p, q] - v)                               prepared, if W is constant
              C.floats[y, x, c] = Σ_{p, q} f32(X[y + p, x + q, c] - z) * W.floats[c, p, q]
              C[y, x, c]        = i32(C.floats[y, x, c])

This is for stages to which no dot instruction applies (a depthwise convolution sums over no channels). A
product of 32 bits and an addition are two instructions, and one of them is slow. A fused multiply-add of
floats is one instruction. The sums stay below 2^24. Up to this size, float32 represents every integer, so
nothing is rounded, whatever the order of the terms.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from autotensor.base.dtype import float32, int32
from autotensor.ir.expr import Binary, Cast, Combiner, Const, Expr, Load, Op, Var, cast, const
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import StageOp, buffer_over
from schedules.algorithms.converted_tensor import converted
from schedules.algorithms.narrow_products import Factor, factor

NAME = "float_sums"
EXACT = 1 << 24  # up to this, float32 represents every integer
_X, _Y = Var("lhs0", float32), Var("rhs0", float32)
_SUM = Combiner("sum", (_X,), (_Y,), (Binary(Op.ADD, _X, _Y),), (const(0.0, float32),))


def float_sums(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The three stages; None if a sum may be too large, or if the stage is not a sum of products of bytes."""
    op = stage.op
    if op.combiner is None or op.combiner.name != "sum" or len(op.bodies) != 1 or not op.axes:
        return None
    match op.bodies[0]:
        case Binary(Op.MUL, a, b) if op.buffers[0].dtype == int32:
            found = factor(op, a), factor(op, b)
        case _:
            return None
    sizes = [0 if f is None else _furthest(f) for f in found]
    if 0 in sizes or prod(sizes) * prod(r.extent for r in op.reduce_axes) >= EXACT:
        return None
    names = set(state.names)
    made: list[StageOp] = []
    terms: list[Expr] = []
    known = state.dag.constants
    for f in found:
        assert f is not None
        if f.load.buffer.name in known:
            made.append(converted(f.load.buffer, "floats", partial(_float, f.zero), names))
            terms.append(Load(made[-1].buffers[0], f.load.indices))
        else:
            terms.append(_float(f.zero, f.load))
    floats = buffer_over(op.axes, fresh(f"{op.name}.floats", names), float32)
    body = Binary(Op.MUL, *terms)
    total = StageOp(floats.name, op.axes, op.reduce_axes, (body,), _SUM, (floats,))
    back = cast(int32, Load(floats, tuple(a.var for a in op.axes)))
    return *made, total, StageOp(op.name, op.axes, (), (back,), None, op.buffers, op.tag)


def _furthest(f: Factor) -> int:
    """The largest absolute value of a factor; 0 if it is not known."""
    if not isinstance(f.zero, Const):
        return 0
    limits = np.iinfo(f.load.buffer.dtype.numpy)
    return max(abs(int(limits.min) - int(f.zero.value)), abs(int(limits.max) - int(f.zero.value)))


def _float(zero: Expr, load: Load) -> Expr:
    return Cast(float32, Factor(load, zero).value)


ALGORITHMS.add(NAME, Algorithm(NAME, float_sums))
