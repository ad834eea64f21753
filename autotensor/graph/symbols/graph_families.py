"""A graph for every choice of its symbols: what a model is whose extents are known when it is called.

    n = te.var("n", range=(1, 64))
    family = open_graph(net, n)         net(8), net(7), net(61) … ──▶ the graph at n = 8, 7, 61 …

`net` writes a graph for numbers, as all do that write graphs: front ends, models, people. What the graphs of
several numbers have in common, and how the rest follows the numbers, is the model (`generalise.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotensor.base.errors import AutotensorError, GraphError
from autotensor.graph.ir import Graph
from autotensor.ir.expr import Symbol
from autotensor.runtime.extents import name_of, unit_of

Choice = Mapping[Symbol, int]  # what each symbol is


@dataclass(frozen=True)
class GraphFamily:
    """See the module's docstring."""

    name: str
    symbols: tuple[Symbol, ...]
    make: Callable[[Mapping[str, int]], Graph]  # by the names of te.var

    def at(self, choice: Choice) -> Graph:
        """The graph of one choice. Raises GraphError that names the choice if there is none."""
        numbers = {name_of(s.name): value * unit_of(s.name) for s, value in choice.items()}
        try:
            return self.make(numbers)
        except AutotensorError as error:
            said = ", ".join(f"{name} = {value}" for name, value in numbers.items())
            raise GraphError(f"model {self.name!r} at {said}: {error.what}", fix=error.fix) from error

