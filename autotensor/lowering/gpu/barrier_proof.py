"""check: proves that the barriers of a kernel suffice, independently of the pass that placed the barriers.

Two accesses of one buffer in shared memory form a pair if one of them is a write, and if some path through
the kernel has no barrier between them. Two threads must not reach the same element by such a pair. Every pair
is checked, and all its addresses are computed: for all threads of a block, for all iterations of the loops
that run between two barriers, and for all lanes. A term that moves both addresses by the same amount is left
out.

    for k:                                 pairs: store S (k), store S (k)
      barrier                                     store S (k), load S (k)      ──▶  a barrier lies between
      S[tx] = …                                   load S (k), store S (k+1)    ──▶  a barrier lies between
      barrier
      C += S[(tx + 1) % 32]

Asynchronous stores happen at any time from their statement until they are awaited, and no thread may touch
their elements meanwhile. They are ordered after prior instructions of the same thread (PTX ISA, memory
consistency model). Loops with these stores are checked iteration by iteration. Conditions are taken into
account if their values are known; otherwise they are assumed to hold. A schedule that cannot be proved is
refused, and the message shows the two accesses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm, prod

import numpy as np

from autotensor.base.errors import LoweringError
from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Call, Cmp, Const, Expr, Load, Neg, Op, Unary, Var, compare, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.lane_offsets import in_lane
from autotensor.ir.node import children
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import (
    Alloc,
    Async,
    Await,
    Barrier,
    Commit,
    Evaluate,
    For,
    ForKind,
    If,
    Let,
    Seq,
    Stmt,
    Store,
)
from autotensor.ir.visit import any_node, contains, free_vars, walk
from autotensor.lowering.gpu.index_values import Values, held, values_of

MOST_POINTS = 1 << 22  # most addresses that are computed for one access: they take a few milliseconds
MOST_TURNS = 512  # most combinations of values of the loops around a pair
LANE = "lane"
PERIOD = 12  # iterations after which boxes of 2, 3 and 4 iterations are in the same places again


@dataclass(frozen=True, slots=True)
class Access:
    """A load or store of shared memory on one path through the kernel."""

    buffer: Buffer
    at: Expr | None  # flat index; None means any index
    writes: bool
    conditions: tuple[Expr, ...]
    own: frozenset[Var]  # variables that take all values, independently of the other access
    verb: str
    place: Stmt
    flying: bool = False  # an asynchronous store, which may happen at any time from now on
    loops: frozenset[Var] = frozenset()  # variables of the surrounding loops that run between two barriers

    @property
    def shown(self) -> str:
        return f"{self.verb} in `{_first(self.place)}`"

    def running(self, var: Var) -> Access:
        """The access, if the variable may have any value."""
        return replace(self, own=self.own | {var})

    def where(self, var: Var, condition: Expr) -> Access:
        """The access under a condition on the variable, if its address depends on the variable."""
        if self.at is None or var not in free_vars(self.at):
            return self
        return replace(self, conditions=(*self.conditions, condition))

    @property
    def vars(self) -> frozenset[Var]:
        return frozenset().union(
            *(free_vars(e) for e in (*self.conditions, *(() if self.at is None else (self.at,))))
        )


@dataclass(frozen=True, slots=True)
class _Way:
    """A path through the kernel, up to a statement."""

    env: Mapping[Var, Expr] = field(default_factory=dict)  # values of variables on this path
    conditions: tuple[Expr, ...] = ()
    own: frozenset[Var] = frozenset()
    parted: bool = False  # under a condition that depends on the thread
    known: bool = False  # iterations of a surrounding loop are checked one by one

    def value(self, e: Expr) -> Expr:
        value = substitute(e, self.env) if self.env else e
        return simplify(value) if self.known else value


def check(body: Stmt) -> Stmt:
    """Returns the body. Raises LoweringError if the barriers do not suffice.

    This is so if two threads may reach an element of shared memory without a barrier between them, or if only
    some threads of a block come to a barrier.
    """
    if any_node(body, _concerns):
        _Prover().run(body)
    return body


def _concerns(n: object) -> bool:
    match n:
        case Barrier() | Call("shuffle_xor"):
            return True
        case Alloc(buffer):
            return _is_shared(buffer)
    return False


def _is_shared(b: Buffer) -> bool:
    return b.scope is Scope.SHARED


class _Prover:
    def __init__(self) -> None:
        self.sizes: dict[Var, tuple[int, int]] = {}  # begin and extent of loop variables and of lanes
        self.threads: list[Var] = []
        self.since: list[Access] = []  # the accesses since the last barrier
        self.proved: set[tuple[Access, Access]] = set()
        # asynchronous stores that were not awaited; the last group is still open
        self.groups: list[list[Access]] = [[]]
        self.later = False  # inside an asynchronous store

    def run(self, body: Stmt) -> None:
        while isinstance(body, For) and body.kind is ForKind.THREAD:
            self._size(body)
            if body.thread.startswith("threadIdx"):
                self.threads.append(body.var)
            body = body.body
        if any(self.sizes[t][1] > 1 for t in self.threads):
            self.stmt(body, _Way())

    def _size(self, loop: For) -> None:
        if not isinstance(loop.begin, Const) or not isinstance(loop.extent, Const):
            raise LoweringError(f"check: loop {loop.var.name!r} of a GPU kernel has no constant extent.")
        self.sizes[loop.var] = (int(loop.begin.value), int(loop.extent.value))

    # -- paths through the kernel ----------------------------------------------------------------------------
    def stmt(self, s: Stmt, way: _Way) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    self.stmt(x, way)
            case Alloc(_, body):
                self.stmt(body, way)
            case Let(var, value, body):
                self.reads(value, way, s)
                self.stmt(body, replace(way, env={**way.env, var: way.value(value)}))
            case Barrier():
                if way.parted:
                    raise LoweringError(
                        "check: a barrier stands under a condition that depends on the thread: "
                        f"`{' and '.join(str(c) for c in way.conditions)}`."
                    )
                self.since = [a for group in self.groups for a in group]
            case Async(store):
                self.later = True
                self.stmt(store, way)
                self.later = False
            case Commit():
                self.groups.append([])
            case Await(left):
                self._arrive(left)
            case If():
                self._branches(s, way)
            case For():
                self._loop(s, way)
            case Store(buffer, indices, value, mask):
                if way.parted and isinstance(value, Call) and value.name == "shuffle_xor":
                    raise LoweringError(
                        f"check: lanes exchange values in `{_first(s)}` under a condition that depends on "
                        f"the thread: `{' and '.join(str(c) for c in way.conditions)}`."
                    )
                under = way
                if mask is not None:
                    self.reads(mask, way, s)
                    under = self._under(way, mask)
                for e in (*indices, value):
                    self.reads(e, under, s)
                if _is_shared(buffer):
                    self.access(buffer, indices[0], True, None, under, s)
            case Evaluate(value):
                self.reads(value, way, s)

    def _arrive(self, left: int) -> None:
        """All groups except the last `left` have arrived: their stores count as finished from now on."""
        closed, begun = self.groups[:-1], self.groups[-1]
        cut = max(0, len(closed) - left)
        landed = {a for group in closed[:cut] for a in group}
        self.groups = [*closed[cut:], begun]
        still = {a for group in self.groups for a in group}
        self.since = list(
            dict.fromkeys(replace(a, flying=False) if a in landed - still else a for a in self.since)
        )

    def _under(self, way: _Way, cond: Expr, holds: bool = True) -> _Way:
        known = way.value(cond)
        return replace(way, conditions=(*way.conditions, known if holds else Unary(Neg.NOT, known)))

    def _branches(self, s: If, way: _Way) -> None:
        self.reads(s.cond, way, s)
        value = way.value(s.cond)
        if isinstance(value, Const):  # known, because iterations are checked one by one
            taken = s.then if value.value else s.otherwise
            if taken is not None:
                self.stmt(taken, way)
            return
        parted = way.parted or self._differs(way.value(s.cond))
        before = list(self.since)  # without the groups: a condition around one wait is around all waits
        self.stmt(s.then, replace(self._under(way, s.cond), parted=parted))
        after, self.since = self.since, before
        if s.otherwise is not None:
            self.stmt(s.otherwise, replace(self._under(way, s.cond, False), parted=parted))
        self.since = list(dict.fromkeys((*self.since, *after)))

    def _differs(self, cond: Expr) -> bool:
        """Whether a condition may differ between threads; a condition that reads memory may."""
        wide = {t for t in self.threads if self.sizes[t][1] > 1}
        return bool(free_vars(cond) & wide) or any(
            isinstance(n, Load) and n.buffer.scope is not Scope.GLOBAL for n in walk(cond)
        )

    def _loop(self, s: For, way: _Way) -> None:
        self._size(s)
        var, turns = s.var, self.sizes[s.var][1]
        if turns == 0:
            return
        if _has_groups(s.body):
            for turn in _some_turns(turns):
                at = const(self.sizes[var][0] + turn, var.type)
                self.stmt(s.body, replace(way, env={**way.env, var: at}, known=True))
            return
        if not contains(s.body, Barrier):
            self.stmt(s.body, replace(way, own=way.own | {var}))
            return
        self.stmt(s.body, way)
        if turns > 1:
            if _always_meets(s.body):
                before = {*self.since, *(a for group in self.groups for a in group)}
                before |= {replace(a, flying=False) for a in before}  # copies that will have arrived
                self.stmt(s.body, replace(way, env={**way.env, var: way.value(var + 1)}))
                there = compare(Cmp.LT, var + 1, const(self.sizes[var][0] + turns, var.type))
                self.since = [a if a in before else a.where(var, there) for a in self.since]
            else:  # two barriers may have any two iterations between them
                self.since = [a.running(var) for a in self.since]
                self.stmt(s.body, way)
        self.since = [a.running(var) for a in self.since]

    # -- accesses --------------------------------------------------------------------------------------------
    def reads(self, e: Expr, way: _Way, s: Stmt) -> None:
        for n in walk(e):
            if isinstance(n, Load) and _is_shared(n.buffer):
                self.access(n.buffer, n.indices[0], False, n.mask, way, s)

    def access(
        self, buffer: Buffer, index: Expr, writes: bool, mask: Expr | None, way: _Way, s: Stmt
    ) -> None:
        at: Expr | None = way.value(index)
        conditions = way.conditions if mask is None else (*way.conditions, way.value(mask))
        own = way.own
        if index.dtype.lanes > 1:
            number = Var(f"{LANE}{index.dtype.lanes}")
            self.sizes[number] = (0, index.dtype.lanes)
            at = None if at is None else in_lane(at, number)
            conditions = tuple(c for c in (in_lane(c, number) for c in conditions) if c is not None)
            own = own | {number}
        if at is not None:
            at, ranges = held(at)
            self.sizes.update(ranges)
            own = own.union(ranges)
        verb = "copy" if self.later and writes else "store" if writes else "load"
        a = Access(buffer, at, writes, conditions, own, verb, s, self.later and writes, way.own)
        if a.flying:
            self.groups[-1].append(a)
        for b in (*self.since, *((a,) if writes else ())):
            if b.buffer is buffer and (a.writes or b.writes) and (a, b) not in self.proved:
                self._prove(b, a)
                self.proved.add((a, b))
        self.since.append(a)

    def _prove(self, a: Access, b: Access) -> None:
        """Raises LoweringError if two threads may touch the same element, one in each access.

        `a` comes first. Accesses by the same thread also count in two cases: if `a` has not arrived yet, or
        if `b` has not arrived and `a` may follow in a later iteration of a loop around both.
        """
        if a.at is None or b.at is None:
            self._fail(a, b, "an index that is not known before the kernel runs")
            return
        around = (a.vars | b.vars) - self._inner(a) - self._inner(b)
        moving = [v for v in around if not _moves_alike(v, a.at, b.at)]
        for v in sorted(around - set(moving), key=lambda v: v.name):  # conditions may depend on them
            if prod(self.sizes.get(x, (0, 0))[1] for x in (*moving, v)) <= MOST_TURNS and v in self.sizes:
                moving.append(v)
        alone = a is not b and (a.flying or (b.flying and bool(a.loops & b.loops)))
        for turn in self._turns(a, b, moving):
            first, second = self._owners(a, turn), self._owners(b, turn)
            if first is None or second is None:
                self._fail(a, b, "indices that cannot be counted out")
                return
            bad = _meet(first, second, alone)
            if bad is not None:
                at, one, other = bad
                self._fail(a, b, f"element {at}, of thread {one} and thread {other}")

    def _fail(self, a: Access, b: Access, what: str) -> None:
        without = "before a copy has arrived" if a.flying or b.flying else "without a barrier between"
        raise LoweringError(
            f"check: two threads may meet in {a.buffer.name!r} {without}: {a.shown} and {b.shown}, {what}."
        )

    def _inner(self, a: Access) -> frozenset[Var]:
        return a.own | frozenset(self.threads)

    def _turns(self, a: Access, b: Access, around: Sequence[Var]) -> Iterator[dict[Var, Values]]:
        """Values of the variables that both accesses share, in all combinations that may differ."""
        ranges = []
        for v in around:
            begin, extent = self.sizes.get(v, (0, 0))
            period = _period(v, [e for e in (a.at, b.at, *a.conditions, *b.conditions) if e is not None])
            ranges.append(range(begin, begin + min(extent, period or extent)))
        if prod(len(r) for r in ranges) > MOST_TURNS:
            self._fail(a, b, f"indices that depend on {', '.join(v.name for v in around)} in too many ways")
        for values in itertools.product(*ranges):
            yield {v: np.asarray(x) for v, x in zip(around, values, strict=True)}

    def _owners(self, a: Access, turn: Mapping[Var, Values]) -> tuple[Values, Values, Values] | None:
        """The addresses that are touched, each with the least and the greatest thread that touches it."""
        assert a.at is not None
        inner = sorted(self._inner(a) & a.vars | set(self.threads), key=lambda v: v.name)
        sizes = [self.sizes[v] for v in inner]
        if prod(n for _, n in sizes) > MOST_POINTS:
            return None
        grids = np.meshgrid(*(np.arange(b, b + n) for b, n in sizes), indexing="ij", sparse=True)
        env = {**turn, **dict(zip(inner, grids, strict=True))}
        rest = free_vars(a.at) - set(env)
        env.update({v: np.asarray(0) for v in rest})  # they move both addresses by the same amount
        at = values_of(a.at, env)
        if at is None:
            return None
        known = {v: x for v, x in env.items() if v not in rest}
        keep: Values = np.asarray(True)
        for c in a.conditions:
            holds = values_of(c, known)
            if holds is not None:
                keep = np.logical_and(keep, holds)
        number: Values = np.asarray(0)
        for t in self.threads:
            number = number * self.sizes[t][1] + env[t]
        at, number, keep = np.broadcast_arrays(at, number, keep)
        return _extremes(at[keep], number[keep])


def _extremes(at: Values, number: Values) -> tuple[Values, Values, Values]:
    order = np.lexsort((number, at))
    at, number = at[order], number[order]
    if not at.size:
        return at, number, number
    first = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1])))
    last = np.concatenate((first[1:], [at.size])) - 1
    return at[first], number[first], number[last]


def _meet(
    a: tuple[Values, Values, Values], b: tuple[Values, Values, Values], at_all: bool = False
) -> tuple[int, int, int] | None:
    """An address that two threads touch, one in each access, and these threads; None if there is none.

    at_all: also counts a single thread that touches an address in both accesses.
    """
    common, i, j = np.intersect1d(a[0], b[0], assume_unique=True, return_indices=True)
    one = (a[1][i] == a[2][i]) & (b[1][j] == b[2][j]) & (a[1][i] == b[1][j]) & (not at_all)
    bad = np.flatnonzero(~one)
    if not bad.size:
        return None
    n = int(bad[0])
    least, most = int(a[1][i[n]]), int(b[2][j[n]])
    if least == most:
        least, most = int(a[2][i[n]]), int(b[1][j[n]])
    return int(common[n]), least, most


def _has_groups(s: Stmt) -> bool:
    """Whether a loop with this body ends groups of copies, or waits for them, in its own iterations.

    Loops inside the body do not count.
    """
    if isinstance(s, For):
        return False
    return isinstance(s, Commit | Await) or any(_has_groups(c) for c in children(s) if isinstance(c, Stmt))


def _some_turns(turns: int) -> list[int]:
    """The iterations of a loop with copies for later iterations that are checked; all others are like these.

    An iteration depends on its number modulo the boxes' numbers (2, 3, 4); the last iterations differ.
    """
    if turns <= 3 * PERIOD:
        return list(range(turns))
    first = PERIOD + turns % PERIOD
    return [*range(first), *range(turns - PERIOD, turns)]


def _moves_alike(v: Var, a: Expr, b: Expr) -> bool:
    """Whether a variable adds the same to both addresses."""
    p, q = affine(a), affine(b)
    if p is None or q is None or p.coefficient(v) != q.coefficient(v):
        return v not in free_vars(a) | free_vars(b)
    return not any(v in free_vars(t) for x in (p, q) for t in x.terms if t is not v)


def _period(v: Var, exprs: Sequence[Expr]) -> int:
    """n, if the variable occurs only in (v*c + d) % m, so that n of its values are enough; 0 otherwise."""
    found = 1
    for e in exprs:
        for n in walk(e):
            match n:
                case Binary(Op.MOD, x, Const(m)) if v in free_vars(x):
                    total = affine(x)
                    if total is None or any(v in free_vars(t) for t in total.terms if t is not v):
                        return 0
                    found = lcm(found, int(m))
        without = _without_mods(e)
        if v in without:
            return 0
    return found if found > 1 else 0


def _without_mods(e: Expr) -> frozenset[Var]:
    """The variables that occur outside remainders."""
    match e:
        case Binary(Op.MOD, _, Const()):
            return frozenset()
        case Var():
            return frozenset((e,))
        case _:
            return frozenset().union(*(_without_mods(c) for c in children(e) if isinstance(c, Expr)))


def _always_meets(s: Stmt) -> bool:
    """Whether every path through a statement has a barrier."""
    match s:
        case Barrier():
            return True
        case Seq(stmts):
            return any(_always_meets(x) for x in stmts)
        case For() | Let() | Alloc():
            return _always_meets(s.body)
        case If(_, then, otherwise):
            return otherwise is not None and _always_meets(then) and _always_meets(otherwise)
        case _:
            return False


def _first(s: Stmt) -> str:
    return str(s).strip().split("\n", 1)[0]
