"""protect: loads that only one side of a Select may perform get a mask.

    if_then_else(i > 0, A[i - 1], 0)     ──▶     select(i > 0, A[i - 1] if i > 0, 0)

Machines evaluate both sides of a select; a masked load that is switched off touches no memory. Loads that are
in bounds anyway keep no mask.
"""

from __future__ import annotations

from autotensor.ir.bounds import NO_RANGES, Bounds, bounds
from autotensor.ir.expr import Binary, Cmp, Compare, Const, Expr, Load, Neg, Op, Select, Unary, const
from autotensor.ir.node import map_children
from autotensor.ir.stmt import Alloc, Evaluate, For, If, Let, Seq, Stmt, Store, seq
from autotensor.lowering.scopes import in_let, in_loop


def protect(body: Stmt) -> Stmt:
    return _stmt(body, bounds(NO_RANGES))


def _stmt(s: Stmt, known: Bounds) -> Stmt:
    match s:
        case For(var, begin, extent, kind, inner, thread):
            return For(var, begin, extent, kind, _stmt(inner, in_loop(known, var, begin, extent)), thread)
        case Let(var, value, inner):
            return Let(var, _expr(value, None, known), _stmt(inner, in_let(known, var, value)))
        case If(cond, then, otherwise):
            other = None if otherwise is None else _stmt(otherwise, known.assuming(Unary(Neg.NOT, cond)))
            return If(_expr(cond, None, known), _stmt(then, known.assuming(cond)), other)
        case Seq(stmts):
            return seq(*(_stmt(x, known) for x in stmts))
        case Alloc(buffer, inner):
            return Alloc(buffer, _stmt(inner, known))
        case Store(buffer, indices, value, mask):
            inside = known if mask is None else known.assuming(mask)
            return Store(
                buffer, tuple(_expr(i, None, inside) for i in indices), _expr(value, mask, inside), mask
            )
        case Evaluate(value):
            return Evaluate(_expr(value, None, known))
        case _:
            return s


def _expr(e: Expr, mask: Expr | None, known: Bounds) -> Expr:
    """The expression with masks on loads that are unsafe outside `mask` (None: always evaluated)."""
    match e:
        case Select(cond, then, otherwise):
            return Select(
                _expr(cond, mask, known),
                _expr(then, _both(mask, cond), known),
                _expr(otherwise, _both(mask, Unary(Neg.NOT, cond)), known),
            )
        case Load(buffer, indices, own):
            inner = tuple(_expr(i, mask, known) for i in indices)
            if mask is None or _inside(inner, buffer.shape, known):
                return Load(buffer, inner, own)
            return Load(buffer, inner, _both(own, mask))
        case _:
            return map_children(e, lambda c: _expr(c, mask, known) if isinstance(c, Expr) else c)


def _inside(indices: tuple[Expr, ...], shape: tuple[int, ...], known: Bounds) -> bool:
    for index, dim in zip(indices, shape, strict=True):
        if known.decide(Compare(Cmp.GE, index, const(0))) is not True:
            return False
        if known.decide(Compare(Cmp.LT, index, const(dim))) is not True:
            return False
    return True


def _both(a: Expr | None, b: Expr) -> Expr:
    return b if a is None or isinstance(a, Const) else Binary(Op.AND, a, b)
