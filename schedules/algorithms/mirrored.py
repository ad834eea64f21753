"""If the exchange of two axes does not change a reduction, only one half of its positions is computed.

    P[i, j] = Σ_k C[k, i] * C[k, j]

        ──▶   P.half[i, j] = Σ_k C[k, i] * C[k, j]                         (only if j <= i: `skip_unread`)
              P[i, j]      = select(j <= i, P.half[i, j], P.half[j, i])

Examples are Gram and covariance matrices, and all distances within a set of points. At both positions, the
terms are equal numbers and are joined in the same order. The reason is that products, sums, maxima and minima
commute in floating point, and that the square and the absolute value of a difference do not depend on its
sign.
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
    """The stage of one half, and the stage of both; None if no two axes can be exchanged."""
    op = stage.op
    pair = exchangeable(op)
    if pair is None:
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
    """The first two axes whose exchange does not change a reduction with one result; None if there are
    none."""
    if op.combiner is None or len(op.buffers) != 1 or op.is_open:  # run-time extents may differ
        return None
    for i, j in combinations(op.axes, 2):
        if i.extent == j.extent > 1 and _is_symmetric(op.bodies, i.var, j.var):
            return i, j
    return None


def _is_symmetric(bodies: tuple[Expr, ...], i: Var, j: Var) -> bool:
    forms = _Forms()
    return all(forms.of(b) is forms.of(substitute(b, {i: j, j: i})) for b in bodies)


class _Forms:
    """Chooses one normal form for all expressions that give the same number with exchanged operands."""

    def __init__(self) -> None:
        self._known: dict[Expr, Expr] = {}
        self._order: dict[Expr, int] = {}  # the order in which forms were met

    def of(self, e: Expr) -> Expr:
        found = self._known.get(e)
        if found is None:
            found = self._known[e] = self._ordered(map_children(e, self.of))
            self._order.setdefault(found, len(self._order))
        return found

    def _ordered(self, e: Expr) -> Expr:
        match e:
            case Binary(op, a, b) if op in COMMUTE and self._order[a] > self._order[b]:
                return Binary(op, b, a)
            case Binary(Op.MUL, Binary(Op.SUB, a, b) as d, other) if other is d:
                return Binary(Op.MUL, *[self._amount(a, b)] * 2)
            case Call("abs", (Binary(Op.SUB, a, b),)) if (
                e.dtype.kind != "uint"
            ):  # `abs` is the identity for unsigned integers
                return Call("abs", (self._amount(a, b),), e.type)
        return e

    def _amount(self, a: Expr, b: Expr) -> Expr:
        """The normal form of a difference whose sign does not matter."""
        return Binary(Op.SUB, b, a) if self._order[a] > self._order[b] else Binary(Op.SUB, a, b)


ALGORITHMS.add(NAME, Algorithm(NAME, mirrored))
