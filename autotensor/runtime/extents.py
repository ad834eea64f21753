"""Extents that are known at a call: found in the shapes of the arguments, checked, and used in formulas.

    {"symbols": [["n", 1, 512]],                       (x: [100, 64])    ──▶  n = 100
     "shapes": {"x": ["n", 64], "y": [["+", "n", 2]]}}                   ──▶  y: [102]

An extent is a number, a symbol's name, or [operator, extent, extent]. A symbol "n/8" is an eighth of n, if n
is a multiple of 8.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotensor.base.errors import ArgumentError
from autotensor.runtime.files.artifact import ArgSpec

Formula = Any  # int | str | [str, Formula, Formula]
Shape = tuple[int, ...]
_CACHE_LINE = 64

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
class OpenArena:
    """The memory of a linked model's values, for any extents. It consists of boxes, one after another.

    A box holds values that are never alive at the same time. It is as large as the largest of them.
    """

    name: str  # name of the argument that holds the arena
    boxes: Sequence[Sequence[Formula]]  # for each box, the bytes of each of its values
    extents: Sequence[Formula]  # extents that kernels read
    # the box or None, and the number of bytes from the beginning of the box
    offsets: Sequence[tuple[int | None, Formula]]

    def ends(self, values: Mapping[str, int]) -> list[int]:
        """0, and then the end of each box."""
        ends = [0]
        for box in self.boxes:
            ends.append(ends[-1] + max(_lines(value_of(f, values)) for f in box))
        return ends

    def told(self, values: Mapping[str, int]) -> list[int]:
        """The numbers that the code reads: first the extents, then the offsets."""
        begins = self.ends(values)
        offsets = ((0 if box is None else begins[box]) + value_of(f, values) for box, f in self.offsets)
        return [*(value_of(f, values) for f in self.extents), *offsets]


@dataclass(frozen=True, slots=True)
class OpenShapes:
    """The symbols of a function, and the shapes that use them."""

    symbols: tuple[tuple[str, int, int], ...]  # name, smallest and largest value
    shapes: Mapping[str, Sequence[Formula]]  # shapes by argument
    arena: OpenArena | None = None  # the arena of a linked model

    @staticmethod
    def of(data: Mapping[str, Any]) -> OpenShapes:
        symbols = tuple((n, lo, hi) for n, lo, hi in data["symbols"])
        arena = data.get("arena")
        return OpenShapes(symbols, data["shapes"], None if arena is None else OpenArena(**arena))

    def values(self, function: str, found: Mapping[str, Shape]) -> dict[str, int]:
        """Values of the symbols, from the shapes of the arguments.

        Raises ArgumentError for a symbol out of its range, and for shapes that disagree about a symbol.
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
                said = ", ".join(f"{name_of(s)} = {values[s] * unit_of(s)} ({places[s]})" for s in values)
                raise ArgumentError(
                    f"{function}: argument {name!r} has shape {list(shape)}; expected {self.text(name)}, "
                    f"which is {list(self.shape(name, values))} for {said}."
                )
        return values

    def greatest(self) -> dict[str, int]:
        """The greatest values of the symbols."""
        return {name: most for name, _, most in self.symbols}

    def least(self) -> dict[str, int]:
        """The least values of the symbols."""
        return {name: least for name, least, _ in self.symbols}

    def told(self, values: Mapping[str, int]) -> list[int]:
        """All numbers that the code reads."""
        if self.arena is not None:
            return self.arena.told(values)
        return [values[name] for name, _, _ in self.symbols]

    def of_call(self, args: Sequence[ArgSpec], values: Mapping[str, int]) -> tuple[ArgSpec, ...]:
        """The arguments, with the shapes of one call."""
        shapes = {a.name: self.shape(a.name, values) for a in args if a.name in self.shapes}
        if self.arena is not None:
            shapes[self.arena.name] = (max(1, self.arena.ends(values)[-1]),)
        return tuple(replace(a, shape=shapes[a.name]) if a.name in shapes else a for a in args)

    def shape(self, name: str, values: Mapping[str, int]) -> Shape:
        """The shape of an argument."""
        return tuple(value_of(f, values) for f in self.shapes[name])

    def text(self, name: str) -> str:
        """The shape of an argument, as readable text."""
        return f"[{', '.join(map(str, self.spelled(name)))}]"

    def spelled(self, name: str) -> list[int | str]:
        """The extents of an argument: numbers, and texts for those that are known at run time."""
        return [f if isinstance(f, int) else _text(f) for f in self.shapes[name]]

    def ranges(self) -> str:
        """ "n from 1 to 512, m from 8 to 64 in steps of 8"."""
        return ", ".join(_range(*s) for s in self.symbols)

    def solved(self, name: str, shape: Sequence[int | None]) -> dict[str, int]:
        """The values of the symbols that this shape of an argument determines. None: an unknown extent."""
        pairs = zip(self.shapes.get(name, ()), shape, strict=False)
        found = [_solved(formula, extent) for formula, extent in pairs if extent is not None]
        return {symbol: value for values in found for symbol, value in values.items()}

    def _refuse(self, function: str, symbol: str, found: Mapping[str, Shape]) -> None:
        """Raises the error for a symbol out of range. The error names argument, axis and range."""
        for name, shape in found.items():
            for axis, (formula, extent) in enumerate(zip(self.shapes.get(name, ()), shape, strict=False)):
                if symbol in _symbols(formula):
                    wanted = next(_range(*s) for s in self.symbols if s[0] == symbol)
                    text = "" if _text(formula) == name_of(symbol) else f"{_text(formula)} with "
                    raise ArgumentError(
                        f"{function}: axis {axis} of argument {name!r} is {extent}; it is compiled for "
                        f"{text}{wanted}.",
                        fix="Give a shape in that range, or compile it for a wider one.",
                    )


def solvable(shapes: Sequence[Sequence[Formula]]) -> set[str]:
    """The symbols whose values follow from arguments of these shapes."""
    return {s for shape in shapes for f in shape for s in _solved(f, 0, exact=False)}


def _solved(formula: Formula, extent: int, exact: bool = True) -> dict[str, int]:
    """The value of a formula's symbol for this extent. The result is empty unless the formula is one symbol,
    scaled and shifted."""
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


def value_of(formula: Formula, values: Mapping[str, int]) -> int:
    match formula:
        case str():
            return values[formula]
        case [op, a, b]:
            return _OPERATORS[op](value_of(a, values), value_of(b, values))
    return int(formula)


def _lines(size: int) -> int:
    """The number of bytes, rounded up to whole cache lines."""
    return -(-size // _CACHE_LINE) * _CACHE_LINE


def renamed(formula: Formula, names: Mapping[str, Formula]) -> Formula:
    """The formula, with other names or formulas in place of its symbols."""
    match formula:
        case str():
            return names[formula]
        case [op, a, b]:
            return [op, renamed(a, names), renamed(b, names)]
    return formula


def _symbols(formula: Formula) -> set[str]:
    match formula:
        case str():
            return {formula}
        case [_, a, b]:
            return _symbols(a) | _symbols(b)
    return set()


def name_of(symbol: str) -> str:
    return symbol.partition("/")[0]


def said(values: Mapping[str, int]) -> str:
    """ "n = 3, m = 16"."""
    return ", ".join(f"{name} = {value}" for name, value in in_full(values).items())


def in_full(values: Mapping[str, int]) -> dict[str, int]:
    """The extents of these values of symbols, by their names: {"m/8": 2} ──▶ {"m": 16}."""
    return {name_of(s): value * unit_of(s) for s, value in values.items()}


def symbol_of(formula: Formula) -> str:
    """The symbol whose extent a formula is; "" if it is another number."""
    match formula:
        case str() if unit_of(formula) == 1:
            return formula
        case ["*", str(symbol), k] if k == unit_of(symbol):
            return symbol
    return ""


def unit_of(symbol: str) -> int:
    return int(symbol.partition("/")[2] or 1)


def _range(symbol: str, least: int, most: int) -> str:
    unit = unit_of(symbol)
    steps = f" in steps of {unit}" if unit > 1 else ""
    return f"{name_of(symbol)} from {least * unit} to {most * unit}{steps}"


def _text(formula: Formula) -> str:
    match formula:
        case _ if symbol_of(formula):
            return name_of(symbol_of(formula))
        case ["min" | "max" as op, a, b]:
            return f"{op}({_text(a)}, {_text(b)})"
        case [op, a, b]:
            left, right = (f"({_text(x)})" if isinstance(x, list) else _text(x) for x in (a, b))
            return f"{left} {op} {right}"
    return str(formula)


__all__ = ["Formula", "OpenShapes", "in_full", "said", "solvable", "symbol_of"]
