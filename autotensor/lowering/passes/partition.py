"""partition: cuts loops where their guards stop holding, so that the main part runs without guards.

    for i.0 in range(7):                             for i.0 in range(6):
      for i.1 in range(8):                    ──▶      for i.1 in range(8): S(i.0*8 + i.1)
        if i.0*8 + i.1 < 50: S(i.0*8 + i.1)           for i.1 in range(8): if 48 + i.1 < 50: S(48 + i.1)

If outer loops decide where a guard stops holding (`j <= i`), a long loop is cut at that point:

    for j in range(4096):                            for j in range(i + 1):
      if j <= i: S(j)                       ──▶        S(j)

A parallel loop is not cut, because its parts would be divided among the threads one after the other. The test
moves to the top of the loop's body; the same is done for the parts of a fused loop.

The number of copies is limited. If the limit is too small for all cuts, inner loops and loops with mostly
guarded iterations are cut first, if that at least halves the guarded iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import reduce

from autotensor.ir.bounds import NO_RANGES, Bounds, Interval, bounds, is_data
from autotensor.ir.expr import (
    Binary,
    Cmp,
    Compare,
    Const,
    Expr,
    Load,
    Op,
    Select,
    Symbol,
    Var,
    compare,
    const,
)
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import Simplifier, simplify
from autotensor.ir.stmt import NOTHING, Alloc, For, ForKind, If, Let, Seq, Stmt, seq
from autotensor.ir.visit import any_node, free_vars
from autotensor.lowering.index_limits import end
from autotensor.lowering.passes.guarded_ranges import (
    active_range,
    count,
    decided_one_by_one,
    last_end,
    limited,
    main_range,
)
from autotensor.lowering.passes.loop_guards import (
    LONG,
    Unsafe,
    bound_inside,
    guarded_turns,
    guards,
    guards_of_loads,
    is_rarely_tested,
    share,
    written,
)
from autotensor.lowering.passes.open_rows import AROUND_TILES, open_rows, rows_left

COPIES = 12  # extra copies of loop bodies in one kernel; a 2-D tile with both tails needs 3
ROWS = 30  # most copies for the numbers of rows that a tile leaves over; a tile of 14 rows has 10
# share of all guarded iterations that a loop must have to get a copy, tried in this order
SHARES = (1 / 16, 0.0)
SHORT = 32  # most statements in a loop for which masks of loads are worth a copy of the loop


@dataclass
class _Copies:
    left: int
    for_rows: int = ROWS


@dataclass(frozen=True)
class _Budget:
    """The copies that cutting may still make. `within` gives the budget for a loop's body.

    `times` is the number of times that the body runs.
    """

    copies: _Copies
    unsafe: Unsafe
    # variables of vectorized loops: no loop can end at different places for different lanes
    lanes: set[Var] = field(default_factory=set)
    data: frozenset[Var] = frozenset()  # variables whose values come from memory
    least: float = 0.0  # a loop with fewer guarded iterations is not cut
    inner: bool = False  # a loop stays whole if cutting an inner loop decides its guards for most iterations
    times: float = 1.0

    def within(self, times: float) -> _Budget:
        return replace(self, times=self.times * times)

    def naming(self, var: Var, value: Expr) -> _Budget:
        return replace(self, data=self.data | {var}) if is_data(value) else self

    def allows(self, body: Stmt, known: Bounds) -> bool:
        """Whether the budget has a copy left, and a cut of the loop around `body` is worth it."""
        if self.copies.left <= 0:
            return False
        return not self.least or self.times * guarded_turns(body, known) >= self.least

    def spend(self, copies: int = 1) -> None:
        self.copies.left -= copies

    def bound_for_all_lanes(self, body: Stmt) -> Set[Var]:
        """The variables bound in a body, and those of lanes around it: it ends for all lanes together."""
        return self.lanes | bound_inside(body)

    def of_loads(self, body: Stmt) -> Unsafe:
        """The guards of loads for which a loop around `body` may be cut; none if the body is long."""
        return self.unsafe if written(body) <= SHORT else {}


def partition(body: Stmt, copies: int = COPIES) -> Stmt:
    """The statement with guarded loops cut; every part still carries the guards that it needs.

    copies: the number of copies of loop bodies that may be made.
    """
    if not any_node(body, _may_guard):
        return body
    known = bounds(NO_RANGES)
    budget = _Budget(_Copies(copies), guards_of_loads(body, known))
    cut = simplify(_visit(body, known, budget))
    if budget.copies.left > 0:
        return cut
    other = _most_guarded_first(body, known, replace(budget, copies=_Copies(copies), lanes=set()))
    return other if 2 * guarded_turns(other, known) < guarded_turns(cut, known) else cut


def _most_guarded_first(body: Stmt, known: Bounds, budget: _Budget) -> Stmt:
    """The statement, cut first where most iterations are guarded, and in inner loops before outer ones."""
    whole = guarded_turns(body, known)
    for least in SHARES:
        body = _visit(body, known, replace(budget, least=whole * least, inner=True))
    return simplify(body)


def _may_guard(node: Node) -> bool:
    limit = isinstance(node, Binary) and node.op in (Op.MOD, Op.MIN, Op.MAX)
    return limit or isinstance(node, (If, Select)) or (isinstance(node, Load) and node.mask is not None)


def _visit(s: Stmt, known: Bounds, budget: _Budget) -> Stmt:
    match s:
        case For(_, begin, extent, _, body):
            if isinstance(begin, Const) and isinstance(extent, Const):
                return _visit_loop(s, _range(begin, extent), known, budget)
            return _visit_open(s, known, budget)
        case Let(var, value, body):
            inside = known.in_let(var, value)
            budget = budget.naming(var, value)
            tested = _tested(var, body, inside, budget)
            if tested is not None:
                return Let(var, value, tested)
            whole = known.of(value) if value.dtype.is_int and not is_data(value) else Interval(None, None)
            may_cut = budget.allows(body, inside) and not _is_rare(var, body, inside, budget)
            if may_cut and whole.lo is not None and whole.hi is not None:
                main = main_range(var, whole, body, inside, budget.of_loads(body), budget.inner)
                if main is not None:
                    budget.spend()
                    return Let(var, value, _test(var, whole, main, body, inside, budget))
            return Let(var, value, _visit(body, inside, budget))
        case If(cond, then, otherwise):
            holds = known.decide(cond)
            if holds is not None:
                taken = then if holds else otherwise
                return NOTHING if taken is None else _visit(taken, known, budget)
            often = share(cond, known)
            rarely, other = budget.within(1.0 - often), None
            if otherwise is not None:
                other = _visit(otherwise, known.assuming(cond, False), rarely)
            return If(cond, _visit(then, known.assuming(cond), budget.within(often)), other)
        case Seq(stmts):
            return seq(*(_visit(x, known, budget) for x in stmts))
        case Alloc(buffer, body):
            return Alloc(buffer, _visit(body, known, budget))
        case _:
            return s


def _visit_open(loop: For, known: Bounds, budget: _Budget) -> Stmt:
    """A loop with a run-time extent, cut before its last iterations, which alone need some guards.

    for i.0 in range((n + 7) // 8):           for i.0 in range(n // 8): …
      …: if i.0*8 + i.1 < n: S        ──▶     for i.0 in range(n // 8, (n + 7) // 8):
                                                …: if i.0*8 + i.1 < n: S
    """
    var, begin, extent, kind, body, thread = loop.fields()
    inside = known.in_loop(var, begin, extent)
    budget = budget.within(LONG)
    if kind is ForKind.PARALLEL:
        tested = _tested(var, body, inside, budget)
        return For(var, begin, extent, kind, tested or _visit(body, inside, budget), thread)
    after = Simplifier(known).expr(begin + extent)
    free = _symbolic_end(var, body, inside, budget) if kind is ForKind.SERIAL else None
    middle = begin if free is None else limited(free, begin, after, known)
    if middle is begin:  # the whole loop is a tail
        return For(var, begin, extent, kind, _by_rows(var, body, inside, budget), thread)
    budget.spend()
    parts = (_from(loop, begin, middle, known), _from(loop, middle, after, known))
    bodies = [
        _visit(body, known.in_loop(var, begin, parts[0].extent), budget),
        _by_rows(var, body, known.in_loop(var, middle, parts[1].extent), budget),
    ]
    return seq(*(For(var, p.begin, p.extent, kind, b, thread) for p, b in zip(parts, bodies, strict=True)))


def _tested(var: Var, body: Stmt, inside: Bounds, budget: _Budget) -> Stmt | None:
    """The body after a test of its guards of run-time extents; None if there are no such guards, or if the
    guards cost next to nothing where they stand."""
    free = _symbolic_end(var, body, inside, budget)
    if free is None:
        return None
    if _is_rare(var, body, inside, budget):
        return None
    budget.spend()
    main = compare(Cmp.LT, var, free)
    then = _visit(body, inside.assuming(main), budget)
    return If(main, then, _by_rows(var, body, inside.assuming(main, False), budget))


def _is_rare(var: Var, body: Stmt, known: Bounds, budget: _Budget) -> bool:
    """Whether guards of `var` in a body with run-time extents cost next to nothing where they stand, and no
    rows of sums can be left out. Programs for many sizes have more guards than others, and so more copies."""
    if not any(isinstance(v, Symbol) for v in free_vars(body)) or open_rows(var, body, known) is not None:
        return False
    found = (cond for cond, _ in guards(body, known, budget.of_loads(body)) if var in free_vars(cond))
    return is_rarely_tested(body, tuple(dict.fromkeys(found)))


def _by_rows(var: Var, body: Stmt, known: Bounds, budget: _Budget) -> Stmt:
    """The last iteration of a loop over tiles of unrolled rows, with extra code for fewer rows.

        if i.0*6 + 1 < n: (if i.0*6 + 2 < n: (…: all six rows, else: five) else: two) else: one

    Rows that are computed in vain cost as much as others: in a product of one row, five of the six rows.
    """
    found = open_rows(var, body, known)
    out = _visit(body, known, budget)
    if found is None:
        return out
    cond, row, rows = found
    for left in rows_left(rows, budget.copies.for_rows):
        budget.copies.for_rows -= 1
        more = Simplifier(known).expr(substitute(cond, {row: const(left)}))
        out = If(more, out, _visit(body, known.assuming(more, False), budget))
    return out


def _symbolic_end(var: Var, body: Stmt, known: Bounds, budget: _Budget) -> Expr | None:
    """The end below which all guards of `var` hold that compare with run-time extents.

    None if the guards hold everywhere, if this end is not known, or if no copy is left.
    """
    if budget.copies.left <= 0:
        return None
    ends = [
        stop
        for _, stop in _ends(var, body, known, budget)
        if free_vars(stop) and all(isinstance(v, Symbol) for v in free_vars(stop))
    ]
    return Simplifier(known).expr(_least(ends)) if ends else None


def _ends(var: Var, body: Stmt, known: Bounds, budget: _Budget) -> list[tuple[Compare, Expr]]:
    """The guards of `var` that are not decided, each with the end below which it holds."""
    inside = budget.bound_for_all_lanes(body)
    return [
        (cond, stop)
        for cond, inner in guards(body, known, budget.of_loads(body))
        if var in free_vars(cond) and inner.decide(cond) is None
        and (stop := end(cond, var, inside, inner, always=True)) is not None
    ]  # fmt: skip


def _least(ends: Iterable[Expr]) -> Expr:
    return reduce(lambda a, b: Binary(Op.MIN, a, b), dict.fromkeys(ends))


def _visit_loop(loop: For, whole: Interval, known: Bounds, budget: _Budget) -> Stmt:
    """A loop of constant extent, shortened and then cut."""
    inside = known.in_loop(loop.var, loop.begin, loop.extent)
    if loop.kind is ForKind.VECTORIZED:
        budget.lanes.add(loop.var)
    else:
        some = active_range(loop.body, loop.var, whole, inside)
        if some is None:
            return NOTHING
        if some != whole:
            return _visit(_loop(loop, some), known, budget)
    within = budget.within(count(whole))
    cuttable = loop.kind in (ForKind.SERIAL, ForKind.PARALLEL) and within.allows(loop.body, inside)
    parts = _open_parts(loop, whole, inside, budget) if cuttable and loop.kind is ForKind.SERIAL else None
    if parts is not None:
        budget.spend(len(parts) - 1)
        return _visit_all(parts, budget)
    unsafe = budget.of_loads(loop.body)
    main = main_range(loop.var, whole, loop.body, inside, unsafe, budget.inner) if cuttable else None
    if main is None and loop.kind in AROUND_TILES and open_rows(loop.var, loop.body, inside) is not None:
        turns = _turns(loop, whole, known, inside)
        body = _by_rows(loop.var, loop.body, inside, within)
        return For(loop.var, loop.begin, turns, loop.kind, body, loop.thread)
    single = cuttable and main is None
    if single and decided_one_by_one(loop, whole, inside, unsafe):
        budget.spend()
        assert whole.lo is not None
        assert whole.hi is not None
        each = (Interval(k, k) for k in range(whole.lo, whole.hi + 1))
        return seq(*(_visit(_loop(loop, turn), known, budget) for turn in each))
    if main is None:
        body = _visit(loop.body, inside, within)
    else:
        budget.spend()
        if loop.kind is ForKind.SERIAL:
            return _visit_all([(_loop(loop, part), known) for part in _parts(whole, main)], budget)
        body = _test(loop.var, whole, main, loop.body, inside, within)
    return For(loop.var, loop.begin, loop.extent, loop.kind, body, loop.thread)


def _turns(loop: For, whole: Interval, known: Bounds, inside: Bounds) -> Expr:
    """The loop's extent without the last iterations that do nothing because of run-time extents."""
    last = last_end(loop.body, loop.var, bound_inside(loop.body), inside)
    if last is None or whole.hi is None:
        return loop.extent
    return _from(loop, loop.begin, limited(last, loop.begin, const(whole.hi + 1), known), known).extent


def _visit_all(parts: Sequence[tuple[For, Bounds]], budget: _Budget) -> Stmt:
    """Visits the parts of a loop. The part with most iterations comes first, as its copies are worth most."""
    order = sorted(range(len(parts)), key=lambda k: -_most_turns(*parts[k]))
    done = {k: _visit(*parts[k], budget) for k in order}
    return seq(*(done[k] for k in range(len(parts))))


def _most_turns(loop: For, known: Bounds) -> int:
    most = known.of(loop.extent).hi
    return 0 if most is None else most


def _open_parts(
    loop: For, whole: Interval, known: Bounds, budget: _Budget
) -> list[tuple[For, Bounds]] | None:
    """A long loop in parts: up to the end where all guards hold, and on to the end where some still hold.

    The ends depend on outer variables. Each part comes with its bounds. None if no such ends are known.
    """
    assert whole.lo is not None
    assert whole.hi is not None
    turns = whole.hi - whole.lo + 1
    if turns < (2 if budget.data else LONG):
        return None
    found = _ends(loop.var, loop.body, known, budget)
    last = last_end(loop.body, loop.var, budget.bound_for_all_lanes(loop.body), known)
    begin, after = const(whole.lo), const(whole.hi + 1)
    until = after if last is None else limited(last, begin, after, known)
    ends = [stop for _, stop in found if stop != last]
    free = _least(ends) if ends else until
    middle = limited(free, begin, until, known)
    outside = free_vars(middle) | free_vars(until)
    if not outside or outside & budget.lanes or (turns < LONG and not outside & budget.data):
        return None
    # for tiles of run-time extents, `_tested` separates whole tiles
    if any(isinstance(v, Symbol) for v in outside):
        return None
    parts = []
    if middle is not begin:
        settled = reduce(Bounds.assuming, (cond for cond, _ in found), known)
        parts.append((_from(loop, begin, middle, known), settled))
    if middle is not until:
        parts.append((_from(loop, middle, until, known), known))
    return parts


def _from(loop: For, begin: Expr, after: Expr, known: Bounds) -> For:
    extent = Simplifier(known).expr(after - begin)
    return For(loop.var, begin, extent, loop.kind, loop.body, loop.thread)


def _range(begin: Const, extent: Const) -> Interval:
    return Interval(int(begin.value), int(begin.value) + int(extent.value) - 1)


def _parts(whole: Interval, main: Interval) -> list[Interval]:
    """The range in order: before, main, after; without empty parts."""
    assert whole.lo is not None
    assert whole.hi is not None
    assert main.lo is not None
    assert main.hi is not None
    parts = [Interval(whole.lo, main.lo - 1), main, Interval(main.hi + 1, whole.hi)]
    return [p for p in parts if p.lo is not None and p.hi is not None and p.lo <= p.hi]


def _loop(loop: For, part: Interval) -> For:
    assert part.lo is not None
    assert part.hi is not None
    return For(loop.var, const(part.lo), const(part.hi - part.lo + 1), loop.kind, loop.body, loop.thread)


def _test(var: Var, whole: Interval, main: Interval, body: Stmt, known: Bounds, budget: _Budget) -> Stmt:
    """`if var in main: body without guards, else: body`, with a second else if both ends overhang."""
    parts = _parts(whole, main)
    longest_first = sorted(parts, key=lambda p: (p.lo or 0) - (p.hi or 0))  # as in _visit_all
    inside = {
        p: _visit(body, known.with_range(var, p), budget.within(count(p) / count(whole)))
        for p in longest_first
    }
    out: Stmt | None = None
    for part in reversed(parts):
        assert part.hi is not None
        inner = inside[part]
        out = inner if out is None else If(compare(Cmp.LE, var, const(part.hi)), inner, out)
    assert out is not None
    return out
