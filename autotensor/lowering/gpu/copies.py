"""copies: loads stages that are computed ahead into shared memory while threads compute.

    if k + 2 < n: S[(k + 2) % 3][tx] = A[…]            if k + 2 < n: later: S[(k + 2) % 3][tx] = A[…]
    commit()                                           commit()

Only whole copies of 4, 8 or 16 bytes can be asynchronous; other stores stay as they are. If no store can be
asynchronous, nothing is committed or awaited. The loop already has its commits and awaits
(`nest/when/prefetched_stages.py`). This pass puts each await right before a barrier, so that all threads may
read the elements that one thread has awaited.
"""

from __future__ import annotations

from math import copysign

from autotensor.codegen.c.copy_width import width_of_copy
from autotensor.ir.expr import Broadcast, Const, Expr, Load, Select
from autotensor.ir.func import Scope
from autotensor.ir.node import Node, map_children
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import NOTHING, Alloc, Async, Await, Barrier, Commit, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import collect, contains


def wait_before_meeting(body: Stmt) -> Stmt:
    """The body with each wait for copies right before a barrier. If there is no barrier, one is added."""
    if not contains(body, Await):
        return body
    return _ordered(body)


def _ordered(s: Stmt) -> Stmt:
    out: list[Stmt] = []
    for x in s.stmts if isinstance(s, Seq) else (s,):
        wait, rest = _taken(x)
        if wait is not None:
            # an earlier wait is never wrong, so the wait may move before a barrier
            met = out.pop() if out and isinstance(out[-1], Barrier) else Barrier("shared")
            out += [wait, met]
        out.append(map_children(rest, lambda c: _ordered(c) if isinstance(c, Stmt) else c))
    kept: list[Stmt] = []
    for x in out:  # barrier, commit, barrier: one barrier is enough
        if isinstance(x, Barrier) and _just_met(kept):
            continue
        kept.append(x)
    return seq(*kept)


def _just_met(before: list[Stmt]) -> bool:
    """Whether there are only commits since the last barrier."""
    last = next((x for x in reversed(before) if not isinstance(x, Commit) and x is not NOTHING), None)
    return isinstance(last, Barrier)


def _taken(s: Stmt) -> tuple[Stmt | None, Stmt]:
    """The wait with which a statement begins, and the rest of the statement."""
    match s:
        case Await():
            return s, NOTHING
        case Seq((first, *rest)):
            wait, other = _taken(first)
            return wait, seq(other, *rest)
        case Let(var, value, body):
            wait, other = _taken(body)
            return wait, Let(var, value, other)
        case Alloc(buffer, body):
            wait, other = _taken(body)
            return wait, Alloc(buffer, other)
        case If(cond, then, None):
            wait, other = _taken(then)
            return wait, If(cond, other)
    return None, s


def start_copies(body: Stmt) -> Stmt:
    """The body, with whole copies into boxes of later iterations made asynchronous."""
    if not contains(body, Await):
        return body
    written = {s.buffer for s in collect(body, Store)}

    def visit(node: Node) -> Node | None:
        copy = _with_zeros(node) if isinstance(node, Store) else None
        if copy is not None and copy_width(copy) and copy.value.buffer not in written:  # type: ignore[attr-defined]
            return Async(copy)
        return None

    started = transform(body, visit)
    if contains(started, Async):
        return started
    return transform(body, lambda n: NOTHING if isinstance(n, Commit | Await) else None)


def _with_zeros(s: Store) -> Store:
    """A store of loaded elements, with a masked load in place of a choice between loaded elements and zeros.

    The condition must be the same for all lanes.
    """
    match s.value:
        case Select(cond, Load(source, origin, mask), otherwise) if _is_zero(otherwise):
            wanted = _scalar(cond)
            if wanted.dtype.lanes == 1 and (mask is None or _scalar(mask) is wanted):
                return Store(s.buffer, s.indices, Load(source, origin, wanted), s.mask)
    return s


def _is_zero(e: Expr) -> bool:
    """Whether all bits of all lanes are 0, as a masked load leaves them."""
    inner = _scalar(e)
    return isinstance(inner, Const) and inner.value == 0 and copysign(1.0, inner.value) > 0


def _scalar(e: Expr) -> Expr:
    """The scalar of a Broadcast; any other expression as it is."""
    return e.a if isinstance(e, Broadcast) else e


def copy_width(s: Store) -> int:
    """The number of elements that one instruction copies, if the store can be asynchronous; 0 for others."""
    match s:
        case Store(buffer, (index,), Load(source, (origin,), mask), None) if (
            buffer.turns
            and buffer.scope is Scope.SHARED
            and source.scope is Scope.GLOBAL
            and source.dtype is buffer.dtype
            and (mask is None or mask.dtype.lanes == 1)
        ):
            return width_of_copy(buffer, index, origin)
    return 0


__all__ = ["copy_width", "start_copies", "wait_before_meeting"]
