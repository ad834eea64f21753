"""Reducers with several results: joins single reducers into one, and takes one apart again.

beside((sum, max))      (lhs0 + rhs0, max(lhs1, rhs1)) from (0, -inf) on
alone(that, 1)          max
alone(argmax, 0)        None: which index is kept depends on the values
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from autotensor.base.dtype import DType
from autotensor.ir.expr import FALSE, TRUE, Binary, Combiner, Expr, Op, Var, max_value, min_value
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import free_vars

# These names promise a reducer with one result, which this operator makes from both sides.
OPERATORS = {"sum": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN, "any": Op.OR, "all": Op.AND}


def selecting(op: Op, t: DType) -> Combiner | None:
    """The reducer by this operator, if its result is one of its terms: min or max, and for bools, any or all.

    None for other operators.
    """
    name = next((n for n, o in OPERATORS.items() if o is op), "")
    identity = {"max": min_value(t), "min": max_value(t)}.get(name)
    if t.is_bool:
        identity = {"any": FALSE, "all": TRUE}.get(name, identity)
    lhs, rhs = Var("lhs0", t), Var("rhs0", t)
    return None if identity is None else Combiner(name, (lhs,), (rhs,), (Binary(op, lhs, rhs),), (identity,))


def beside(reducers: Sequence[Combiner]) -> Combiner:
    """The reducer that has the results of all of them; each result is joined by its own reducer."""
    lhs: list[Var] = []
    rhs: list[Var] = []
    results: list[Expr] = []
    for c in reducers:
        first = len(lhs)
        mine = [Var(f"lhs{first + n}", v.dtype) for n, v in enumerate(c.lhs)]
        theirs = [Var(f"rhs{first + n}", v.dtype) for n, v in enumerate(c.rhs)]
        renamed = dict(zip((*c.lhs, *c.rhs), (*mine, *theirs), strict=True))
        results += [substitute(r, renamed) for r in c.result]
        lhs += mine
        rhs += theirs
    identity = tuple(e for c in reducers for e in c.identity)
    return Combiner("_".join(c.name for c in reducers), tuple(lhs), tuple(rhs), tuple(results), identity)


@lru_cache(maxsize=1024)  # lowering calls this for every update
def alone(c: Combiner, n: int) -> Combiner | None:
    """The reducer of result `n` alone; None if this result also depends on other results."""
    if len(c.result) == 1:
        return c
    lhs, rhs, result = c.lhs[n], c.rhs[n], c.result[n]
    if not free_vars(result) <= {lhs, rhs}:
        return None
    mine, theirs = Var("lhs0", lhs.dtype), Var("rhs0", rhs.dtype)
    own = substitute(result, {lhs: mine, rhs: theirs})
    name = f"{c.name}_{n}"
    match own:
        case Binary(op, a, b) if {a, b} == {mine, theirs}:
            name = next((known for known, o in OPERATORS.items() if o is op), name)
    return Combiner(name, (mine,), (theirs,), (own,), (c.identity[n],))


__all__ = ["OPERATORS", "alone", "beside", "selecting"]
