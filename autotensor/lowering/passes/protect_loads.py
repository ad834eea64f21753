"""protect: loads that only one side of a Select may perform get a mask.

    if_then_else(i > 0, A[i - 1], 0)     ──▶     select(i > 0, A[i - 1] if i > 0, 0)

Machines evaluate both sides of a select, but a masked load that is switched off touches no memory. Loads that
are in bounds anyway get no mask. Conditions that read memory join a mask only if the other conditions do not
suffice. If the condition itself compares a side, as in select(x > y, x, y), this side is computed for the
condition anyway, so its masks stay the same.
"""

from __future__ import annotations

from functools import reduce

from autotensor.ir.bounds import NO_RANGES, Bounds, bounds
from autotensor.ir.expr import Binary, Cmp, Compare, Expr, Load, Neg, Op, Select, Unary, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import children, map_children
from autotensor.ir.stmt import Alloc, Evaluate, For, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import contains

# conditions of the Selects around an expression, outermost first; their own loads are already protected
Conditions = tuple[Expr, ...]


def protect(body: Stmt) -> Stmt:
    if not contains(body, Select):
        return body
    return _stmt(body, bounds(NO_RANGES))


def in_bounds(load: Load, known: Bounds) -> bool:
    """Whether a load stays within its buffer even if no condition holds."""
    return _inside(load.indices, load.buffer, known)


def _stmt(s: Stmt, known: Bounds) -> Stmt:
    match s:
        case For(var, begin, extent, kind, inner, thread):
            return For(var, begin, extent, kind, _stmt(inner, known.in_loop(var, begin, extent)), thread)
        case Let(var, value, inner):
            return Let(var, _expr(value, (), known), _stmt(inner, known.in_let(var, value)))
        case If(cond, then, otherwise):
            other = None if otherwise is None else _stmt(otherwise, known.assuming(cond, False))
            return If(_expr(cond, (), known), _stmt(then, known.assuming(cond)), other)
        case Seq(stmts):
            return seq(*(_stmt(x, known) for x in stmts))
        case Alloc(buffer, inner):
            return Alloc(buffer, _stmt(inner, known))
        case Store(buffer, indices, value, mask):
            inside = known if mask is None else known.assuming(mask)
            under = () if mask is None else (mask,)
            index = tuple(_expr(i, (), known) for i in indices)
            return Store(buffer, index, _expr(value, under, inside), mask)
        case Evaluate(value):
            return Evaluate(_expr(value, (), known))
        case _:
            return s


def _expr(e: Expr, under: Conditions, known: Bounds) -> Expr:
    """The expression, with masks on loads that are unsafe unless the conditions hold."""
    return _Masked(known).expr(e, under)


class _Masked:
    """The masks of one expression.

    Results are remembered, so a part that is used twice at each level is visited once. Loads that need masks
    are an exception, because each place needs other masks.
    """

    def __init__(self, known: Bounds) -> None:
        self.known = known
        self._done: dict[tuple[Expr, Conditions], Expr] = {}
        self._safe: dict[Expr, bool] = {}

    def expr(self, e: Expr, under: Conditions) -> Expr:
        if under and self._is_safe(e):
            return e
        found = self._done.get((e, under))
        if found is None:
            found = self._done[e, under] = self._expr(e, under)
        return found

    def _is_safe(self, e: Expr) -> bool:
        """Whether all loads are in bounds even if no condition holds."""
        found = self._safe.get(e)
        if found is None:
            found = all(self._is_safe(c) for c in children(e) if isinstance(c, Expr))
            if found and isinstance(e, Load):
                found = _inside(e.indices, e.buffer, self.known)
            self._safe[e] = found
        return found

    def _expr(self, e: Expr, under: Conditions) -> Expr:
        match e:
            case Select(cond, then, otherwise):
                c = self.expr(cond, under)
                # these are computed for both sides
                told = (cond.a, cond.b) if isinstance(cond, Compare) else ()
                yes = under if then in told else (*under, c)
                no = under if otherwise in told else (*under, Unary(Neg.NOT, c))
                return Select(c, self.expr(then, yes), self.expr(otherwise, no))
            case Load(buffer, indices, own):
                inner = tuple(self.expr(i, under) for i in indices)
                mask = own if own is None else self.expr(own, under)
                if not under or _inside(inner, buffer, self.known):
                    return Load(buffer, inner, mask)
                needed = tuple(c for c in under if not contains(c, Load))
                if not _inside(inner, buffer, reduce(Bounds.assuming, needed, self.known)):
                    needed = under
                return Load(buffer, inner, _all((*needed, *(() if mask is None else (mask,)))))
            case _:
                return map_children(e, lambda c: self.expr(c, under) if isinstance(c, Expr) else c)


def _inside(indices: tuple[Expr, ...], buffer: Buffer, known: Bounds) -> bool:
    for index, dim in zip(indices, buffer.dims, strict=True):
        if known.decide(Compare(Cmp.GE, index, const(0))) is not True:
            return False
        if known.decide(Compare(Cmp.LT, index, dim)) is not True:
            return False
    return True


def _all(conditions: Conditions) -> Expr:
    return reduce(lambda a, b: Binary(Op.AND, a, b), conditions)
