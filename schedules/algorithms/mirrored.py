"""A reduction that stays what it is when two of its axes are exchanged is made for one half of their places.

    P[i, j] = Σ_k C[k, i] * C[k, j]

        ──▶   P.half[i, j] = Σ_k C[k, i] * C[k, j]                         (where j <= i: `skip_unread`)
              P[i, j]      = select(j <= i, P.half[i, j], P.half[j, i])

Gram and covariance matrices, and all distances within a set of points, are such. The terms of both places are
equal as numbers, and joined in the same order: products, sums, maxima and minima commute in floating point,
and of a difference that changes its sign the square and the amount stay.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from autotensor.ir.expr import Binary, Call, Cmp, Expr, Load, Op, Select, Var, compare
from autotensor.ir.func import Buffer
from autotensor.ir.node import map_children
from autotensor.ir.rewrite import substitute
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import IterDef, StageOp

NAME = "mirrored"
COMMUTE = (Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.AND, Op.OR)


def mirrored(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The half, and both; None where no two axes can be exchanged."""
    op = stage.op
    pair = exchangeable(op)
    if pair is None or len(op.buffers) != 1:
        return None
    i, j = pair
    name = fresh(f"{op.name}.half", set(state.names))
    half = Buffer(name, op.buffers[0].shape, op.buffers[0].dtype)
    here: tuple[Var, ...] = tuple(a.var for a in op.axes)
    there = tuple(substitute(v, {i.var: j.var, j.var: i.var}) for v in here)
    body = Select(compare(Cmp.LE, j.var, i.var), Load(half, here), Load(half, there))
    return (
        replace(op, name=name, buffers=(half,)),
        StageOp(op.name, op.axes, (), (body,), None, op.buffers, op.tag),
    )


def exchangeable(op: StageOp) -> tuple[IterDef, IterDef] | None:
    """The first two axes that the reduction is symmetric in; None without such."""
    if op.combiner is None:
        return None
    for i, j in combinations(op.axes, 2):
        if i.extent == j.extent > 1 and _is_symmetric(op.bodies, i.var, j.var):
            return i, j
    return None


def _is_symmetric(bodies: tuple[Expr, ...], i: Var, j: Var) -> bool:
    order: dict[Expr, int] = {}
    return all(_form(b, order) is _form(substitute(b, {i: j, j: i}), order) for b in bodies)


def _form(e: Expr, order: dict[Expr, int]) -> Expr:
    """One of all expressions that give the same number with operands exchanged, the same for each of them.

    order: of the forms that were met; it grows.
    """
    e = map_children(e, lambda c: _form(c, order))
    match e:
        case Binary(op, a, b) if op in COMMUTE and order[a] > order[b]:
            e = Binary(op, b, a)
        case Binary(Op.MUL, Binary(Op.SUB, a, b) as d, other) if other is d and order[a] > order[b]:
            e = Binary(Op.MUL, *[Binary(Op.SUB, b, a)] * 2)
        case Call("abs", (Binary(Op.SUB, a, b),)) if order[a] > order[b]:
            e = Call("abs", (Binary(Op.SUB, b, a),), e.type)
    order.setdefault(e, len(order))
    return e


ALGORITHMS.add(NAME, Algorithm(NAME, mirrored))
