"""Models whose inputs' extents are open: a function that compiles for the shapes that it meets.

    f = compile_model(from_torch(net, (x,), dynamic_shapes={"x": {0: Dim("batch")}}))
    f(x)       x: [8, …] ──▶ compiled at once for the example's shapes
    f(y)       y: [3, …] ──▶ compiled now, and kept

It is a ByShape that grows: saved, it is one of the shapes that it has met.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from autotensor.api.models import as_graph
from autotensor.base.errors import InputError, TargetError
from autotensor.graph.ir import Graph
from autotensor.graph.symbols.graph_families import Choice, GraphFamily
from autotensor.graph.symbols.open_graphs import OpenGraph
from autotensor.ir.expr import Expr
from autotensor.runtime.module import Module
from autotensor.runtime.modules_by_shape import ByShape, Shapes
from autotensor.runtime.open_artifact import Function
from autotensor.te.symbols import number, symbols_of

KEPT_SHAPES = 64  # sets of shapes; the oldest goes first


def open_graph(make: Callable[..., Any], *extents: Any, name: str = "model") -> GraphFamily:
    """A model whose extents are known when it is called: for compile_model, plan_model and tune_model.

    make: takes one number for each extent and gives a Graph, an output node or a list of them. It is called
    for several numbers, in the ranges where they are wide enough, and must write the same operators with the
    same weights each time.
    Raises InputError for an extent that is no te.var.
    """
    found = symbols_of(*extents)
    if len(found) != len(extents) or not all(isinstance(e, Expr) for e in extents) or not found:
        raise InputError(
            f"open_graph: {', '.join(map(str, extents)) or 'nothing'} is no list of te.var.",
            fix='n = te.var("n", range=(1, 64)); at.open_graph(make, n).',
        )

    def graph(choice: Choice) -> Graph:
        return as_graph(make(*(number(e, choice) for e in extents)), name)

    return GraphFamily(name, found, graph)


class OpenModel(ByShape):
    """See the module's docstring."""

    def __init__(self, graph: OpenGraph, compile: Callable[[Graph], Function]) -> None:
        self._graph, self._compile, self._lock = graph, compile, threading.Lock()
        super().__init__([self._module(graph.at(graph.shapes))])

    def _made_for(self, names: Sequence[str], found: Shapes) -> Module:
        """Raises ArgumentError for shapes that the model does not take."""
        with self._lock:
            member = self._members.get(found)
            if member is None:
                member = self._module(self._graph.at(dict(zip(names, found, strict=True))))
                member.threads = self.threads
                kept = list(self._members.items())[-(KEPT_SHAPES - 1) :]
                self._members = dict([*kept, (found, member)])
            return member

    def _module(self, graph: Graph) -> Module:
        made = self._compile(graph)
        if not isinstance(made, Module):
            raise TargetError(
                f"open shapes are for the processor, not for {type(made).__name__}s.",
                fix="Compile a graph of fixed shapes: open_graph.at(shapes).",
            )
        return made
