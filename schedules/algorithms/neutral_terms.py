"""A maximum or minimum of terms that have a fixed value if a condition fails: this value is joined only once.

    C[i, j] = max_k select(p[k] == i, u[k, j], -1e30)

        ──▶   C.taken[i, j] = max_k select(p[k] == i, u[k, j], -inf)
              C.count[i]    = Σ_k select(p[k] == i, 1, 0)
              C[i, j]       = select(C.count[i] < n, max(C.taken[i, j], -1e30), C.taken[i, j])

Terms whose condition fails are then neutral, so one pass over the terms can compute all elements. If no
condition fails, the value is not among the terms. The result is the same number, NaN included.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from autotensor.base.dtype import int64
from autotensor.ir.expr import Binary, Combiner, Const, Load, Op, Select, Var, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import StageOp, buffer_over

NAME = "neutral_terms"
_X, _Y = Var("lhs0", int64), Var("rhs0", int64)
_COUNT = Combiner("sum", (_X,), (_Y,), (Binary(Op.ADD, _X, _Y),), (const(0, int64),))


def taken(op: StageOp) -> StageOp | None:
    """The stage with neutral terms if its condition fails. The result is None if these terms are neutral
    already or differ, or if the reduction is not a maximum or minimum."""
    c = op.combiner
    if c is None or c.name not in ("max", "min") or op.has_open_sum or len(op.bodies) != 1:
        return None
    (identity,) = c.identity
    match op.bodies[0]:
        case Select(cond, then, Const() as otherwise) if otherwise != identity and cond.dtype.lanes == 1:
            return replace(op, bodies=(Select(cond, then, identity),))
    return None


def neutral_terms(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    op, neutral = stage.op, taken(stage.op)
    if neutral is None:
        return None
    (body,) = op.bodies
    assert isinstance(body, Select)
    names = set(state.names)
    most = buffer_over(op.axes, fresh(f"{op.name}.taken", names), op.buffers[0].dtype)
    axes = tuple(a for a in op.axes if a.var in free_vars(body.cond))
    terms = tuple(a for a in op.reduce_axes if a.var in free_vars(body.cond))
    count = buffer_over(axes, fresh(f"{op.name}.count", names), int64)
    one = Select(body.cond, const(1, int64), const(0, int64))
    some_fail = Load(count, tuple(a.var for a in axes)) < prod(a.extent for a in terms)
    found = Load(most, tuple(a.var for a in op.axes))
    (x,), (y,), (result,) = op.combiner.lhs, op.combiner.rhs, op.combiner.result  # type: ignore[union-attr]
    joined = Select(some_fail, substitute(result, {x: found, y: body.otherwise}), found)
    return (
        replace(neutral, name=most.name, buffers=(most,)),
        StageOp(count.name, axes, terms, (one,), _COUNT, (count,), op.tag),
        StageOp(op.name, op.axes, (), (joined,), None, op.buffers, op.tag),
    )


ALGORITHMS.add(NAME, Algorithm(NAME, neutral_terms))
