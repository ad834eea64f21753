"""Extents that are rounded quotients of others: the numbers that strides, halves and paddings make.

    h                   h_1 = (h + 1) // 2       a convolution with stride 2 that pads its image by 1
                        h_2 = (h_1 + 1) // 2     is (h + 3) // 4

Kernels read each quotient as a symbol of its own, so their loops have extents without divisions. A kernel
that makes h_1 rows of h rows has h = 2 * h_1 - 1 + rest, and the rest, from 0 to 1, is one more symbol: its
indices stay sums of products. `find_quotients.py` finds the quotients of a model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotensor.base.dtype import int64
from autotensor.graph.symbols.graph_families import Choice
from autotensor.ir.expr import Expr, Symbol, Var
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.runtime.extents import name_of
from autotensor.te.symbols import Extent, greatest

Whole = NDArray[np.int64]  # a number at each value of a symbol


@dataclass(frozen=True, slots=True)
class Quotient:
    """A symbol whose value is (times * of + plus) // by; `of` is a symbol of the model or of a quotient."""

    symbol: Symbol
    of: Symbol
    times: int
    plus: int
    by: int


@dataclass(frozen=True)
class Quotients:
    """The quotients of a model; each follows those of which it is made."""

    all: tuple[Quotient, ...] = ()

    @cached_property
    def named(self) -> Mapping[Symbol, Quotient]:
        """The quotients by symbol."""
        return {q.symbol: q for q in self.all}

    def with_one(self, of: Symbol, times: int, plus: int, by: int) -> tuple[Quotients, Symbol]:
        """These quotients and another one, and its symbol; an equal quotient is taken again."""
        for q in self.all:
            if (q.of, q.times, q.plus, q.by) == (of, times, plus, by):
                return self, q.symbol
        root, values = self.whole(of)
        made = (times * values + plus) // by
        name = f"{name_of(root.name)}_{len(self.all) + 1}"
        symbol = Symbol(name, int64, int(made.min()), int(made.max()))
        return Quotients((*self.all, Quotient(symbol, of, times, plus, by))), symbol

    def root(self, symbol: Symbol) -> Symbol:
        """The symbol of the model that a symbol is made of."""
        while symbol in self.named:
            symbol = self.named[symbol].of
        return symbol

    def whole(self, symbol: Symbol) -> tuple[Symbol, Whole]:
        """The symbol of the model that a symbol is made of, and the symbol's value at each value of it."""
        made = self.named.get(symbol)
        if made is None:
            return symbol, np.arange(symbol.least, symbol.most + 1)
        root, values = self.whole(made.of)
        return root, (made.times * values + made.plus) // made.by

    def with_values(self, choice: Choice) -> Choice:
        """A choice, and the value of each quotient there."""
        values = dict(choice)
        for q in self.all:
            values[q.symbol] = (q.times * values[q.of] + q.plus) // q.by
        return values

    def in_full(self, extent: Extent) -> Extent:
        """The extent as an expression of the model's symbols."""
        return simplify(substitute(extent, self._formulas)) if isinstance(extent, Expr) else extent

    @cached_property
    def _formulas(self) -> dict[Var, Expr]:
        found: dict[Var, Expr] = {}
        for q in self.all:
            of = found.get(q.of, q.of)
            found[q.symbol] = simplify((of * q.times + q.plus) // q.by)
        return found

    def between(self, symbol: Symbol, of: Symbol) -> tuple[int, int] | None:
        """`plus` and `by` of symbol = (of + plus) // by; None if the symbol has another form."""
        plus, by = 0, 1
        while symbol != of:
            q = self.named.get(symbol)
            if q is None or q.times != 1:
                return None
            # ((x + a) // b + plus) // by = (x + a + b * plus) // (b * by)
            symbol, plus, by = q.of, q.plus + q.by * plus, q.by * by
        return plus, by


NO_QUOTIENTS = Quotients()


@dataclass(frozen=True)
class KernelSymbols:
    """The symbols of a kernel: the symbols of its results, and rests in place of symbols that only its inputs
    have.

    h rows are read, h_1 = (h + 1) // 2 rows are written     ──▶   h = 2 * h_1 - 1 + rest
    """

    quotients: Quotients
    instead: Mapping[Var, Expr]  # expressions for symbols that the kernel does not have
    rests: Mapping[Symbol, Expr]  # values of rests, as expressions of the model's symbols

    @staticmethod
    def of(quotients: Quotients, read: Iterable[Symbol], made: Collection[Symbol]) -> KernelSymbols:
        """read: the symbols of all extents in the kernel; made: those of the extents of its results."""
        instead: dict[Var, Expr] = {}
        rests: dict[Symbol, Expr] = {}
        for symbol in read:
            if symbol in made:
                continue
            parts = [(o, n) for o in made if (n := quotients.between(o, symbol)) is not None]
            if not parts:
                continue
            child, (plus, by) = min(parts, key=lambda part: part[1][1])
            rest = Symbol(f"{symbol.name}.rest", int64, 0, by - 1)
            whole = child * by + rest - plus
            if greatest(whole) == symbol.most and child.least * by - plus >= 1:
                instead[symbol] = simplify(whole)
                value = quotients.in_full((symbol + plus) % by)
                assert isinstance(value, Expr)
                rests[rest] = value
        return KernelSymbols(quotients, instead, rests)

    def written(self, extent: Extent) -> Extent:
        """The extent as an expression of the kernel's symbols."""
        return simplify(substitute(extent, self.instead)) if isinstance(extent, Expr) else extent

    def value(self, symbol: Symbol) -> Extent:
        """A symbol of the kernel as an expression of the model's symbols."""
        return self.rests[symbol] if symbol in self.rests else self.quotients.in_full(symbol)


__all__ = ["NO_QUOTIENTS", "KernelSymbols", "Quotient", "Quotients", "Whole"]
