"""unmask: masks go from loads that stay inside their buffer anyway.

The lanes that a mask switches off are never used, so reading them does no harm when they exist. Plain loads are cheaper,
and only they let a register tile live in registers.
"""

from __future__ import annotations

from autotensor.ir.bounds import NO_RANGES, Bounds, bounds
from autotensor.ir.expr import Expr, Load
from autotensor.ir.node import map_children
from autotensor.ir.stmt import For, If, Let, Stmt
from autotensor.lowering.scopes import in_let, in_loop


def unmask(body: Stmt) -> Stmt:
    return _visit(body, bounds(NO_RANGES))  # type: ignore[no-any-return]


def _visit(node: object, known: Bounds) -> object:
    match node:
        case For(var, begin, extent, kind, body, thread):
            return For(var, begin, extent, kind, _visit(body, in_loop(known, var, begin, extent)), thread)  # type: ignore[arg-type]
        case Let(var, value, body):
            return Let(var, _visit(value, known), _visit(body, in_let(known, var, value)))  # type: ignore[arg-type]
        case If(cond, then, otherwise):
            other = None if otherwise is None else _visit(otherwise, known)
            return If(_visit(cond, known), _visit(then, known.assuming(cond)), other)  # type: ignore[arg-type]
        case Load(buffer, (index,), mask) if mask is not None:
            reach = known.of(index)
            inside = (
                reach.lo is not None and reach.hi is not None and reach.lo >= 0 and reach.hi < buffer.size
            )
            return Load(buffer, (_visit(index, known),), None if inside else mask)  # type: ignore[arg-type]
        case Stmt() | Expr():
            return map_children(node, lambda c: _visit(c, known))
        case _:
            return node
