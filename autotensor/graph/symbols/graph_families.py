"""A graph for every choice of its symbols: a model whose extents become known when it is called.

    n in 1 … 64        make({n: 64}), make({n: 61}), … ──▶ the graph at n = 64, at n = 61, …

`make` writes a graph for given numbers, as front ends, models and people do. `generalise.py` compares the
graphs of several numbers. The model consists of their common part, and of the rules by which the other parts
follow the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotensor.base.errors import AutotensorError, GraphError
from autotensor.graph.ir import Graph
from autotensor.ir.expr import Symbol
from autotensor.runtime.extents import name_of, unit_of
from autotensor.te.symbols import number, symbols_of

Choice = Mapping[Symbol, int]  # the value of each symbol


@dataclass(frozen=True)
class GraphFamily:
    """See the module's docstring."""

    name: str
    symbols: tuple[Symbol, ...]
    make: Callable[[Choice], Graph]

    def at(self, choice: Choice) -> Graph:
        """The graph of one choice. Raises GraphError, which names the choice, if there is no such graph."""
        try:
            return self.make(choice)
        except AutotensorError as error:
            what = f"model {self.name!r} at {said(choice)}: {error.what}"
            raise GraphError(what, fix=error.fix) from error


def over_shapes(name: str, shapes: Any, make: Callable[[Any], Graph]) -> Graph | GraphFamily:
    """The graph that `make` writes for these named shapes (or extents); a family if they have symbols."""
    given = shapes.items() if isinstance(shapes, Mapping) else ()
    symbols = symbols_of(*(e for _, shape in given for e in (shape if _is_shape(shape) else (shape,))))
    if not symbols:
        return make(shapes)

    def at(choice: Choice) -> Graph:
        return make(
            {n: tuple(number(e, choice) for e in s) if _is_shape(s) else number(s, choice) for n, s in given}
        )

    return GraphFamily(name, symbols, at)


def _is_shape(given: Any) -> bool:
    return isinstance(given, (tuple, list))


def said(choice: Choice) -> str:
    """The extents of a choice as text for people: "n = 8, m = 16"."""
    return ", ".join(f"{name_of(s.name)} = {value * unit_of(s.name)}" for s, value in choice.items())
