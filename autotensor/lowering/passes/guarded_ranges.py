"""Where the guards of a loop hold: the values and ends at which `partition` cuts it.

    for i in range(8): if i*8 + j < 50: …       main_range      0 … 5: the guard holds for every j
                                                active_range    0 … 6: it holds for some j
    for j in range(4096): if j <= i: …          last_end        i + 1: nothing is done from there on

Ranges are numbers; ends are expressions of outer variables.
"""

from __future__ import annotations

from collections.abc import Set

from autotensor.ir.bounds import Bounds, Interval
from autotensor.ir.expr import Binary, Compare, Const, Expr, Op, Symbol, Var
from autotensor.ir.simplify import Simplifier
from autotensor.ir.stmt import Alloc, For, ForKind, If, Let, Seq, Stmt
from autotensor.ir.visit import collect, free_vars
from autotensor.lowering.index_limits import end, holds, may_hold
from autotensor.lowering.passes.loop_guards import Unsafe, comparisons, guards

FEW = 8  # most iterations of a loop that may be written one by one
MOST = 0.75  # a cut is worth it if a comparison holds for at least this share of a variable's values


def active_range(s: Stmt, var: Var, whole: Interval, known: Bounds) -> Interval | None:
    """Values of `var` for which the statement may do something; None if it never does.

    A factor larger than its axis leaves iterations whose guards never hold.
    """
    match s:
        case For(other, begin, extent, _, body):
            return active_range(body, var, whole, known.in_loop(other, begin, extent))
        case Let(other, value, body):
            return active_range(body, var, whole, known.in_let(other, value))
        case Alloc(_, body):
            return active_range(body, var, whole, known)
        case If(cond, then, None):
            inner = active_range(then, var, whole, known)
            for c in comparisons(cond):
                if var in free_vars(c) and inner is not None:
                    may = may_hold(c, var, known)
                    met = inner.meet(may)
                    # `meet` of two disjoint intervals returns the first
                    inner = met if met.within(may) else None
            return inner
        case Seq(stmts):
            out: Interval | None = None
            for x in stmts:
                one = active_range(x, var, whole, known)
                out = one if out is None else out if one is None else out.hull(one)
            return out
        case _:
            return whole


def main_range(
    var: Var, whole: Interval, body: Stmt, known: Bounds, unsafe: Unsafe, inner_first: bool
) -> Interval | None:
    """The values of `var` for which all its guards hold; None if these are all values, none, or unknown.

    inner_first: guards that hold for most values of an inner loop do not count, as that loop is cut instead.
    """
    main = whole
    within = {x.var for x in collect(body, For) if x.kind is ForKind.SERIAL} if inner_first else set()
    for cond, inner in guards(body, known, unsafe):
        if var not in free_vars(cond) or inner.decide(cond) is not None:
            continue
        if any(_mostly_holds(cond, w, inner) for w in free_vars(cond) & within):
            continue
        found = holds(cond, var, inner)
        if found is not None:
            met = main.meet(found)
            if met.lo is not None and met.hi is not None and met.lo <= met.hi:
                main = met
    return None if main == whole else main


def _mostly_holds(cond: Compare, var: Var, known: Bounds) -> bool:
    """Whether the comparison holds for most values of `var`, whatever the other variables are."""
    whole, found = known.of(var), holds(cond, var, known)
    if found is None or whole.lo is None or whole.hi is None:
        return False
    met = whole.meet(found)
    return met.within(found) and count(met) >= MOST * count(whole)


def decided_one_by_one(loop: For, whole: Interval, known: Bounds, unsafe: Unsafe) -> bool:
    """Whether each iteration of a short loop decides guards on unrolled loops inside, while no range does.

    At an image's edge, for example, each column of a kernel leaves out different elements of a register tile.
    """
    turns = count(whole)
    if loop.kind is not ForKind.SERIAL or not 1 < turns <= FEW:
        return False
    loops = collect(loop.body, For)
    tile = {x.var for x in loops if x.kind is ForKind.UNROLLED}
    running = {x.var for x in loops if x.kind is ForKind.SERIAL}
    return any(
        loop.var in free_vars(cond)
        and free_vars(cond) & tile
        and not free_vars(cond) & running
        and not any(isinstance(v, Symbol) for v in free_vars(cond))  # which a call decides
        and inner.decide(cond) is None
        for cond, inner in guards(loop.body, known, unsafe)
    )


def last_end(s: Stmt, var: Var, inside: Set[Var], known: Bounds) -> Expr | None:
    """The end, as `var` grows, after which the statement does nothing; None if no outer variable gives it."""
    match s:
        case For(other, begin, extent, _, body):
            return last_end(body, var, inside, known.in_loop(other, begin, extent))
        case Let(other, value, body):
            return last_end(body, var, inside, known.in_let(other, value))
        case Alloc(_, body):
            return last_end(body, var, inside, known)
        case If(cond, then, None):
            ends = [end(c, var, inside, known, always=False) for c in comparisons(cond)]
            here = next((e for e in ends if e is not None), None)
            return last_end(then, var, inside, known) if here is None else here
        case Seq(stmts):
            out = last_end(stmts[0], var, inside, known)
            for x in stmts[1:]:
                one = last_end(x, var, inside, known)
                if out is None or one is None:
                    return None
                if known.decide(one <= out) is not True:
                    out = one if known.decide(out <= one) is True else Binary(Op.MAX, out, one)
            return out
        case _:
            return None


def limited(e: Expr, begin: Expr, after: Expr, known: Bounds) -> Expr:
    """The end of a range, limited to lie between two others."""
    if e is after:
        return e
    e = Simplifier(known).expr(e)
    if not _at_most(e, after, known):
        e = Binary(Op.MIN, e, after)
    if not _at_most(begin, e, known):
        e = Binary(Op.MAX, e, begin)
    return Simplifier(known).expr(e)  # type: ignore[no-any-return]


def _at_most(a: Expr, b: Expr, known: Bounds) -> bool:
    match a, b:
        case Binary(Op.FLOORDIV, x, Const(c)), Binary(Op.FLOORDIV, y, Const(d)) if c == d > 0:
            return known.decide(x <= y) is True
    return known.decide(a <= b) is True


def count(part: Interval) -> int:
    """The number of values; 0 if an end is not known."""
    return 0 if part.lo is None or part.hi is None else part.hi - part.lo + 1
