"""Extents that are known when a program runs: one program serves a whole range of shapes.

    n = te.var("n", range=(1, 512))
    A = te.placeholder((n, 64), name="A")
    B = te.compute((n + 2, 64), lambda i, j: …)       sums, products and quotients of symbols are extents, too

An extent is an integer expression of `Symbol`s. Schedules see the greatest value that the extent can take;
lowering sees the expression itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotensor.base.absent_names import takes_its_names
from autotensor.base.dtype import int64
from autotensor.base.errors import TensorError
from autotensor.ir.bounds import interval
from autotensor.ir.expr import Binary, Const, Expr, Op, Symbol, Var, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import walk

Extent = int | Expr  # a number, or the expression that gives it at run time

_OPERATORS = (Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX)


@takes_its_names("te.var", {"dtype": "Leave it out: extents are int64."})
def var(name: str, range: tuple[int, int] | None = None, multiple_of: int = 1) -> Expr:
    """An extent that is known when the program runs.

    range: the least and the greatest value, both included. multiple_of: every value is a multiple of this
    number, so that loops need no tails. Raises TensorError for a range that is missing, empty or below 1, or
    whose ends are not multiples of `multiple_of`.
    """
    if range is None:
        raise TensorError(
            f'te.var("{name}") has no range, and workspace is allocated for the greatest extent.',
            fix=f'Give the least and the greatest: te.var("{name}", range=(1, 512)); or write {name} = 1024.',
        )
    ends = (*range, multiple_of) if isinstance(range, (tuple, list)) else ()
    if len(ends) != 3 or not all(isinstance(x, int) and not isinstance(x, bool) for x in ends):
        raise TensorError(
            f'te.var("{name}"): range {range!r} and multiple_of {multiple_of!r} must be whole numbers.',
            fix=f'te.var("{name}", range=(1, 512)).',
        )
    least, most, _ = ends
    if multiple_of < 1 or not 1 <= least <= most or least % multiple_of or most % multiple_of:
        raise TensorError(
            f'te.var("{name}"): range ({least}, {most}) must go up from 1 or more, between multiples of '
            f"{multiple_of}.",
            fix=f'te.var("{name}", range=({multiple_of}, {512 * multiple_of}), multiple_of={multiple_of}).',
        )
    if multiple_of == 1:
        return Symbol(name, int64, least, most)
    return Symbol(f"{name}/{multiple_of}", int64, least // multiple_of, most // multiple_of) * multiple_of


def symbols_of(*extents: Any) -> tuple[Symbol, ...]:
    """The symbols of extents (or of any expressions), in order of appearance."""
    exprs = (e for e in extents if isinstance(e, Expr))
    return tuple(dict.fromkeys(n for e in exprs for n in walk(e) if isinstance(n, Symbol)))


def greatest(extent: Extent) -> int:
    """The greatest value of an extent."""
    if not isinstance(extent, Expr):
        return extent
    most = interval(extent).hi
    assert most is not None, "symbols have ranges"
    return most


def number(extent: Extent, values: Mapping[Symbol, int]) -> int:
    """The extent's value; `values` must hold a number for each of its symbols."""
    if not isinstance(extent, Expr):
        return extent
    numbers: dict[Var, Expr] = {s: const(n, s.type) for s, n in values.items()}
    found = interval(substitute(extent, numbers)).value
    assert found is not None, "all symbols have values"
    return found


def product(extents: Iterable[Extent]) -> Extent:
    """The product of extents."""
    total: Extent = 1
    for extent in extents:
        total = total * extent
    return simplify(total) if isinstance(total, Expr) else total


def size_of(symbols: Iterable[Symbol]) -> Extent:
    """The product of symbols, by which a program chooses among schedules; a zero counts as one."""
    return product(s if s.least > 0 else Binary(Op.MAX, s, const(1, s.type)) for s in symbols)


def at_run_time(extent: Extent) -> Expr | None:
    """The expression of an extent; None if it is a number."""
    return extent if isinstance(extent, Expr) else None


def checked_extent(extent: Expr, where: str) -> Extent:
    """The extent, simplified. Raises TensorError unless a call can compute it from shapes."""
    for node in walk(extent):
        known = isinstance(node, (Symbol, Const)) or (isinstance(node, Binary) and node.op in _OPERATORS)
        if not known or not node.dtype.is_int:  # type: ignore[attr-defined]
            raise TensorError(
                f"{where}: extent {extent} is not made of numbers and te.var by + - * // % min max.",
                fix='n = te.var("n", range=(1, 512)).',
            )
    simple = simplify(extent)
    if isinstance(simple, Const):
        return int(simple.value)
    values = interval(simple)
    if values.lo is None or values.lo < 1 or values.hi is None:
        raise TensorError(
            f"{where}: extent {simple} may be {values.lo}.", fix="Raise the range of its te.var."
        )
    return simple


__all__ = [
    "Extent",
    "at_run_time",
    "checked_extent",
    "greatest",
    "number",
    "product",
    "size_of",
    "symbols_of",
    "var",
]
