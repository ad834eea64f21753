"""unmask: removes masks from loads that stay inside their buffer anyway.

The values of lanes that a mask switches off are never used, so reading them does no harm if the elements
exist. Plain loads are cheaper, and only they let a register tile stay in registers. If a kernel writes a
shared buffer, the masks stay, because another thread may be writing the neighbouring elements.
"""

from __future__ import annotations

from autotensor.ir.bounds import NO_RANGES, Bounds, bounds
from autotensor.ir.expr import Expr, Load
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import Node, map_children
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import For, If, Let, Stmt, Store
from autotensor.ir.visit import collect


def unmask(body: Stmt) -> Stmt:
    masked = [x for x in collect(body, Load) if x.mask is not None]
    if not masked:
        return body
    written = {s.buffer for s in collect(body, Store) if s.buffer.scope is Scope.GLOBAL}
    return _stmt(body, bounds(NO_RANGES), written)


def _stmt(s: Stmt, known: Bounds, written: set[Buffer]) -> Stmt:
    match s:
        case For(var, begin, extent, kind, body, thread):
            return For(
                var, begin, extent, kind, _stmt(body, known.in_loop(var, begin, extent), written), thread
            )
        case Let(var, value, body):
            inner = _stmt(body, known.in_let(var, value), written)
            return Let(var, _expr(value, known, written), inner)
        case If(cond, then, otherwise):
            other = None if otherwise is None else _stmt(otherwise, known, written)
            return If(_expr(cond, known, written), _stmt(then, known.assuming(cond), written), other)
        case _:
            return map_children(s, lambda c: _node(c, known, written))


def _node(node: Node, known: Bounds, written: set[Buffer]) -> Node:
    if isinstance(node, Stmt):
        return _stmt(node, known, written)
    return _expr(node, known, written) if isinstance(node, Expr) else node


def _expr(e: Expr, known: Bounds, written: set[Buffer]) -> Expr:
    """Visits every part once, however often it occurs: below a statement, nothing changes the known facts."""

    def plain(part: Node) -> Node:
        # the end of this buffer is known only at run time
        open_ = isinstance(part, Load) and part.buffer.extents
        if isinstance(part, Load) and part.mask is not None and part.buffer not in written and not open_:
            reach = known.of(part.indices[0])
            first, last = reach.lo, reach.hi
            if first is not None and last is not None and first >= 0 and last < part.buffer.size:
                return Load(part.buffer, part.indices)
        return part

    return transform(e, plain)
