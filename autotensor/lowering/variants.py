"""One program from the programs of several schedules: the run-time extents of a call choose among them.

    t1:          for i in parallel(E): A                  for i in parallel(E if n0 * n1 >= 196 else 0): A
    t1 (below):  for i in parallel(F): B         ──▶      for i in parallel(F if n0 * n1 <  196 else 0): B

A parallel loop must be the outermost statement of its kernel, so the choice stands in its extent. Constants
are prepared once where schedules prepare them in the same way, otherwise for each schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autotensor.ir.expr import Cmp, Expr, Select, Symbol, all_of, as_expr, compare, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Role
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import Alloc, For, ForKind, If, Let, Stmt, Store
from autotensor.ir.visit import collect
from autotensor.te.symbols import size_of

# the product of the symbols from which on the program is not used, and the program
Below = tuple[int, Program]
Names = dict[Buffer, Buffer]


def chosen_by_size(program: Program, others: Iterable[Below], symbols: Sequence[Symbol]) -> Program:
    """The program that runs, of `others`, the one with the least number above the product of the symbols, or
    `program` if there is none."""
    size, least = as_expr(size_of(symbols)), 0
    args, prepare = dict(program.args), list(program.prepare)
    known: dict[PrimFunc, Names] = {func: {} for func in prepare}
    run: list[PrimFunc] = []
    for points, other in sorted(others, key=lambda o: o[0]):
        suffix, roles = f".below{points}", dict(other.args)
        names: Names = {b: _named(b, suffix) for b, role in other.args if role is Role.WORKSPACE}
        for func in other.prepare:
            plain = _renamed(func, names, "")  # its inputs have the program's names
            if plain not in known:
                written = dict.fromkeys(s.buffer for s in collect(func.body, Store) if s.buffer in roles)
                known[plain] = {b: _named(b, suffix) for b in written}
                prepare.append(_renamed(func, {**names, **known[plain]}, suffix))
            names |= known[plain]
        args |= {new: roles[b] for b, new in names.items()}
        below = compare(Cmp.LT, size, const(points))
        cond = all_of(compare(Cmp.GE, size, const(least)), below) if least else below
        run += [_where(cond, _renamed(k, names, suffix)) for k in other.run]
        least = points
    run += [_where(compare(Cmp.GE, size, const(least)), k) for k in program.run]
    order = {b: n for n, b in enumerate(args)}
    sorted_run = (replace(k, params=tuple(sorted(k.params, key=order.__getitem__))) for k in run)
    return replace(program, args=tuple(args.items()), prepare=tuple(prepare), run=tuple(sorted_run))


def _named(buffer: Buffer, suffix: str) -> Buffer:
    name, *rest = buffer.fields()
    return Buffer(f"{name}{suffix}", *rest)


def _renamed(func: PrimFunc, names: Names, suffix: str) -> PrimFunc:
    params = tuple(names.get(b, b) for b in func.params)
    return replace(func, name=f"{func.name}{suffix}", params=params, body=substitute(func.body, names))


def _where(cond: Expr, func: PrimFunc) -> PrimFunc:
    """The kernel that does nothing unless a condition on the symbols holds."""
    return replace(func, body=_under(cond, func.body))


def _under(cond: Expr, s: Stmt) -> Stmt:
    match s:
        case Let(var, value, body):  # gives a symbol its value
            return Let(var, value, _under(cond, body))
        case Alloc(buffer, body):
            return Alloc(buffer, _under(cond, body))
        case For(var, begin, extent, ForKind.PARALLEL, body, thread):
            return For(var, begin, Select(cond, extent, const(0)), ForKind.PARALLEL, body, thread)
    return If(cond, s)
