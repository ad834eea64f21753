"""unclamp: indices lose the limits that the Select around their load implies.

    if_then_else(i >= 4, A[max(i - 4, 0)], 0)     ──▶     if_then_else(i >= 4, A[i - 4], 0)

As a vector the first is a gather. The second is a load of neighbours under a mask, which `protect` gives it.
"""

from __future__ import annotations

from autotensor.ir.bounds import NO_RANGES, bounds
from autotensor.ir.expr import Binary, Expr, Load, Op, Select
from autotensor.ir.node import Node
from autotensor.ir.simplify import Simplifier
from autotensor.ir.stmt import Stmt
from autotensor.ir.visit import collect


def unclamp(body: Stmt) -> Stmt:
    if not any(map(_is_clamped_choice, collect(body, Select))):
        return body
    return _Unclamper(bounds(NO_RANGES)).stmt(body)


class _Unclamper(Simplifier):
    """Simplifies each side of a choice with the bounds that hold there."""

    __slots__ = ()

    def _expr(self, e: Expr) -> Expr:
        if not _is_clamped_choice(e):
            return super()._expr(e)
        assert isinstance(e, Select)
        cond = self.expr(e.cond)
        there = (self.where(cond).expr(e.then), self.where(cond, False).expr(e.otherwise))
        return Select(cond, *there)


def _is_clamped_choice(node: Node) -> bool:
    return isinstance(node, Select) and (_has_clamped(node.then) or _has_clamped(node.otherwise))


def _has_clamped(e: Expr) -> bool:
    """Whether there is a load at an index with a limit."""
    return any(_is_limit(b) for load in collect(e, Load) for i in load.indices for b in collect(i, Binary))


def _is_limit(node: Binary) -> bool:
    return node.op in (Op.MAX, Op.MIN) and node.dtype.is_int


__all__ = ["unclamp"]
