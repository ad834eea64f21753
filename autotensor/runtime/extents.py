"""Extents that are known when a function is called: found in the shapes of its arguments, checked, computed.

    {"symbols": [["n", 1, 512]],                       (x: [100, 64])    ──▶  n = 100
     "shapes": {"x": ["n", 64], "y": [["+", "n", 2]]}}                   ──▶  y: [102]

An extent is a number, a symbol's name, or [operator, extent, extent]. A symbol "n/8" stands for n in eighths:
of an extent that is a multiple of 8.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotensor.base.errors import ArgumentError

Formula = Any  # int | str | [str, Formula, Formula]
Shape = tuple[int, ...]

_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}


@dataclass(frozen=True, slots=True)
class OpenShapes:
    """The symbols of a function, and the shapes that depend on them."""

    symbols: tuple[tuple[str, int, int], ...]  # name, least, most
    shapes: Mapping[str, Sequence[Formula]]  # by argument

    @staticmethod
    def of(data: Mapping[str, Any]) -> OpenShapes:
        return OpenShapes(tuple((n, lo, hi) for n, lo, hi in data["symbols"]), data["shapes"])

    def values(self, function: str, found: Mapping[str, Shape]) -> dict[str, int]:
        """The symbols, from the shapes of the arguments.

        Raises ArgumentError for a symbol out of its range, and shapes that do not agree.
        """
        values: dict[str, int] = {}
        places: dict[str, str] = {}
        for name, shape in found.items():
            formulas = self.shapes.get(name, ())
            if len(formulas) not in (0, len(shape)):
                axes = "1 axis" if len(shape) == 1 else f"{len(shape)} axes"
                raise ArgumentError(f"{function}: argument {name!r} has {axes}; expected {self.text(name)}.")
            for axis, (formula, extent) in enumerate(zip(formulas, shape, strict=bool(formulas))):
                for symbol, value in _solved(formula, extent).items():
                    values.setdefault(symbol, value)
                    places.setdefault(symbol, f"axis {axis} of {name!r}")
        for symbol, least, most in self.symbols:
            if symbol not in values or not least <= values[symbol] <= most:
                self._refuse(function, symbol, found)
        for name, shape in found.items():
            if name in self.shapes and self.shape(name, values) != tuple(shape):
                said = ", ".join(f"{_name(s)} = {values[s] * _unit(s)} ({places[s]})" for s in values)
                raise ArgumentError(
                    f"{function}: argument {name!r} has shape {list(shape)}; expected {self.text(name)}, "
                    f"which is {list(self.shape(name, values))} for {said}."
                )
        return values

    def shape(self, name: str, values: Mapping[str, int]) -> Shape:
        """The shape of an argument."""
        return tuple(_value(f, values) for f in self.shapes[name])

    def text(self, name: str) -> str:
        """The shape of an argument, as people write it."""
        return f"[{', '.join(_text(f) for f in self.shapes[name])}]"

    def ranges(self) -> str:
        """ "n from 1 to 512, m from 8 to 64 in steps of 8"."""
        return ", ".join(_range(*s) for s in self.symbols)

    def _refuse(self, function: str, symbol: str, found: Mapping[str, Shape]) -> None:
        """Says which argument asks for what of a symbol that is none of its values."""
        for name, shape in found.items():
            for axis, (formula, extent) in enumerate(zip(self.shapes.get(name, ()), shape, strict=False)):
                if symbol in _symbols(formula):
                    wanted = next(_range(*s) for s in self.symbols if s[0] == symbol)
                    text = "" if _text(formula) == _name(symbol) else f"{_text(formula)} with "
                    raise ArgumentError(
                        f"{function}: axis {axis} of argument {name!r} is {extent}; it is compiled for "
                        f"{text}{wanted}.",
                        fix="Give a shape in that range, or build it with a te.var of a wider one.",
                    )


def solvable(shapes: Sequence[Sequence[Formula]]) -> set[str]:
    """The symbols that arguments of these shapes tell."""
    return {s for shape in shapes for f in shape for s in _solved(f, 0, exact=False)}


def _solved(formula: Formula, extent: int, exact: bool = True) -> dict[str, int]:
    """The symbol for which a formula has this value; none where it is not of one symbol, scaled and moved."""
    match formula:
        case str():
            return {formula: extent}
        case ["*", inner, int(k)] if k > 0 and (not exact or extent % k == 0):
            return _solved(inner, extent // k, exact)
        case ["+", inner, int(k)]:
            return _solved(inner, extent - k, exact)
        case ["-", inner, int(k)]:
            return _solved(inner, extent + k, exact)
    return {}


def _value(formula: Formula, values: Mapping[str, int]) -> int:
    match formula:
        case str():
            return values[formula]
        case [op, a, b]:
            return _OPERATORS[op](_value(a, values), _value(b, values))
    return int(formula)


def _symbols(formula: Formula) -> set[str]:
    match formula:
        case str():
            return {formula}
        case [_, a, b]:
            return _symbols(a) | _symbols(b)
    return set()


def _name(symbol: str) -> str:
    return symbol.partition("/")[0]


def _unit(symbol: str) -> int:
    return int(symbol.partition("/")[2] or 1)


def _range(symbol: str, least: int, most: int) -> str:
    unit = _unit(symbol)
    steps = f" in steps of {unit}" if unit > 1 else ""
    return f"{_name(symbol)} from {least * unit} to {most * unit}{steps}"


def _text(formula: Formula) -> str:
    match formula:
        case ["*", str(symbol), k] if k == _unit(symbol):
            return _name(symbol)
        case ["min" | "max" as op, a, b]:
            return f"{op}({_text(a)}, {_text(b)})"
        case [op, a, b]:
            left, right = (f"({_text(x)})" if isinstance(x, list) else _text(x) for x in (a, b))
            return f"{left} {op} {right}"
    return str(formula)


__all__ = ["Formula", "OpenShapes", "solvable"]
