"""The sample numbers at which a family's graphs are compared, and the expressions that fit the results.

    n in 1 … 8:  n = 8, 7, 5, 3          [128, 112, 80, 48] ──▶ 16*n          [64, 64, 64, 64] ──▶ 64
                                         [9, 8, 6, 4]       ──▶ n + 1         [4, 4, 3, 2]     ──▶ none

An expression is a sum of at most three terms, or four if there are several symbols: 2 * (h + 1) * (w + 1).
Each term is an integer times symbols. There are more samples than such a sum has coefficients. So no sum fits
numbers of another form: a maximum, or a choice that depends on the number. Rounded quotients, as in
(n + 1) // 2, are symbols of their own (`quotients.py`). They need samples that lie further apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import chain, combinations, combinations_with_replacement, compress, count
from math import gcd, isclose, isfinite, isqrt, prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotensor.graph.symbols.by_chance import place_of_difference
from autotensor.graph.symbols.division import divided
from autotensor.graph.symbols.graph_families import Choice
from autotensor.graph.symbols.quotients import NO_QUOTIENTS, Quotients
from autotensor.ir.expr import Expr, Symbol, const
from autotensor.ir.simplify import simplify
from autotensor.te.symbols import Extent, number

MOST_TERMS = 3
MOST_FACTORS = 3  # most factors of a term: the scores of a batch have batch * length * length rows
MOST_SQUARE = 2  # how often one symbol may occur in a term
FAR = 6  # further samples of models with quotients: even and odd extents occur for several halves in a row
NEARLY = 1e-7  # largest difference from a fit, as a share of the greatest number
FEW = 3  # most symbols of a sum of more than two terms

Monomial = tuple[Symbol, ...]
Floats = NDArray[np.float64]
Column = tuple[int, ...]  # a number at each choice


@dataclass(frozen=True)
class Samples:
    """Choices of the symbols; the first choice has the greatest value of every symbol."""

    symbols: tuple[Symbol, ...]
    chosen: tuple[Choice, ...] = ()  # the choices, if they are not those close to the greatest
    quotients: Quotients = NO_QUOTIENTS
    known: Mapping[Column, Extent] = field(default_factory=lambda: MappingProxyType({}))  # found before

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        if self.chosen:
            return self.chosen
        taken: set[int] = set()
        columns = []
        for s in self.symbols:
            others = _generic(s.most, MOST_TERMS + len(self.symbols) - 1, taken)
            taken.update(others)
            columns.append(others)
        greatest = {s: s.most for s in self.symbols}
        return (greatest, *_rows(self.symbols, columns))

    @cached_property
    def far(self) -> tuple[Choice, ...]:
        """Choices over the upper half of the ranges, for numbers that are equal at all choices near its
        end."""
        taken = {n for choice in self.choices for n in choice.values()}
        columns = []
        for s in self.symbols:
            others = _apart(s.least, s.most, FAR, taken)
            taken.update(others)
            columns.append(others)
        return _rows(self.symbols, columns)

    @cached_property
    def lesser(self) -> tuple[Choice, ...]:
        """Choices far from the samples: the least values, values in between, one small symbol and great
        others, one great symbol and small others. Only the last two show both cases of min(m, n)."""
        least, most = {s: s.least for s in self.symbols}, {s: s.most for s in self.symbols}
        between = {s: isqrt(s.least * s.most) for s in self.symbols}
        small = {s: min(s.least + 1, s.most) for s in self.symbols}  # tables of one element show no steps
        found = [least, between]
        for s in self.symbols if len(self.symbols) > 1 else ():
            found += [{**most, s: small[s]}, {**small, s: most[s]}]
        return tuple(c for n, c in enumerate(found) if c not in (most, *found[:n]))

    def at_some(self, wanted: Sequence[bool]) -> Samples | None:
        """The samples at some of the choices; None if these do not tell all known numbers and sums apart."""
        known: dict[Column, Extent] = {}
        for column, extent in self.known.items():
            known[tuple(compress(column, wanted))] = extent
        if len(known) < len(self.known) or sum(wanted) < MOST_TERMS + len(self.symbols):
            return None
        made = replace(self, chosen=tuple(compress(self.choices, wanted)), known=known)
        return made if made.by_chance is None or self.by_chance is not None else None

    @cached_property
    def by_chance(self) -> Choice | None:
        """A choice at which some sum of an extent's quotients differs from a sum that is equal to it at all
        samples; None if there is no such sum."""
        for root in self.symbols:
            same = [root, *(q.symbol for q in self.quotients.all if self.quotients.root(q.symbol) == root)]
            for some in combinations(same, min(len(same), MOST_TERMS)) if len(same) > 1 else ():
                sampled = np.array([[c[s] for s in some] for c in self._full])
                whole = np.column_stack([self.quotients.whole(s)[1] for s in some])
                place = place_of_difference(sampled, whole)
                if place is not None:
                    return {**self.choices[1], root: root.least + place}
        return None

    def knowing(self, known: Mapping[Column, Extent], quotients: Quotients) -> Samples:
        """These samples with more known numbers and quotients; sums of terms that are made stay."""
        made = replace(self, known=known, quotients=quotients)
        made.__dict__.update(_columns=self._columns, _sums=self._sums)
        return made

    def few(self) -> tuple[Samples, Sequence[int]]:
        """Samples at some of the choices, which suffice for kernels, and the numbers of these choices.

        Extents are known from all choices. Cutting a graph into kernels takes long, so only the first graph
        and those that lie furthest from it are cut, as many as there are without quotients and two more.
        """
        wanted, end = MOST_TERMS + len(self.symbols) + 2, len(self.choices)
        for size in range(wanted, end):
            numbers = (0, *range(end - size + 1, end))
            found = self.at_some([n in numbers for n in range(end)])
            if found is not None:
                return found, numbers
        return self, range(end)

    def expression(
        self, numbers: Sequence[int], among: Sequence[Symbol] = (), short: bool = False
    ) -> Extent | None:
        """The expression that equals each of these numbers at its choice; None if there is none.

        among: quotients that may occur in it, next to those in expressions that are known already.
        short: sums with quotients have at most two terms.
        """
        if len(set(numbers)) == 1:
            return numbers[0]
        column = tuple(numbers)
        if column in self.known:
            return self.known[column]
        key = column, tuple(among), short
        if key not in self._tried:
            found: Extent | None = self._found(column, self.symbols)
            if found is None and self.quotients.all:
                found = self._scaled(column, among)
                found = self._among(column, among, short) if found is None else found
            self._tried[key] = found
        return self._tried[key]

    def number(self, extent: Extent, choice: Choice) -> int:
        """The extent's value at a choice of the model's symbols."""
        return number(extent, self.quotients.with_values(choice))

    def value(self, at_choices: Sequence[Any], choice: Choice) -> Any:
        """The number that the samples predict at another choice: a constant, an expression of the symbols, or
        1 divided by an expression. None if the numbers at the samples have another form.
        """
        if all(x == at_choices[0] for x in at_choices):
            return at_choices[0]
        numbers = [x for x in at_choices if isinstance(x, (int, float)) and isfinite(x)]
        if len(numbers) < len(at_choices):
            return None
        if all(x == int(x) for x in numbers):
            found = self.expression([int(x) for x in numbers])
            return None if found is None else self.number(found, choice)
        divisors = [round(1 / x) if x else 0 for x in numbers]
        if not all(n and isclose(1 / n, x, rel_tol=1e-3) for n, x in zip(divisors, numbers, strict=True)):
            return None
        found = self.expression(divisors)
        return None if found is None or not self.number(found, choice) else 1 / self.number(found, choice)

    @cached_property
    def _tried(self) -> dict[tuple[Column, tuple[Symbol, ...], bool], Extent | None]:
        return {}

    @cached_property
    def _primitive(self) -> dict[Column, Extent]:
        """The known expressions, by their numbers without common factors."""
        found: dict[Column, Extent] = {}
        for column, extent in self.known.items():
            found.setdefault(_reduced(column), extent)
        return found

    @cached_property
    def _columns(self) -> dict[Monomial, Column]:
        """The values of each monomial at the choices."""
        return {}

    @cached_property
    def _full(self) -> tuple[Choice, ...]:
        return tuple(map(self.quotients.with_values, self.choices))

    def _column(self, monomial: Monomial) -> Column:
        if monomial not in self._columns:
            self._columns[monomial] = tuple(prod(c[s] for s in monomial) for c in self._full)
        return self._columns[monomial]

    def _scaled(self, numbers: Column, among: Sequence[Symbol]) -> Extent | None:
        """A known expression, times or divided by a number, and times at most one symbol."""
        for s in (None, *self.symbols, *among):
            rest = numbers if s is None else _divided(numbers, self._column((s,)))
            known = None if rest is None else self._primitive.get(_reduced(rest))
            if rest is None or not isinstance(known, Expr):
                continue
            shares = {Fraction(n, number(known, c) or 1) for n, c in zip(rest, self._full, strict=True)}
            if len(shares) == 1:
                (share,) = shares
                found = divided(known * share.numerator, share.denominator)
                if found is not None:
                    return simplify(found * s) if s is not None else found
        return None

    def _among(self, numbers: Column, among: Sequence[Symbol], short: bool) -> Expr | None:
        """A sum of few terms of all symbols, or of more terms of few symbols."""
        every = tuple(dict.fromkeys((*self.symbols, *among)))
        for size in (1, 2):
            found = self._sum_of(numbers, every, size)
            if found is not None:
                return found
        few = () if short else combinations(every, FEW) if len(every) > FEW else (every,)
        return next((x for s in few if (x := self._found(numbers, s)) is not None), None)

    def _found(self, numbers: Column, symbols: tuple[Symbol, ...]) -> Expr | None:
        sizes = range(1, MOST_TERMS + min(len(symbols), 2))
        return next((x for n in sizes if (x := self._sum_of(numbers, symbols, n)) is not None), None)

    def _sum_of(self, numbers: Column, symbols: tuple[Symbol, ...], size: int) -> Expr | None:
        """A sum of `size` terms of these symbols."""
        sums = self._sums.get((symbols, size))
        if sums is None:
            sums = self._sums[symbols, size] = _Sums.of(_monomials(symbols), self._column, size)
        for terms in sums.nearly(numbers):
            rows = list(zip(*map(self._column, terms), strict=True))
            factors = _solved(rows, numbers)
            if factors:
                return _sum(list(zip(factors, terms, strict=True)))
        return None

    @cached_property
    def _sums(self) -> dict[tuple[tuple[Symbol, ...], int], _Sums]:
        return {}


@dataclass(frozen=True)
class _Sums:
    """All sums of a given number of monomials, and the matrices that fit their factors to numbers."""

    terms: tuple[tuple[Monomial, ...], ...]
    columns: Floats  # [sums, samples, terms]; the greatest number of each column is 1
    fits: Floats  # [sums, terms, samples]

    @staticmethod
    def of(monomials: Sequence[Monomial], column: Callable[[Monomial], Column], size: int) -> _Sums:
        terms = tuple(combinations(monomials, size))
        scaled = {m: np.array(column(m), float) / max(map(abs, column(m))) for m in monomials}
        columns = np.array([np.stack([scaled[m] for m in t], axis=1) for t in terms])
        return _Sums(terms, columns, np.linalg.pinv(columns))

    def nearly(self, numbers: Column) -> Iterator[tuple[Monomial, ...]]:
        """The sums that fit the numbers up to rounding."""
        wanted = np.array(numbers, float) / max(map(abs, numbers))
        factors = self.fits @ wanted  # [sums, terms]
        misses = np.abs(np.einsum("ijk,ik->ij", self.columns, factors) - wanted).max(axis=1)
        yield from (self.terms[n] for n in np.flatnonzero(misses < NEARLY))


@cache
def _monomials(symbols: tuple[Symbol, ...]) -> tuple[Monomial, ...]:
    return tuple(
        m
        for size in range(MOST_FACTORS + 1)
        for m in combinations_with_replacement(symbols, size)
        if all(m.count(s) <= MOST_SQUARE for s in m)
    )


def _divided(numbers: Column, by: Column) -> Column | None:
    """The quotients of numbers, if all are whole."""
    if any(b == 0 or n % b for n, b in zip(numbers, by, strict=True)):
        return None
    return tuple(n // b for n, b in zip(numbers, by, strict=True))


def _reduced(numbers: Column) -> Column:
    common = gcd(*numbers) or 1
    return tuple(n // common for n in numbers)


def _solved(rows: Sequence[Sequence[int]], sums: Sequence[int]) -> list[int]:
    """Integers other than 0 whose products with each row add up to the row's sum; [] if there are none."""
    size = len(rows[0])
    system = [[Fraction(x) for x in (*row, total)] for row, total in zip(rows, sums, strict=True)]
    for n in range(size):
        pivot = next((k for k in range(n, len(system)) if system[k][n]), None)
        if pivot is None:
            return []
        first = system.pop(pivot)
        scaled = [x / first[n] for x in first]
        system = [[x - row[n] * y for x, y in zip(row, scaled, strict=True)] for row in system]
        system.insert(n, scaled)
    found = [row[-1] for row in system[:size]]
    if any(row[-1] for row in system[size:]) or not all(x and x.denominator == 1 for x in found):
        return []
    return [int(x) for x in found]


def _sum(terms: Sequence[tuple[int, Monomial]]) -> Expr:
    parts = []
    for factor, monomial in reversed(terms):
        expr: Expr | None = None
        for s in monomial:
            expr = s if expr is None else expr * s
        parts.append(const(factor) if expr is None else expr if factor == 1 else expr * factor)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return simplify(total)


def _rows(symbols: Sequence[Symbol], columns: Sequence[Sequence[int]]) -> tuple[Choice, ...]:
    """Choices of these values. The lists of values are rotated against each other, so that the symbols do not
    all grow together."""
    turned = []
    for n, values in enumerate(columns):
        shift = n % len(values)
        line = [*values[shift:], *values[:shift]]
        turned.append(line[::-1] if n % 2 else line)
    return tuple(dict(zip(symbols, row, strict=True)) for row in zip(*turned, strict=True))


def _generic(most: int, wanted: int, taken: set[int]) -> list[int]:
    """Primes and twice primes, below `most` as far as there are enough, and then above it.

    Other numbers may divide an extent of the model, and its graph is then a special case.
    """
    return [n for n, _ in zip(_candidates(most, taken), range(wanted), strict=False)]


def _apart(least: int, most: int, wanted: int, taken: set[int]) -> list[int]:
    """Numbers between half of `most` (or `least`) and `most`, at even distances: a prime, twice a prime, and
    so on. If there are too few of these, the numbers next to `most` follow.
    """
    end = least if most - least >= 8 * wanted else 0
    end = max(end, most // 2)
    found: list[int] = []
    for n in range(1, wanted + 1):
        near = most - n * (most - end) // wanted
        free = (x for x in range(end, most) if x > 2 and x not in taken and x not in found)
        options = [x for x in free if (_is_prime(x) if n % 2 else x % 2 == 0 and _is_prime(x // 2))]
        found += sorted(options, key=lambda x: abs(x - near))[:1]
    return found + _generic(most, wanted - len(found), {*taken, *found})


def _candidates(most: int, taken: set[int]) -> Iterator[int]:
    for n in chain(range(most - 1, 2, -1), count(max(most, 2) + 1)):
        if n not in taken and _is_generic(n):
            yield n


def _is_generic(n: int) -> bool:
    return _is_prime(n) or (n % 2 == 0 and _is_prime(n // 2))


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))
