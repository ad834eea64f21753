"""open guards: moves barriers out of conditions, even of conditions that all threads of a block share.

    if bx < 4:                            if bx < 4: S[tx] = A[…]
      S[tx] = A[…]                        barrier("shared")
      barrier("shared")         ──▶       if bx < 4: C[tx] = S[…]
      C[tx] = S[…]

A whole block may legally leave out a barrier. But PoCL 3.0 never returns from some kernels that do this:
kernels with loops around the barriers (seed 52 of tests/property/test_gpu_on_opencl.py). After the pass,
loops inside a condition run their iterations without doing anything.
"""

from __future__ import annotations

from collections.abc import Callable

from autotensor.ir.expr import Load
from autotensor.ir.node import Node, map_children
from autotensor.ir.stmt import Alloc, Barrier, For, If, Let, Seq, Stmt, seq
from autotensor.ir.visit import any_node, contains

Wrap = Callable[[Stmt], Stmt]


def open_guards(body: Stmt) -> Stmt:
    if not _meets(body):
        return body
    return _walk(body)


def _walk(node: Stmt) -> Stmt:
    match node:
        case If(cond, then, None) if _meets(then) and not _reads_on_the_way(then):
            return _spread(_walk(then), lambda s: If(cond, s, None))
        case _:
            return map_children(node, lambda c: _walk(c) if isinstance(c, Stmt) else c)


def _spread(s: Stmt, guarded: Wrap) -> Stmt:
    """The statement with `guarded` around each part between its barriers."""
    if not _meets(s):
        return guarded(s)
    match s:
        case Barrier():
            return s
        case Seq(stmts):
            return seq(*(_spread(x, guarded) for x in stmts))
        case For(var, begin, extent, kind, body, thread):
            return For(var, begin, extent, kind, _spread(body, guarded), thread)
        case Let(var, value, body):
            return Let(var, value, _spread(body, guarded))
        case Alloc(buffer, body):
            return Alloc(buffer, _spread(body, guarded))
        case _:  # both sides of a condition have barriers; every thread of a block takes the same side
            return guarded(s)


def _reads_on_the_way(s: Stmt) -> bool:
    """Whether a barrier is inside a Let that reads memory, since only the condition makes this read legal."""
    match s:
        case Let(_, value, body):
            return _meets(body) and (any_node(value, _is_load) or _reads_on_the_way(body))
        case Seq(stmts):
            return any(_reads_on_the_way(x) for x in stmts)
        case For() | Alloc():
            return _reads_on_the_way(s.body)
        case If(_, then, otherwise):
            return _reads_on_the_way(then) or (otherwise is not None and _reads_on_the_way(otherwise))
        case _:
            return False


def _meets(s: Stmt) -> bool:
    return contains(s, Barrier)


def _is_load(n: Node) -> bool:
    return isinstance(n, Load)
