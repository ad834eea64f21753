"""A condition that is the same for all terms of a sum is tested once, after the sum.

    P[i, j] = Σ_k select(j <= i, A[i, k] * A[j, k], 0)

        ──▶   P.all[i, j] = Σ_k A[i, k] * A[j, k]
              P[i, j]     = select(j <= i, P.all[i, j], 0)

This is right for any reduction, because the initial value stays if no term is joined. The loads of all terms
must be safe even if the condition fails. Lowering leaves out tiles of the sum that no condition selects
(`skip_unread`).
"""

from __future__ import annotations

from dataclasses import replace

from autotensor.ir.bounds import Interval, bounds
from autotensor.ir.expr import Cmp, Compare, Expr, Load, Select, const
from autotensor.ir.visit import collect, free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import StageOp, buffer_over

NAME = "late_choice"


def late_choice(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The sum of all terms, and the stage with the condition; None if terms have different conditions, or are
    not safe to load."""
    op = stage.op
    if op.combiner is None or len(op.bodies) != 1 or op.has_open_sum:
        return None
    match op.bodies[0]:
        case Select(cond, then, otherwise) if otherwise is op.combiner.identity[0]:
            if _summed(op, cond) or not is_safe(op, then):
                return None
        case _:
            return None
    name = fresh(f"{op.name}.all", set(state.names))
    every = buffer_over(op.axes, name, op.buffers[0].dtype)
    taken = Select(cond, Load(every, tuple(a.var for a in op.axes)), otherwise)
    return (
        replace(op, name=name, bodies=(then,), buffers=(every,)),
        StageOp(op.name, op.axes, (), (taken,), None, op.buffers, op.tag),
    )


def _summed(op: StageOp, cond: Expr) -> bool:
    return bool({v.name for v in free_vars(cond)} & {a.name for a in op.reduce_axes})


def is_safe(op: StageOp, e: Expr) -> bool:
    """Whether every load of an expression is inside its tensor at all points."""
    known = bounds({a.var: Interval(0, a.extent - 1) for a in op.all_axes})
    return all(
        known.decide(Compare(Cmp.GE, index, const(0, index.dtype))) is True
        and known.decide(Compare(Cmp.LT, index, const(extent, index.dtype))) is True
        for load in collect(e, Load)
        for index, extent in zip(load.indices, load.buffer.shape, strict=True)
    )


ALGORITHMS.add(NAME, Algorithm(NAME, late_choice))
