"""Small loop nests by hand, for the tests of passes."""

from __future__ import annotations

from typing import Any

from autotensor.base.dtype import DType, float32, int32
from autotensor.ir.expr import Expr, Var, as_expr, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.printer import to_text
from autotensor.ir.stmt import For, ForKind, Stmt, Store

I, J, K = Var("i"), Var("j"), Var("k")  # noqa: E741
SERIAL, PARALLEL, VECTORIZED, UNROLLED = (
    ForKind.SERIAL,
    ForKind.PARALLEL,
    ForKind.VECTORIZED,
    ForKind.UNROLLED,
)


def buffer(name: str, *shape: int, dtype: DType = float32, scope: Scope = Scope.GLOBAL) -> Buffer:
    return Buffer(name, shape, dtype, scope)


A, B, T = buffer("A", 64), buffer("B", 64), buffer("T", 64, dtype=int32)


def loop(var: Var, extent: int, body: Stmt, kind: ForKind = SERIAL, begin: int = 0) -> For:
    return For(var, const(begin), const(extent), kind, body)


def store(b: Buffer, index: Any, value: Any) -> Store:
    indices = index if isinstance(index, tuple) else (index,)
    return Store(b, tuple(as_expr(i) for i in indices), as_expr(value, b.dtype))


def text(s: Stmt | Expr) -> str:
    return to_text(s)
