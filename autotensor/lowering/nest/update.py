"""A stage's innermost statement: joins the reduction's value with another value, under conditions.

update("s", sum, [(C, i)], (body,))      C[i] = C[i] + body
guard([i < 63], S)                       if i < 63: S
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotensor.ir.bounds import is_data
from autotensor.ir.expr import Binary, Combiner, Expr, Load, Op, Select, Var
from autotensor.ir.func import Buffer
from autotensor.ir.reducers import alone
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import Alloc, If, Let, Stmt, Store, seq

Place = tuple[Buffer, tuple[Expr, ...]]


def loaded(places: Iterable[Place]) -> tuple[Expr, ...]:
    """The values at the places."""
    return tuple(Load(b, i) for b, i in places)


def allocated(places: Sequence[Place], body: Stmt) -> Stmt:
    """The statement inside the allocations of the places' buffers, the first one outermost."""
    for b, _ in reversed(places):
        body = Alloc(b, body)
    return body


def store_all(targets: Sequence[Place], values: Iterable[Expr]) -> Stmt:
    """Stores every value at its place."""
    return seq(*(Store(b, i, v) for (b, i), v in zip(targets, values, strict=True)))


def update(name: str, combiner: Combiner, targets: Sequence[Place], sources: tuple[Expr, ...]) -> Stmt:
    """`C = combine(C, source)`. If results need each other, all are computed before any is stored.

    name: the stage's name, for the variables that hold the results before they are stored.
    """
    old = loaded(targets)
    own = [alone(combiner, n) for n in range(len(targets))]
    apart = [joined(c, old[n], sources[n]) for n, c in enumerate(own) if c is not None]
    if len(apart) == len(targets):
        return store_all(targets, apart)
    mapping = dict(zip((*combiner.lhs, *combiner.rhs), (*old, *sources), strict=True))
    new = tuple(Var(f"{name}:new{n}", r.dtype) for n, r in enumerate(combiner.result))
    body = store_all(targets, new)
    for var, value in zip(reversed(new), reversed(combiner.result), strict=True):
        body = Let(var, substitute(value, mapping), body)
    return body


def joined(combiner: Combiner, old: Expr, source: Expr) -> Expr:
    """A value joined with one more term, in the best form for processors. combiner: has one result.

        C + select(c, x*y, 0)     ──▶     select(c, C + x*y, C)       one operation under a mask
        C + (a*b - c*d)           ──▶     C + a*b - c*d               two operations, not three

    Conditions on loops stay as they are, because loops are cut where these conditions change.
    """
    match source:
        case Select(cond, then, otherwise) if otherwise is combiner.identity[0] and is_data(cond):
            return Select(cond, joined(combiner, old, then), old)
        case Binary(Op.ADD | Op.SUB as op, first, Binary(Op.MUL) as last) if (
            combiner.name == "sum" and source.dtype.is_float and _has_product(first)
        ):
            return Binary(op, joined(combiner, old, first), last)
    (result,) = combiner.result
    return substitute(result, {combiner.lhs[0]: old, combiner.rhs[0]: source})


def _has_product(e: Expr) -> bool:
    """Whether a sum's first term is a product."""
    match e:
        case Binary(Op.MUL):
            return True
        case Binary(Op.ADD | Op.SUB, first, Binary(Op.MUL)):
            return _has_product(first)
    return False


def guard(conditions: Sequence[Expr], body: Stmt) -> Stmt:
    """The body under all conditions, the first one outermost."""
    for c in reversed(conditions):
        body = If(c, body)
    return body


__all__ = ["Place", "allocated", "guard", "joined", "loaded", "store_all", "update"]
