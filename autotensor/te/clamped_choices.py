"""Indices lose the limits that the choice around their load implies.

    if_then_else(i >= 4, A[max(i - 4, 0)], 0)          ──▶     if_then_else(i >= 4, A[i - 4], 0)
    Σ_k select(k <= j, h[k] * x[max(j - k, 0)], 0)     ──▶     Σ_k select(k <= j, h[k] * x[j - k], 0)

A choice evaluates only the side that it takes, so the load stays under its condition. The load's index is
then a sum, and analyses know how a sum runs along memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from autotensor.ir.bounds import Interval, bounds
from autotensor.ir.expr import Binary, Expr, Load, Op, Select
from autotensor.ir.node import Node
from autotensor.ir.simplify import Simplifier
from autotensor.ir.visit import any_node, collect
from autotensor.te.stage import StageOp


@lru_cache(maxsize=4096)
def unclamped(op: StageOp) -> StageOp:
    """A reduction without the limits that its choices imply.

    Pointwise ops stay as they are, because their loops alone say which elements they read.
    """
    if not op.is_reduction or not any(map(has_clamped_choice, op.bodies)):
        return op
    inside = Unclamper(bounds({a.var: Interval(0, a.extent - 1) for a in op.all_axes}))
    return replace(op, bodies=tuple(inside.expr(b) for b in op.bodies))


class Unclamper(Simplifier):
    """Simplifies each side of a choice with the bounds that hold on that side."""

    __slots__ = ()

    def _expr(self, e: Expr) -> Expr:
        if not _is_clamped_choice(e):
            return super()._expr(e)
        assert isinstance(e, Select)
        cond = self.expr(e.cond)
        there = (self.where(cond).expr(e.then), self.where(cond, False).expr(e.otherwise))
        return Select(cond, *there)


def has_clamped_choice(node: Node) -> bool:
    """Whether the node contains a choice with a load on either side whose index has a limit."""
    return any_node(node, _is_clamped_choice)


def _is_clamped_choice(node: Node) -> bool:
    return isinstance(node, Select) and (_has_clamped(node.then) or _has_clamped(node.otherwise))


def _has_clamped(e: Expr) -> bool:
    """Whether the expression contains a load whose index has a limit (`min` or `max`)."""
    return any(_is_limit(b) for load in collect(e, Load) for i in load.indices for b in collect(i, Binary))


def _is_limit(node: Binary) -> bool:
    return node.op in (Op.MAX, Op.MIN) and node.dtype.is_int


__all__ = ["Unclamper", "has_clamped_choice", "unclamped"]
