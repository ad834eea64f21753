"""unify: one variable for each thread axis, around the whole kernel.

    for i.0 in bind(4, "blockIdx.x"):                     for bx in bind(4, "blockIdx.x"):
      for c in bind(16, "threadIdx.x"): S[c] = …            for tx in bind(32, "threadIdx.x"):
      for i.1 in bind(32, "threadIdx.x"): C[…] = …    ──▶     if tx < 16: S[tx] = …
                                                              C[…] = …

A loop that is shorter than the axis becomes a condition. An element that all threads share is stored once: by
thread 0 of every axis to which no loop around the store is bound. Loops of a schedule for CPUs run here, too:
a PARALLEL loop becomes blocks.
"""

from __future__ import annotations

from autotensor.base.errors import LoweringError
from autotensor.ir.expr import Cmp, Const, Expr, Load, Var, all_of, compare, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import map_children
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import Alloc, Barrier, For, ForKind, If, Let, Seq, Stmt, Store, for_range, seq
from autotensor.ir.visit import any_node, collect, free_vars, walk
from autotensor.te.thread import BLOCK_AXES, THREAD_AXES

AXES = (*reversed(BLOCK_AXES), *reversed(THREAD_AXES))  # outermost first; x changes fastest

Axes = frozenset[str]


def axis_var(axis: str) -> Var:
    """The variable of a thread axis, which is the same in the whole kernel."""
    return Var(axis)


def thread_extents(body: Stmt) -> dict[str, int]:
    """Extents of the thread axes of a unified kernel."""
    found: dict[str, int] = {}
    while isinstance(body, For) and body.kind is ForKind.THREAD:
        assert isinstance(body.extent, Const)
        found[body.thread] = int(body.extent.value)
        body = body.body
    return found


def unify(body: Stmt) -> Stmt:
    body = _blocks_for_parallel(body)
    extents: dict[str, int] = {}
    for loop in collect(body, For):
        if loop.kind is not ForKind.THREAD:
            continue
        if not isinstance(loop.extent, Const) or not isinstance(loop.begin, Const) or loop.begin.value != 0:
            raise LoweringError(f"bind: loop {loop.var.name!r} has no constant extent from 0 on.")
        extents[loop.thread] = max(extents.get(loop.thread, 1), int(loop.extent.value))
    body = _Unifier(extents).stmt(body, ())
    for axis in reversed(AXES):
        if axis in extents:
            body = for_range(axis_var(axis), extents[axis], body, ForKind.THREAD, axis)
    return body


def _blocks_for_parallel(s: Stmt) -> Stmt:
    """The statement with its PARALLEL loop bound to blocks."""
    loops = collect(s, For)
    parallel = next((n for n in loops if n.kind is ForKind.PARALLEL), None)
    if parallel is None:
        return s
    if parallel is not s or any(n.thread in BLOCK_AXES for n in loops):
        raise LoweringError(
            f"parallel: loop {parallel.var.name!r} would run in turn: it is not outermost, or another loop "
            "has the blocks.",
            fix="Bind it to an axis of blocks.",
        )
    return For(s.var, s.begin, s.extent, ForKind.THREAD, s.body, "blockIdx.x")


class _Unifier:
    """extents: of all thread axes. `wide`: the axes with more than one thread."""

    def __init__(self, extents: dict[str, int]) -> None:
        self.extents = extents
        self.wide = frozenset(a for a, n in extents.items() if n > 1)
        self.depths: dict[Buffer, int] = {}  # number of thread loops around each shared buffer

    def stmt(self, s: Stmt, inside: tuple[str, ...]) -> Stmt:
        """inside: axes of the thread loops around a statement, outermost first."""
        match s:
            case For(var, _, Const(extent), ForKind.THREAD, body, axis):
                inner = self.stmt(substitute(body, {var: axis_var(axis)}), (*inside, axis))
                if int(extent) < self.extents[axis]:
                    return If(compare(Cmp.LT, axis_var(axis), const(int(extent))), inner)
                return inner
            case For(var, begin, extent, kind, body, thread):
                return _outside(For(var, begin, extent, kind, self.stmt(body, inside), thread), self.wide)
            case Let(var, value, body):
                return _outside(Let(var, value, self.stmt(body, inside)), self.wide)
            case Alloc(buffer, body):
                if buffer.scope is Scope.SHARED:
                    self.depths[buffer] = len(inside)
                return Alloc(buffer, self.stmt(body, inside))
            case Store():
                missing = self.wide - self.covered(s, inside)
                return If(_first(missing), s) if missing else s
            case Seq(stmts):
                return _joined(tuple(self.stmt(x, inside) for x in stmts))
            case _:
                return map_children(s, lambda c: self.stmt(c, inside) if isinstance(c, Stmt) else c)

    def covered(self, s: Store, inside: tuple[str, ...]) -> Axes:
        """The axes along which threads store different elements, or elements of their own.

        Shared memory is filled by the loops inside its allocation. In loops outside the allocation, all
        threads do the same, unless each thread has a row (nest/reduction/by_threads.py).
        """
        match s.buffer.scope:
            case Scope.GLOBAL:
                return frozenset(inside)
            case Scope.SHARED:
                rows = frozenset().union(*(free_vars(i) for i in s.indices))
                own = {a for a in self.wide if axis_var(a) in rows}
                return frozenset(inside[self.depths[s.buffer] :]) | own | (self.wide & set(BLOCK_AXES))
            case _:
                return self.wide


def _first(axes: Axes) -> Expr:
    """Whether a thread is the first along all of these axes."""
    return all_of(*(compare(Cmp.LT, axis_var(a), const(1)) for a in sorted(axes)))


def _outside(s: For | Let, wide: Axes) -> Stmt:
    """Turns `for …: if first: S` into `if first: for …: S`; so one thread computes variables, too."""
    match s.body:
        case If(cond, then, None) if _says_first(cond, wide) and not any_node(then, _is_barrier):
            if isinstance(s, Let):
                return If(cond, Let(s.var, s.value, then))
            return If(cond, For(s.var, s.begin, s.extent, s.kind, then, s.thread))
        case _:
            return s


def _joined(stmts: tuple[Stmt, ...]) -> Stmt:
    """The statements, with neighbours under the same condition about threads joined under one condition."""
    out: list[Stmt] = []
    for s in stmts:
        last = out[-1] if out else None
        match last, s:
            case If(a, x, None), If(b, y, None) if a is b and _only_threads(a) and not _meet(x, y):
                out[-1] = If(a, seq(x, y))
            case _:
                out.append(s)
    return seq(*out)


def _meet(a: Stmt, b: Stmt) -> bool:
    """Whether a barrier may be needed between two statements."""
    return bool(_shared(a) & _shared(b))


def _shared(s: Stmt) -> set[Buffer]:
    return {n.buffer for n in walk(s) if isinstance(n, Load | Store) and n.buffer.scope is Scope.SHARED}


def _only_threads(cond: Expr) -> bool:
    return bool(free_vars(cond)) and all(v.name in AXES for v in free_vars(cond))


def _says_first(cond: Expr, wide: Axes) -> bool:
    return any(cond is _first(frozenset(c)) for c in _subsets(wide))


def _subsets(axes: Axes) -> list[Axes]:
    found: list[Axes] = [frozenset()]
    for a in sorted(axes):
        found += [s | {a} for s in found]
    return [s for s in found if s]


def _is_barrier(node: object) -> bool:
    return isinstance(node, Barrier)


__all__ = ["AXES", "axis_var", "thread_extents", "unify"]
