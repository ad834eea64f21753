"""In sums of products of 16-bit floats in float32, each operand is converted once instead of in every step.

    C[i, j] = Σ_k f32(A[i, k]) * f32(W[k, j])

        ──▶   A.to_float32[i, k] = f32(A[i, k])
              W.to_float32[k, j] = f32(W[k, j])         prepared, if W is constant
              C[i, j]            = Σ_k A.to_float32[i, k] * W.to_float32[k, j]

float32 represents every 16-bit float exactly, so terms and sums do not change.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from autotensor.base.dtype import float32
from autotensor.ir.expr import Binary, Cast, Load, Op, cast
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp
from schedules.algorithms.converted_tensor import converted

NAME = "widened_floats"


def widened_floats(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """Copies of both operands and the sum over them; None for any other stage."""
    op = stage.op
    if op.combiner is None or op.combiner.name != "sum" or len(op.bodies) != 1:
        return None
    match op.bodies[0]:
        case Binary(Op.MUL, Cast(_, Load(_, _, None) as a) as left, Cast(_, Load(_, _, None) as b)):
            if left.dtype != float32 or not (a.dtype.is_half and b.dtype.is_half) or a.buffer is b.buffer:
                return None
        case _:
            return None
    names, made, wide = set(state.names), [], []
    for load in (a, b):
        made.append(converted(load.buffer, "to_float32", partial(cast, float32), names))
        wide.append(Load(made[-1].buffers[0], load.indices))
    return (*made, replace(op, bodies=(Binary(Op.MUL, *wide),)))


ALGORITHMS.add(NAME, Algorithm(NAME, widened_floats))
