"""barriers: lets the threads of a block wait for one another between conflicting accesses of shared memory.

    for k.0:                          for k.0:
      S[tx] = A[…]                      barrier("shared")      S was read in the iteration before
      C += S[…]                 ──▶     S[tx] = A[…]
                                        barrier("shared")
                                        C += S[…]

The pass visits the kernel in order, and keeps the accesses since the last barrier. Two accesses conflict if
they are to the same buffer and one of them writes, unless each thread provably has elements of its own, or
the accesses are in different stages of a buffer with several. A barrier is placed as far out as possible. It
cannot be placed where threads may diverge; then the pass raises `LoweringError`. `barrier_proof.py` proves
afterwards, by another method, that the barriers suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from autotensor.base.errors import LoweringError
from autotensor.ir.affine import affine
from autotensor.ir.bounds import Interval, bounds
from autotensor.ir.expr import Binary, Const, Expr, Load, Op, Var
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import map_children
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import NOTHING, Alloc, Barrier, For, ForKind, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import any_node, collect, free_vars, walk
from autotensor.lowering.gpu.unify import axis_var, thread_extents

BARRIER = Barrier("shared")


@dataclass(frozen=True, slots=True)
class PendingAccess:
    """A load or store of shared memory, with its indices over loop and thread variables."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    stale: frozenset[Var] = frozenset()  # variables of finished loops, which may have any value

    source: Stmt | None = None  # the store to which the access belongs
    later: tuple[Var, ...] = ()  # variables of loops that are one iteration further on

    @property
    def by_itself(self) -> bool:
        """Whether the access is part of the computation of its own buffer."""
        return isinstance(self.source, Store) and self.source.buffer is self.buffer

    def one_turn_later(self, var: Var) -> PendingAccess:
        return replace(self, later=(*self.later, var))

    def now(self) -> tuple[Expr, ...]:
        """The indices, with the variables of `later` one iteration further on."""
        return tuple(substitute(i, {v: v + 1 for v in self.later}) for i in self.indices)


Pending = frozenset[PendingAccess]
NONE: Pending = frozenset()


def barriers(body: Stmt) -> Stmt:
    if not any(a.buffer.scope is Scope.SHARED for a in collect(body, Alloc)):
        return body
    axes = {a: n for a, n in thread_extents(body).items() if a.startswith("threadIdx")}
    threads = frozenset(axis_var(a) for a, n in axes.items() if n > 1)
    if not threads:
        return body
    return _Inserter(axes, threads).stmt(body, NONE, {})[0]


class _Inserter:
    """Inserts the barriers. threads: the variables that differ between the threads of a block."""

    def __init__(self, axes: Mapping[str, int], threads: frozenset[Var]) -> None:
        self.threads = threads
        self.known = bounds({axis_var(a): Interval(0, n - 1) for a, n in axes.items()})
        # number of enclosing conditions that differ between threads, under which no barrier can be placed
        self.parted = 0

    def stmt(self, s: Stmt, pending: Pending, lets: Mapping[Var, Expr]) -> tuple[Stmt, Pending]:
        """The statement with its barriers, and the accesses since the last barrier.

        pending: the accesses before the statement. lets: the values of the variables that are defined around
        it.
        """
        if not isinstance(s, Seq) and self.conflict(pending, self.accesses(s, lets)):
            new, left = self.stmt(s, NONE, lets)
            return (new if _begins_with_one(new) else seq(BARRIER, new)), left
        match s:
            case Seq(stmts):
                out: list[Stmt] = []
                for x in stmts:
                    new, pending = self.stmt(x, pending, lets)
                    out.append(new)
                return seq(*out), pending
            case For():
                return self._loop(s, pending, lets)
            case If(cond, then, otherwise):
                return self._branches(cond, then, otherwise, pending, lets)
            case Let(var, value, body):
                inner = {**lets, var: substitute(value, lets)} if lets else {var: value}
                new, left = self.stmt(body, pending | self.accesses_of(value, lets), inner)
                return Let(var, value, new), left
            case Alloc(buffer, body):
                new, left = self.stmt(body, pending, lets)
                return Alloc(buffer, new), left
            case _:
                return s, pending | self.accesses(s, lets)

    def _loop(self, s: For, pending: Pending, lets: Mapping[Var, Expr]) -> tuple[Stmt, Pending]:
        body, left = self.stmt(s.body, pending, lets)
        if s.kind is not ForKind.THREAD:
            first = (a.one_turn_later(s.var) for a in self.first_phase(body, lets))
            if self.conflict(left, first):
                body, left = self.stmt(s.body, NONE, lets)
                body = seq(BARRIER, body)
            left = frozenset(replace(a, stale=a.stale | {s.var}) for a in left)
        return For(s.var, s.begin, s.extent, s.kind, body, s.thread), left

    def _branches(
        self,
        cond: Expr,
        then: Stmt,
        otherwise: Stmt | None,
        pending: Pending,
        lets: Mapping[Var, Expr],
    ) -> tuple[Stmt, Pending]:
        reads = self.accesses_of(cond, lets)
        parts = bool(free_vars(substitute(cond, lets)) & self.threads)
        self.parted += parts
        known = self.known
        self.known = known.assuming(substitute(cond, lets)) if parts else known
        yes, left = self.stmt(then, pending | reads, lets)
        self.known = known
        no, other = (None, pending) if otherwise is None else self.stmt(otherwise, pending | reads, lets)
        self.parted -= parts
        if parts and any(x is not None and any_node(x, _is_barrier) for x in (yes, no)):
            raise LoweringError(
                f"barriers: threads would have to wait for one another under `{cond}`, which not all enter.",
                fix="Compute what they share outside of that condition, or bind a loop of the full extent.",
            )
        return If(cond, yes, no), left | other | reads

    # -- accesses --------------------------------------------------------------------------------------------
    def accesses(self, s: Stmt, lets: Mapping[Var, Expr]) -> Pending:
        """All accesses of shared memory in a statement."""
        match s:
            case Let(var, value, body):
                inner = {**lets, var: substitute(value, lets)}
                return self.accesses_of(value, lets) | self.accesses(body, inner)
            case Store(buffer, indices, value, mask):
                found = self.accesses_of(value, lets, s)
                for e in (*indices, *(() if mask is None else (mask,))):
                    found |= self.accesses_of(e, lets, s)
                if buffer.scope is Scope.SHARED:
                    found |= {
                        PendingAccess(buffer, tuple(substitute(i, lets) for i in indices), True, source=s)
                    }
                return found
            case _:
                out = NONE
                for child in _parts(s):
                    out |= (
                        self.accesses(child, lets)
                        if isinstance(child, Stmt)
                        else self.accesses_of(child, lets)
                    )
                return out

    def accesses_of(self, e: Expr, lets: Mapping[Var, Expr], source: Stmt | None = None) -> Pending:
        return frozenset(
            PendingAccess(n.buffer, tuple(substitute(i, lets) for i in n.indices), False, source=source)
            for n in walk(e)
            if isinstance(n, Load) and n.buffer.scope is Scope.SHARED
        )

    def first_phase(self, s: Stmt, lets: Mapping[Var, Expr]) -> Pending:
        """Accesses that may happen before the first barrier in a statement."""
        return self._until_barrier(s, lets)[0]

    def _until_barrier(self, s: Stmt, lets: Mapping[Var, Expr]) -> tuple[Pending, bool]:
        """The same accesses, and whether every path through the statement has a barrier."""
        match s:
            case Barrier():
                return NONE, True
            case Seq(stmts):
                found = NONE
                for x in stmts:
                    more, met = self._until_barrier(x, lets)
                    found |= more
                    if met:
                        return found, True
                return found, False
            case For(_, _, _, kind, body):
                found, met = self._until_barrier(body, lets)
                return found, met and (kind is ForKind.THREAD or isinstance(s.extent, Const))
            case Let(var, value, body):
                found, met = self._until_barrier(body, {**lets, var: substitute(value, lets)})
                return found | self.accesses_of(value, lets), met
            case Alloc(_, body):
                return self._until_barrier(body, lets)
            case If(cond, then, otherwise):
                found, met = self._until_barrier(then, lets)
                other, both = (NONE, False) if otherwise is None else self._until_barrier(otherwise, lets)
                return found | other | self.accesses_of(cond, lets), met and both
            case _:
                return self.accesses(s, lets), False

    # -- conflicts -------------------------------------------------------------------------------------------
    def conflict(self, before: Pending, after: Iterable[PendingAccess]) -> bool:
        if not before:
            return False
        return any(
            a.buffer is b.buffer and (a.writes or b.writes) and not self.apart(a, b)
            for b in after
            for a in before
        )

    def apart(self, a: PendingAccess, b: PendingAccess) -> bool:
        """Whether the two never conflict: each thread has its own elements, or their stages differ.

        A statement stores different elements in its iterations, and each element from one thread. This also
        holds for sums, and for elements that are cleared and summed where no barrier can be placed.
        """
        if all(x is y for x, y in zip(a.indices, b.indices, strict=True)):
            one = a.source is not None and a.source is b.source
            inside = self.parted > 0 and a.by_itself and b.by_itself
            if one or inside or self.threads <= frozenset().union(*(free_vars(i) for i in a.indices)):
                return True
        pairs = list(zip(a.now(), b.now(), strict=True))
        if any(self._elsewhere(x, y) for x, y in pairs) or (self.parted and self._alone()):
            return True
        return any(other_stage(x, y) and not free_vars(x) & a.stale for x, y in pairs)

    def _alone(self) -> bool:
        """Whether the conditions hold for only one thread."""
        return all(r.lo == r.hi for r in map(self.known.of, self.threads))

    def _elsewhere(self, x: Expr, y: Expr) -> bool:
        """Whether the two indices have no value in common, for any threads."""
        p, q = self.known.of(x), self.known.of(y)
        return (p.hi is not None and q.lo is not None and p.hi < q.lo) or (
            q.hi is not None and p.lo is not None and q.hi < p.lo
        )


def other_stage(a: Expr, b: Expr) -> bool:
    """Whether (x + c) % n and (x + d) % n differ for every x.

    >>> k = Var("k")
    >>> other_stage(k % 2, (k + 1) % 2), other_stage(k % 2, (k + 2) % 2)
    (True, False)
    """
    match a, b:
        case Binary(Op.MOD, x, Const(n)), Binary(Op.MOD, y, Const(m)) if n == m:
            p, q = affine(x), affine(y)
            if p is None or q is None:
                return False
            d = p.minus(q)
            return not d.terms and d.constant % int(n) != 0
    return False


def _begins_with_one(s: Stmt) -> bool:
    """Whether a loop's body begins with a barrier."""
    first = s.body if isinstance(s, For) else NOTHING
    while isinstance(first, Alloc | Seq) and first is not NOTHING:
        first = first.body if isinstance(first, Alloc) else first.stmts[0]
    return isinstance(first, Barrier)


def _parts(s: Stmt) -> list[Stmt | Expr]:
    found: list[Stmt | Expr] = []

    def see(c: object) -> object:
        if isinstance(c, Stmt | Expr):
            found.append(c)
        return c

    map_children(s, see)
    return found


def _is_barrier(node: object) -> bool:
    return isinstance(node, Barrier)
