"""The sample numbers at which a family's graphs are compared, and the expressions that fit the results.

    n in 1 … 8:  n = 8, 7, 5, 3          [128, 112, 80, 48] ──▶ 16*n          [64, 64, 64, 64] ──▶ 64
                                         [9, 8, 6, 4]       ──▶ n + 1         [4, 4, 3, 2]     ──▶ none

An expression is a sum of at most three terms, or four if there are several symbols: 2 * (h + 1) * (w + 1).
Each term is an integer times symbols. There are more samples than such a sum has coefficients. So no sum fits
numbers of another form: rounded halves, a maximum, or a choice that depends on the number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations, combinations_with_replacement, count
from math import isclose, isfinite, isqrt, prod
from typing import Any

from autotensor.graph.symbols.graph_families import Choice
from autotensor.ir.expr import Expr, Symbol, const
from autotensor.ir.simplify import simplify
from autotensor.te.symbols import Extent, number

MOST_TERMS = 3
MOST_FACTORS = 3  # most factors of a term: the scores of a batch have batch * length * length rows
MOST_SQUARE = 2  # how often one symbol may occur in a term

Monomial = tuple[Symbol, ...]


@dataclass(frozen=True)
class Samples:
    """Choices of the symbols; the first choice has the greatest value of every symbol."""

    symbols: tuple[Symbol, ...]

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        wanted = MOST_TERMS + len(self.symbols)
        taken: set[int] = set()
        columns = []
        for n, s in enumerate(self.symbols):
            others = _generic(s.most, wanted - 1, taken)
            taken.update(others)
            # so that not all symbols grow together
            turned = others[n % len(others) :] + others[: n % len(others)]
            columns.append([s.most, *(turned[::-1] if n % 2 else turned)])
        return tuple(dict(zip(self.symbols, row, strict=True)) for row in zip(*columns, strict=True))

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

    def expression(self, numbers: Sequence[int]) -> Extent | None:
        """The expression that equals each of these numbers at its choice; None if there is none."""
        if len(set(numbers)) == 1:
            return numbers[0]
        key = tuple(numbers)
        if key not in self._known:
            self._known[key] = self._found(key)
        return self._known[key]

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
            return None if found is None else number(found, choice)
        divisors = [round(1 / x) if x else 0 for x in numbers]
        if not all(n and isclose(1 / n, x, rel_tol=1e-3) for n, x in zip(divisors, numbers, strict=True)):
            return None
        found = self.expression(divisors)
        return None if found is None or not number(found, choice) else 1 / number(found, choice)

    @cached_property
    def _known(self) -> dict[tuple[int, ...], Expr | None]:
        return {}

    @cached_property
    def _monomials(self) -> tuple[Monomial, ...]:
        return tuple(
            m
            for size in range(MOST_FACTORS + 1)
            for m in combinations_with_replacement(self.symbols, size)
            if all(m.count(s) <= MOST_SQUARE for s in m)
        )

    @cached_property
    def _columns(self) -> dict[Monomial, tuple[int, ...]]:
        """The values of each monomial at the choices."""
        return {m: tuple(prod(c[s] for s in m) for c in self.choices) for m in self._monomials}

    def _found(self, numbers: tuple[int, ...]) -> Expr | None:
        for size in range(1, MOST_TERMS + min(len(self.symbols), 2)):
            for terms in combinations(self._monomials, size):
                rows = list(zip(*(self._columns[m] for m in terms), strict=True))
                factors = _solved(rows[:size], numbers[:size])
                if factors and tuple(_dot(factors, row) for row in rows) == numbers:
                    return _sum(list(zip(factors, terms, strict=True)))
        return None


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _solved(rows: Sequence[Sequence[int]], sums: Sequence[int]) -> list[int]:
    """Integers other than 0 whose products with each row add up to the row's sum; [] if there are none."""
    system = [[Fraction(x) for x in (*row, total)] for row, total in zip(rows, sums, strict=True)]
    for n in range(len(system)):
        pivot = next((r for r in system[n:] if r[n]), None)
        if pivot is None:
            return []
        system.remove(pivot)
        scaled = [x / pivot[n] for x in pivot]
        system = [[x - row[n] * y for x, y in zip(row, scaled, strict=True)] for row in system]
        system.insert(n, scaled)
    found = [row[-1] for row in system]
    return [int(x) for x in found] if all(x and x.denominator == 1 for x in found) else []


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


def _generic(most: int, wanted: int, taken: set[int]) -> list[int]:
    """Primes and twice primes, below `most` as far as there are enough, and then above it.

    Other numbers may divide an extent of the model, and its graph is then a special case.
    """
    return [n for n, _ in zip(_candidates(most, taken), range(wanted), strict=False)]


def _candidates(most: int, taken: set[int]) -> Iterator[int]:
    for n in chain(range(most - 1, 2, -1), count(max(most, 2) + 1)):
        if n not in taken and _is_generic(n):
            yield n


def _is_generic(n: int) -> bool:
    return _is_prime(n) or (n % 2 == 0 and _is_prime(n // 2))


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))
