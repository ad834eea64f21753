"""unswitch: moves a choice that is the same for all iterations of a loop before the loop.

    for j in range(256):                                  if k == 0: for j in range(256): C[k, j] = A[j]
      C[k, j] = select(k == 0, A[j], exp(B[j]))     ──▶   else:      for j in range(256): C[k, j] = exp(B[j])

In vectors, both sides of a Select are computed. After this pass, each loop computes only its own side, so
both loops together have about as much code as the one loop before. Loops over sums stay as they are, because
`promote` later needs the form of their tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from autotensor.ir.bounds import NO_RANGES, Bounds, bounds
from autotensor.ir.expr import Const, Expr, Load, Select, Symbol, Var
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.simplify import Simplifier
from autotensor.ir.stmt import Alloc, For, ForKind, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import collect, contains, free_vars
from autotensor.lowering.passes.loop_guards import share
from autotensor.te.stage import evaluated

SAVED = 4.0  # mean number of operations and loads that must be saved to make a copy of a loop worth it
GROWTH = 1.25  # most operations in both loops together, relative to those in the original loop

Vars = frozenset[Var]
N = TypeVar("N", bound=Node)


def unswitch(body: Stmt) -> Stmt:
    if not contains(body, Select):
        return body
    return _visit(body, bounds(NO_RANGES), frozenset())


def _visit(s: Stmt, known: Bounds, outside: Vars) -> Stmt:
    """outside: the variables that are bound around the statement."""
    match s:
        case For(var, begin, extent, kind, body, thread):
            cond = None if kind is ForKind.PARALLEL else next(_choices(s, known, outside), None)
            if cond is None:
                # iterations that are written out make their choices themselves
                around = outside if kind is ForKind.UNROLLED else outside | {var}
                inner = _visit(body, known.in_loop(var, begin, extent), around)
                return For(var, begin, extent, kind, inner, thread)
            sides = ((known.assuming(cond, holds), _side(s, cond, holds)) for holds in (True, False))
            return If(cond, *(_visit(Simplifier(k).stmt(side), k, outside) for k, side in sides))
        case Let(var, value, body):
            return Let(var, value, _visit(body, known.in_let(var, value), outside | {var}))
        case If(cond, then, otherwise):
            other = None if otherwise is None else _visit(otherwise, known.assuming(cond, False), outside)
            return If(cond, _visit(then, known.assuming(cond), outside), other)
        case Seq(stmts):
            return seq(*(_visit(x, known, outside) for x in stmts))
        case Alloc(buffer, body):
            return Alloc(buffer, _visit(body, known, outside))
        case _:
            return s


def _choices(loop: For, known: Bounds, outside: Vars) -> Iterator[Expr]:
    """Conditions of Selects in the loop that all iterations share and that are worth a loop for each side."""
    stores = collect(loop, Store)
    if any(_is_update(x) for x in stores):
        return
    for store in stores:
        for cond in dict.fromkeys(select.cond for select in collect(store.value, Select)):
            names = free_vars(cond)
            settled = bool(names) and all(v in outside or isinstance(v, Symbol) for v in names)
            if settled and not contains(cond, Load) and _is_worth(store.value, cond, known):
                yield cond


def _side(node: N, cond: Expr, holds: bool) -> N:
    """The statement or value where the condition is known, without the Selects that it decides."""

    def taken(n: Node) -> Node | None:
        if not isinstance(n, Select) or n.cond is not cond:
            return None
        return n.then if holds else n.otherwise

    return transform(node, taken)


def _is_update(store: Store) -> bool:
    return any(load.buffer is store.buffer for load in collect(store.value, Load))


def _is_worth(value: Expr, cond: Expr, known: Bounds) -> bool:
    """Whether choosing before the loop saves much work and adds little code."""
    sides = (
        Simplifier(known.assuming(cond, holds)).expr(_side(value, cond, holds)) for holds in (True, False)
    )
    whole, (then, otherwise) = _computed(value), map(_computed, sides)
    often = share(cond, known)
    saved = whole - often * then - (1.0 - often) * otherwise
    return saved >= SAVED and then + otherwise <= GROWTH * whole


def _computed(value: Expr) -> int:
    """The number of distinct operations and loads, without the arithmetic of indices."""
    operations = sum(not isinstance(e, Const | Var) for e in evaluated((value,)))
    return operations + len(collect(value, Load))
