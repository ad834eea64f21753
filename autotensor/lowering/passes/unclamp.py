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
from autotensor.ir.visit import any_node


def unclamp(body: Stmt) -> Stmt:
    return _Unclamper(bounds(NO_RANGES)).stmt(body) if any_node(body, _is_clamped_choice) else body


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
    return isinstance(node, Select) and (
        any_node(node.then, _is_clamped) or any_node(node.otherwise, _is_clamped)
    )


def _is_clamped(node: Node) -> bool:
    """A load at an index with a limit."""
    return isinstance(node, Load) and any(any_node(i, _is_limit) for i in node.indices)


def _is_limit(node: Node) -> bool:
    return isinstance(node, Binary) and node.op in (Op.MAX, Op.MIN) and node.dtype.is_int


__all__ = ["unclamp"]
