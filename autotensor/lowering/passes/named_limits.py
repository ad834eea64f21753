"""named limits: numbers from memory that end a sum are read before its loop, and get a name.

    for k in range(64):                                   k.0 = p[i];  k.1 = p[i + 1]
      C[i] = select(p[i] + k < p[i + 1],          ──▶     for k in range(64):
                    C[i] + A[p[i] + k], C[i])               if k.0 + k < k.1: C[i] = C[i] + A[k.0 + k]

`partition` then ends the loop where the terms end: rows of a sparse matrix, or sequences of different
lengths.

Limits that keep indices inside their buffer are tested before the loop, too. If the test fails, the loop
keeps its limits:

    … A[max(min(p[i] + k, n - 1), 0)]             ──▶     if k.0 >= 0 and k.1 <= n: for k: … A[k.0 + k]
                                                          else: for k: … A[max(min(k.0 + k, n - 1), 0)]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotensor.base.dtype import int64
from autotensor.ir.affine import Affine, affine, excess, to_expr, without_limits
from autotensor.ir.bounds import NO_RANGES, Bounds, Interval, bounds
from autotensor.ir.expr import (
    Binary,
    Cmp,
    Compare,
    Const,
    Expr,
    Load,
    Op,
    Select,
    Var,
    all_of,
    compare,
    conjuncts,
    const,
)
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.simplify import Simplifier
from autotensor.ir.stmt import Alloc, For, ForKind, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import collect, contains, free_vars
from autotensor.lowering.index_limits import extreme
from autotensor.lowering.passes.loop_guards import bound_inside, comparisons
from autotensor.lowering.passes.protect_loads import in_bounds

NARROW = 1 << 40  # sums of such data with indices do not wrap around in 64 bits
TESTS = 4  # most tests before a loop

Vars = frozenset[Var]


def name_limits(body: Stmt) -> Stmt:
    if not any(_choice(s) is not None for s in collect(body, Store)):
        return body
    return _visit(body, bounds(NO_RANGES), frozenset())


def _visit(s: Stmt, known: Bounds, lanes: Vars) -> Stmt:
    """lanes: the variables of vectorized loops around the statement."""
    match s:
        case For(var, begin, extent, kind, inner, thread):
            found = _limits(s, known, lanes) if kind is ForKind.SERIAL else []
            if found:
                return _named(s, found, known, lanes)
            lanes = lanes | {var} if kind is ForKind.VECTORIZED else lanes
            inside = _visit(inner, known.in_loop(var, begin, extent), lanes)
            return For(var, begin, extent, kind, inside, thread)
        case Let(var, value, inner):
            return Let(var, value, _visit(inner, known.in_let(var, value), lanes))
        case If(cond, then, otherwise):
            other = None if otherwise is None else _visit(otherwise, known.assuming(cond, False), lanes)
            return If(cond, _visit(then, known.assuming(cond), lanes), other)
        case Seq(stmts):
            return seq(*(_visit(x, known, lanes) for x in stmts))
        case Alloc(buffer, inner):
            return Alloc(buffer, _visit(inner, known, lanes))
        case _:
            return s


def _choice(s: Store) -> Select | None:
    """The Select of a store that, depending on data, keeps the old value."""
    match s.value:
        case Select(cond, _, Load(b, i, None)) as found if b is s.buffer and i == s.indices:
            return found if s.mask is None and contains(cond, Load) else None
    return None


@dataclass(frozen=True, slots=True)
class _Limit:
    """A comparison that leaves out the terms of a loop from some iteration on, and its parts from memory."""

    cond: Compare
    total: Affine  # at most 0 if the comparison holds
    read: tuple[Expr, ...]


def _limits(loop: For, known: Bounds, lanes: Vars) -> list[_Limit]:
    """The limits of a loop's stores that read the same values in all iterations."""
    written = {s.buffer for s in collect(loop, Store)}
    turning = {x.var for x in collect(loop, For) if x.kind is ForKind.SERIAL}
    bound = bound_inside(loop) | lanes
    found: dict[Compare, _Limit] = {}

    def may_be_first(term: Expr) -> bool:
        """Whether the limit can be read before the loop, and has the same value there."""
        loads = collect(term, Load)
        steady = not free_vars(term) & bound and not written.intersection(x.buffer for x in loads)
        return steady and all(in_bounds(x, known) for x in loads)

    for choice, inner in _choices(loop, known):
        for cond in comparisons(choice.cond):
            total = excess(cond) if contains(cond, Load) and cond.a.dtype == int64 else None
            if total is None or not any(total.coefficient(v) > 0 for v in turning):
                continue
            read = tuple(t for t in total.terms if contains(t, Load))
            if all(may_be_first(t) and inner.of(t).within(Interval(-NARROW, NARROW)) for t in read):
                found[cond] = _Limit(cond, total, read)
    return [*found.values()]


def _choices(s: Stmt, known: Bounds) -> Iterator[tuple[Select, Bounds]]:
    """The Selects of stores inside, each with the bounds at its place."""
    match s:
        case For(var, begin, extent, _, body):
            yield from _choices(body, known.in_loop(var, begin, extent))
        case Let(var, value, body):
            yield from _choices(body, known.in_let(var, value))
        case If(_, then, otherwise):
            for x in (then, *(() if otherwise is None else (otherwise,))):
                yield from _choices(x, known)
        case Seq(stmts):
            for x in stmts:
                yield from _choices(x, known)
        case Alloc(_, body):
            yield from _choices(body, known)
        case Store() if (choice := _choice(s)) is not None:
            yield choice, known


def _named(loop: For, limits: list[_Limit], known: Bounds, lanes: Vars) -> Stmt:
    """The loop inside variables that hold the values which its limits read."""
    terms = dict.fromkeys(t for limit in limits for t in limit.read)
    names: dict[Expr, Expr] = {t: Var(f"{loop.var.name}:limit{n}", t.dtype) for n, t in enumerate(terms)}
    left_out = {substitute(limit.cond, names) for limit in limits}

    def guarded(node: Node) -> Node | None:
        """A store that does nothing if a limit fails; before this pass, it then stored the old value."""
        match node:
            case Store(b, i, Select(cond, then, Load(same, at, None)), None) if b is same and i == at:
                taken = [c for c in conjuncts(cond) if c in left_out]
                left = [c for c in conjuncts(cond) if c not in taken]
                value = Select(all_of(*left), then, node.value.otherwise) if left else then  # type: ignore[attr-defined]
                return If(all_of(*taken), Store(b, i, value)) if taken else None
        return None

    inside = transform(substitute(loop, names), guarded)
    totals = [_renamed(limit.total, names) for limit in limits]
    for term, var in names.items():
        assert isinstance(var, Var)
        known = known.in_let(var, term)
    tests = _tests(inside, totals, known, lanes)
    out: Stmt = inside
    if tests:
        cond = all_of(*tests)
        out = If(cond, Simplifier(known.assuming(cond)).stmt(inside), loop)
    for term, var in names.items():
        assert isinstance(var, Var)
        out = Let(var, term, out)
    return out


def _renamed(total: Affine, names: Mapping[Expr, Expr]) -> Affine:
    return Affine({names.get(t, t): k for t, k in total.terms.items()}, total.constant, total.dtype)


def _tests(loop: For, totals: list[Affine], known: Bounds, lanes: Vars) -> list[Expr]:
    """Conditions, the same for all iterations, under which the limits of indices change nothing.

    [] if there are none, or if some limit has no such condition.
    """
    bound, ranges = bound_inside(loop) | lanes, _ranges(loop, known)
    found: dict[Expr, None] = {}
    for needed in _kept_inside(loop):
        if not any(v in t.terms for v in needed.terms if v not in bound for t in totals):
            continue  # this index depends on other data
        test = _implied(needed, totals, bound, ranges)
        if test is None:
            return []
        if ranges.decide(test) is not True:
            found[test] = None
    return [*found] if len(found) <= TESTS else []


def _ranges(loop: For, known: Bounds) -> Bounds:
    for x in collect(loop, For):
        known = known.in_loop(x.var, x.begin, x.extent)
    return known


def _kept_inside(loop: For) -> Iterator[Affine]:
    """Sums that must be at most 0 for the limits of indices to change nothing."""
    for load in collect(loop, Load):
        for e in (b for i in load.indices for b in collect(i, Binary)):
            if e.op in (Op.MIN, Op.MAX) and isinstance(e.b, Const) and e.dtype == int64:
                total = affine(without_limits(e))
                if total is not None:
                    yield (
                        total.shift(-int(e.b.value))
                        if e.op is Op.MIN
                        else total.scale(-1).shift(int(e.b.value))
                    )


def _implied(needed: Affine, totals: list[Affine], bound: Vars, ranges: Bounds) -> Expr | None:
    """A condition, the same for all iterations, from which `needed <= 0` follows wherever there is a term."""
    for total in totals:  # needed = rest + m * total, and total <= 0 wherever there is a term
        for v in bound.intersection(total.terms):
            m, left = divmod(needed.coefficient(v), total.coefficient(v))
            rest = needed.plus(total, -m)
            if m > 0 and not left and not any(free_vars(t) & bound for t in rest.terms):
                return compare(Cmp.LE, to_expr(rest), const(0))
    gone = {t: k for t, k in needed.terms.items() if free_vars(t) & bound}
    most = extreme(gone, ranges, always=True)
    if most is None:
        return None
    others = {t: k for t, k in needed.terms.items() if t not in gone}
    return compare(Cmp.LE, to_expr(Affine(others, needed.constant + most, needed.dtype)), const(0))


__all__ = ["name_limits"]
