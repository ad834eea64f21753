"""Statements: loops, stores and the statements around them.

    For Seq Store Alloc If Let Barrier Evaluate Async Commit Await

A `For` runs `var` over begin, …, begin + extent - 1; its kind says how. VECTORIZED and UNROLLED loops have
constant extents and vanish in lowering. A PARALLEL loop is divided among the threads of the call.
"""

from __future__ import annotations

import enum
from typing import Any

from autotensor.ir.expr import Expr, Var, const
from autotensor.ir.node import Node


class ForKind(enum.Enum):
    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    THREAD = "thread"  # bound to a GPU thread axis; `thread` names it

    __hash__ = object.__hash__


class Stmt(Node):
    """Base of all statements."""


class For(Stmt):
    var: Var
    begin: Expr
    extent: Expr
    kind: ForKind
    body: Stmt
    thread: str = ""  # "blockIdx.x", …, for kind THREAD


class Seq(Stmt):
    """Statements one after another. `seq` builds it and flattens nested ones."""

    stmts: tuple[Stmt, ...]


class Store(Stmt):
    """`buffer[indices] = value`, only if `mask` holds."""

    buffer: Any
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None


class Alloc(Stmt):
    """`buffer` exists inside `body`; its contents are undefined at first."""

    buffer: Any
    body: Stmt


class If(Stmt):
    cond: Expr
    then: Stmt
    otherwise: Stmt | None = None


class Let(Stmt):
    """`var` is `value` inside `body`."""

    var: Var
    value: Expr
    body: Stmt


class Barrier(Stmt):
    """All threads of the scope meet here."""

    scope: str = "threads"  # "threads" of a CPU call; "shared" within a GPU block


class Evaluate(Stmt):
    """Evaluates an expression for its effect (a prefetch, an intrinsic)."""

    value: Expr


class Async(Stmt):
    """An asynchronous store into shared memory. Its values have arrived after an Await.

    Until then, no thread may read or write the elements, not even the thread itself.
    """

    store: Store


class Commit(Stmt):
    """The thread's asynchronous stores since its last Commit become a group."""


class Await(Stmt):
    """All groups of the thread but the last `left` have arrived; other threads see them after a Barrier."""

    left: int


NOTHING = Seq(())


def for_range(var: Var, extent: int, body: Stmt, kind: ForKind = ForKind.SERIAL, thread: str = "") -> For:
    """The loop over 0 … extent - 1."""
    return For(var, const(0), const(extent), kind, body, thread)


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements in order, flat, without empty ones. A single statement is returned as it is."""
    flat: list[Stmt] = []
    for s in stmts:
        if s is None:
            continue
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat)) if flat else NOTHING
