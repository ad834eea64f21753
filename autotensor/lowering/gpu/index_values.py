"""Values of index expressions for all values of their variables at once; `barrier_proof.py` uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotensor.ir.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Select,
    Unary,
    Var,
)
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.semantics import COMPARISONS, OPERATORS
from autotensor.ir.visit import any_node

Values = np.ndarray[Any, np.dtype[Any]]


def values_of(e: Expr, env: Mapping[Var, Values]) -> Values | None:
    """The values of an integer or bool expression, broadcast over the values of its variables.

    None if the expression depends on anything else (memory, floats, variables without values).
    """
    match e:
        case Var():
            return env.get(e)
        case Const(value, dtype):
            return None if dtype.is_float else np.asarray(value)
        case Binary(op, a, b) if op in OPERATORS:
            x, y = values_of(a, env), values_of(b, env)
            if x is None or y is None or (op in (Op.FLOORDIV, Op.MOD) and not np.all(y)):
                return None
            return np.asarray(OPERATORS[op](x, y))
        case Compare(op, a, b):
            x, y = values_of(a, env), values_of(b, env)
            return None if x is None or y is None else np.asarray(COMPARISONS[op](x, y))
        case Unary(Neg.NOT, a) if e.dtype.is_bool:
            x = values_of(a, env)
            return None if x is None else np.logical_not(x)
        case Unary(Neg.NEG, a):
            x = values_of(a, env)
            return None if x is None else np.negative(x)
        case Select(cond, then, otherwise):
            c, x, y = (values_of(p, env) for p in (cond, then, otherwise))
            return None if c is None or x is None or y is None else np.where(c, x, y)
        case Cast(dtype, a) if dtype.is_int and a.dtype.is_int:
            return values_of(a, env)
        case _:
            return None


def held(e: Expr) -> tuple[Expr, dict[Var, tuple[int, int]]]:
    """The index with new variables, and their ranges as begin and extent.

    Each part that is read from memory and clamped to a range becomes a new variable.

        k % 2 * 289 + min(max(T[k], 0), 16) * 17      ──▶     k % 2 * 289 + any0 * 17,   any0: (0, 17)
    """
    found: dict[Var, tuple[int, int]] = {}

    def visit(n: Node) -> Node | None:
        match n:
            case Binary(Op.MIN, Binary(Op.MAX, x, Const(low)), Const(high)) if any_node(x, _is_load):
                begin, end = int(low), int(high) + 1
                var = Var(f"any{len(found)} of {begin} to {end - 1}", n.dtype)
                found[var] = (begin, max(0, end - begin))
                return var
        return None

    return (transform(e, visit), found) if any_node(e, _is_load) else (e, found)


def _is_load(n: Node) -> bool:
    return isinstance(n, Load)
