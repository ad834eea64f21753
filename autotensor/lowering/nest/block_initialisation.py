"""Writes an initialisation as people do: a whole block at once.

    for yi in range(8):
      for xi in range(8):
        C[yo*8+yi][xo*8+xi] = 0            ──▶     C[yo*8:yo*8+8][xo*8:xo*8+8] = 0
    for ko in range(128): …                        for ko in range(128): …

This is only for printing: the result has slices in several dimensions, which no pass or backend supports.
"""

from __future__ import annotations

from autotensor.ir.affine import affine, to_expr
from autotensor.ir.expr import Const, Expr, Ramp
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import For, ForKind, Seq, Stmt, Store
from autotensor.ir.visit import free_vars


def with_slices(body: Stmt) -> Stmt:
    """The statement, with initialisations before a loop written as slices."""

    def visit(node: Node) -> Node | None:
        if not isinstance(node, Seq) or not isinstance(node.stmts[-1], For):
            return None
        return Seq(tuple(_slice(s) or s for s in node.stmts[:-1]) + node.stmts[-1:])

    return transform(body, visit)


def _slice(s: Stmt) -> Store | None:
    """Plain loops around a store of one number, as one store; None for other statements."""
    match s:
        case Store(_, _, Const(), None):
            return s
        case For(var, Const(0), Const(extent), ForKind.SERIAL, body):
            store = _slice(body)
            if store is None:
                return None
            using = [n for n, i in enumerate(store.indices) if var in free_vars(i)]
            index = affine(store.indices[using[0]]) if len(using) == 1 else None
            if index is None or index.coefficient(var) != 1:
                return None
            rest = index.without(var)
            if any(var in free_vars(t) for t in rest.terms):
                return None
            at: tuple[Expr, ...] = (Ramp(to_expr(rest), 1, int(extent)),)
            n = using[0]
            indices = (*store.indices[:n], *at, *store.indices[n + 1 :])
            return Store(store.buffer, indices, store.value)
        case _:
            return None
