"""A running reduction becomes a recurrence, whose steps can be joined.

    C[i, j] = Σ_k select(k <= i, x[k, j], 0)   ──▶   C[0, j] = x[0, j];  C[i, j] = C[i-1, j] + x[i, j]

The reduction must run along the first axis, from its beginning.
"""

from __future__ import annotations

from autotensor.ir.expr import Expr, Load, Select
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp
from autotensor.te.scan import before_of
from autotensor.te.terms import carried, running

NAME = "recurrence"


def recurrence(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The stage as steps, each computed from the step before it; None if it is not a running reduction."""
    op, found = stage.op, running(stage.op)
    if found is None or found.reverse or op.axes[0].name != found.axis:
        return None
    combiner, (k,) = op.combiner, op.reduce_axes
    assert combiner is not None
    t, *rest = (a.var for a in op.axes)
    buffers = [Buffer(before_of(b.name), b.shape, b.dtype) for b in op.buffers]
    before: list[Expr] = [Load(b, (t - 1, *rest)) for b in buffers]
    terms = [substitute(b, {k.var: t - 1 if found.exclusive else t}) for b in carried(op).bodies]
    first = combiner.identity if found.exclusive else terms
    swap = dict(zip((*combiner.lhs, *combiner.rhs), (*before, *terms), strict=True))
    later = [substitute(r, swap) for r in combiner.result]
    bodies = tuple(Select(t < 1, a, b) for a, b in zip(first, later, strict=True))
    return (StageOp(op.name, op.axes, (), bodies, None, op.buffers, op.tag),)


ALGORITHMS.add(NAME, Algorithm(NAME, recurrence))
