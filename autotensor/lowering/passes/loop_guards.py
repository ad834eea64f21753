"""The guards inside a statement: conditions of Ifs, masks of loads, and masks that loads will get.

guards(loop, known, …)         [(i.0*8 + i.1 < 50, the bounds there), …]        `partition` cuts loops by it
guards_of_loads(body, known)   {B[i] = select(i >= 1, A[i - 1], 0): [i >= 1]}   A[i - 1] needs this as a mask
                               {B[j] = A[(j + 1) % 96]: [j + 1 < 96]}           then A's lanes are neighbours
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from autotensor.ir.affine import excess, to_expr
from autotensor.ir.bounds import NEGATED, Bounds, Interval
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
    compare,
    conjuncts,
    const,
)
from autotensor.ir.node import Node
from autotensor.ir.stmt import Alloc, For, ForKind, If, Let, Seq, Stmt
from autotensor.ir.visit import collect, free_vars
from autotensor.lowering.passes.protect_loads import in_bounds

LONG = 64  # with this many statements after a guard, a copy of them costs more than the guard

# statement → the comparisons in its Selects that guard its loads
Unsafe = Mapping[Stmt, Sequence[Compare]]


def guards(s: Stmt, known: Bounds, unsafe: Unsafe) -> list[tuple[Compare, Bounds]]:
    """All comparisons that guard statements or loads inside, each with the bounds at its place."""
    match s:
        case For(var, begin, extent, _, body):
            return guards(body, known.in_loop(var, begin, extent), unsafe)
        case Let(var, value, body):
            masks = [(c, known) for c in _of_masks(value)]
            return [*masks, *guards(body, known.in_let(var, value), unsafe)]
        case If(cond, then, otherwise):
            here = [] if _is_long(then) else [(c, known) for c in comparisons(cond)]
            more = [] if otherwise is None else guards(otherwise, known, unsafe)
            return [*here, *guards(then, known, unsafe), *more]
        case Seq(stmts):
            return [c for x in stmts for c in guards(x, known, unsafe)]
        case Alloc(_, body):
            return guards(body, known, unsafe)
        case _:
            return [(c, known) for c in (*_of_masks(s), *unsafe.get(s, ()))]


@lru_cache(maxsize=4096)
def _of_masks(node: Node) -> tuple[Compare, ...]:
    """The comparisons in the masks of the loads of a statement or value."""
    masks = dict.fromkeys(load.mask for load in collect(node, Load) if load.mask is not None)
    return tuple(c for mask in masks for c in comparisons(mask))


def guards_of_loads(s: Stmt, known: Bounds) -> Unsafe:
    """Statements with the conditions that guard their loads.

    There are two kinds. If a load after a Select's comparisons may be out of bounds, it needs these
    comparisons as a mask (see `protect_loads.py`) wherever they are not known to hold. Other conditions say
    where the lanes of a vector are neighbours in memory; elsewhere, the lanes are loaded one by one.
    """
    return dict(_unsafe_in(s, known, frozenset()))


def _unsafe_in(s: Stmt, known: Bounds, lanes: frozenset[Var]) -> Iterator[tuple[Stmt, tuple[Compare, ...]]]:
    """lanes: the variables of vectorized loops around the statement."""
    match s:
        case For(var, begin, extent, kind, body):
            lanes = lanes | {var} if kind is ForKind.VECTORIZED else lanes
            yield from _unsafe_in(body, known.in_loop(var, begin, extent), lanes)
        case Let(var, value, body):
            yield from _unsafe_in(body, known.in_let(var, value), lanes)
        case If(cond, then, otherwise):
            yield from _unsafe_in(then, known.assuming(cond), lanes)
            if otherwise is not None:
                yield from _unsafe_in(otherwise, known.assuming(cond, False), lanes)
        case Seq(stmts):
            for x in stmts:
                yield from _unsafe_in(x, known, lanes)
        case Alloc(_, body):
            yield from _unsafe_in(body, known, lanes)
        case _:
            found = [c for select in collect(s, Select) for c in _protecting(select, known)]
            found += _of_vectors(s, known, lanes)
            if found:
                yield s, tuple(found)


def _protecting(select: Select, known: Bounds) -> list[Compare]:
    """The condition for the side of a Select with a load that may be out of bounds."""

    def is_unsafe(side: Expr) -> bool:
        return not all(in_bounds(load, known) for load in collect(side, Load))

    found = comparisons(select.cond) if is_unsafe(select.then) else []
    match select.cond:
        case Compare(op, a, b) if is_unsafe(select.otherwise):
            return [*found, Compare(NEGATED[op], a, b)]
    return found


def _of_vectors(s: Stmt, known: Bounds, lanes: frozenset[Var]) -> Iterator[Compare]:
    """Conditions that hold for most lanes, and under which an index grows by one from lane to lane.

    They come from limits, remainders and choices: `max(j - 1, 0)`, `(j + 1) % n`, `select(j == 0, n - 1, j -
    1)`.
    """
    for e in collect(s, Binary) if lanes else ():
        if e.dtype.is_int and free_vars(e) & lanes and not collect(e, Load):
            if e.op is Op.MOD and isinstance(e.b, Const):
                yield from _mostly_beside(e.a, int(e.b.value), known)
            elif e.op in (Op.MIN, Op.MAX):
                yield from _mostly(compare(Cmp.LE if e.op is Op.MIN else Cmp.GE, e.a, e.b), known)
    for select in collect(s, Select) if lanes else ():
        match select.cond:
            case Compare(Cmp.EQ | Cmp.NE, a, b) if select.dtype.is_int and free_vars(select.cond) & lanes:
                yield from _but_for_one(a, b, known)


def _mostly(cond: Expr, known: Bounds) -> Iterator[Compare]:
    """The comparison, or its opposite if the opposite holds more often."""
    for c in comparisons(cond):
        yield c if _share(c, known) >= 0.5 else Compare(NEGATED[c.op], c.a, c.b)


def _mostly_beside(dividend: Expr, n: int, known: Bounds) -> Iterator[Compare]:
    """If a dividend passes one multiple of n, the condition for the side on which it is more often."""
    lo, hi = known.of(dividend).lo, known.of(dividend).hi
    if lo is None or hi is None or n <= 0 or hi // n != lo // n + 1:
        return
    multiple = hi // n * n
    late = hi - multiple + 1 > multiple - lo
    yield from comparisons(compare(Cmp.GE if late else Cmp.LT, dividend, const(multiple, dividend.dtype)))


def _but_for_one(a: Expr, b: Expr, known: Bounds) -> Iterator[Compare]:
    """For two values that are equal only at one end of their ranges, the comparison that holds elsewhere."""
    for op, outside in ((Cmp.GT, Cmp.LT), (Cmp.LT, Cmp.GT)):
        if known.decide(compare(outside, a, b)) is False:
            yield from comparisons(compare(op, a, b))
            return


@lru_cache(maxsize=4096)
def written(s: Stmt) -> int:
    """The number of statements in the code of `s`."""
    match s:
        case For(_, _, extent, kind, body):
            times = int(extent.value) if kind is ForKind.UNROLLED and isinstance(extent, Const) else 1
            return times * written(body)
        case Seq(stmts):
            return sum(written(x) for x in stmts)
        case If(_, then, otherwise):
            return written(then) + (0 if otherwise is None else written(otherwise))
        case Let(_, _, body) | Alloc(_, body):
            return written(body)
        case _:
            return 1


@lru_cache(maxsize=4096)
def _turns(s: Stmt) -> int:
    """The approximate number of statements that one run of `s` executes; a vector counts as one."""
    match s:
        case For(_, _, extent, kind, body):
            times = int(extent.value) if isinstance(extent, Const) else LONG
            return _turns(body) * (1 if kind is ForKind.VECTORIZED else times)
        case Seq(stmts):
            return sum(_turns(x) for x in stmts)
        case Let(_, _, body) | Alloc(_, body) | If(_, body, _):
            return _turns(body)
        case _:
            return 1


def guarded_turns(s: Stmt, known: Bounds) -> float:
    """The number of tests, Selects and masks in innermost loops in a run of `s`; a vector counts as one."""
    match s:
        case For(var, begin, extent, kind, body):
            most = known.of(extent).hi
            times = 1 if kind is ForKind.VECTORIZED else LONG if most is None else most
            return times * guarded_turns(body, known.in_loop(var, begin, extent))
        case Let(var, value, body):
            return _choices(value) + guarded_turns(body, known.in_let(var, value))
        case Seq(stmts):
            return sum(guarded_turns(x, known) for x in stmts)
        case Alloc(_, body):
            return guarded_turns(body, known)
        case If(cond, then, otherwise):
            often = share(cond, known)
            other = 0.0
            if otherwise is not None:
                other = (1.0 - often) * guarded_turns(otherwise, known.assuming(cond, False))
            return (not _is_long(then)) + often * guarded_turns(then, known.assuming(cond)) + other
        case _:
            return _choices(s)


def is_rarely_tested(s: Stmt, conds: Sequence[Compare]) -> bool:
    """Whether so few of the statements that `s` executes are tests of these conditions that a copy without
    the tests is not worth its size."""
    return LONG * _tests(s, conds) < _turns(s)


def _tests(s: Stmt, conds: Sequence[Compare]) -> int:
    """The approximate number of times that `s` tests conditions, as `_turns` counts."""
    match s:
        case For(_, _, extent, kind, body):
            times = int(extent.value) if isinstance(extent, Const) else LONG
            return _tests(body, conds) * (1 if kind is ForKind.VECTORIZED else times)
        case If(cond, then, otherwise):
            here = any(c in conds for c in comparisons(cond))
            return here + _tests(then, conds) + (0 if otherwise is None else _tests(otherwise, conds))
        case Seq(stmts):
            return sum(_tests(x, conds) for x in stmts)
        case Let(_, _, body) | Alloc(_, body):
            return _tests(body, conds)
        case _:
            found = (c for select in collect(s, Select) for c in comparisons(select.cond))
            return sum(c in conds for c in (*found, *_of_masks(s)))


@lru_cache(maxsize=4096)
def _choices(node: Node) -> int:
    """The number of Selects and masked loads in a statement or value."""
    return len(collect(node, Select)) + sum(load.mask is not None for load in collect(node, Load))


def share(cond: Expr, known: Bounds) -> float:
    """The approximate share of the variables' values for which the condition holds."""
    shares = [_share(c, known) for c in comparisons(cond)]
    return min(shares, default=0.5)


def _share(cond: Compare, known: Bounds) -> float:
    total = excess(cond)
    over = Interval(None, None) if total is None else known.of(to_expr(total))
    if over.lo is None or over.hi is None:
        return 0.5
    return min(max((1 - over.lo) / (over.hi - over.lo + 1), 0.0), 1.0)


def _is_long(s: Stmt) -> bool:
    """Whether a statement is so long that a test before it costs nothing. Then no loop is cut for the
    test."""
    return _turns(s) >= LONG


def bound_inside(s: Stmt) -> frozenset[Var]:
    """The variables of loops and Lets in a statement."""
    return frozenset(x.var for x in collect(s, For)) | frozenset(x.var for x in collect(s, Let))


def comparisons(cond: Expr) -> list[Compare]:
    """The comparisons among the conditions that a conjunction joins."""
    return [c for c in conjuncts(cond) if isinstance(c, Compare)]
