"""Models whose inputs' extents are open: one program for a range of shapes.

    f = compile_model(from_torch(net, (x,), dynamic_shapes={"x": {0: Dim("batch")}}))
    f(x)       x: [8, …]    ──▶ the program that was compiled at once, for batch from 1 to 1024
    f(y)       y: [3, …]    ──▶ the same
    f(z)       z: [5000, …] ──▶ compiled now, for batch from 1 to 16384, and kept

If no such program is possible, and the extents have no bounds, the graph is compiled for each set of shapes
that is called: the result is then a ByShape that grows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import prod
from pathlib import Path
from typing import Any

from autotensor.api.models import as_graph
from autotensor.base import log
from autotensor.base.errors import ArgumentError, GraphError, InputError, TargetError, TensorError
from autotensor.graph.ir import Graph
from autotensor.graph.symbols.generalise import BY_SHAPE
from autotensor.graph.symbols.graph_families import Choice, GraphFamily
from autotensor.graph.symbols.open_graphs import NEAREST, REACH, OpenGraph, power_of_two
from autotensor.ir.expr import Expr
from autotensor.runtime.arrays import Array
from autotensor.runtime.function import Store
from autotensor.runtime.module import Module
from autotensor.runtime.modules_by_shape import ByShape, Shapes
from autotensor.runtime.open_artifact import Function
from autotensor.runtime.open_module import OpenModule
from autotensor.runtime.signature import Signature
from autotensor.te.symbols import number, symbols_of

MOST_ELEMENTS = 1 << 27  # limit for the largest input: compiling makes constants of its size
KEPT_SHAPES = 64  # sets of shapes whose programs are kept; the oldest is dropped first


def open_graph(make: Callable[..., Any], *extents: Any, name: str = "model") -> GraphFamily:
    """A model whose extents are known when it is called: for compile_model, plan_model and tune_model.

    make: takes one number for each extent and gives a Graph, an output node or a list of output nodes. It is
    called with several numbers (inside the ranges, if these are wide enough). It must write the same
    operators with the same weights each time.
    Raises InputError for an extent that is not a te.var.
    """
    found = symbols_of(*extents)
    if len(found) != len(extents) or not all(isinstance(e, Expr) for e in extents) or not found:
        raise InputError(
            f"open_graph: {', '.join(map(str, extents)) or 'nothing'} is not a list of te.var.",
            fix='n = te.var("n", range=(1, 64)); at.open_graph(make, n).',
        )

    def graph(choice: Choice) -> Graph:
        return as_graph(make(*(number(e, choice) for e in extents)), name)

    return GraphFamily(name, found, graph)


class OpenModel(ByShape):
    """See the module's docstring."""

    def __init__(self, graph: OpenGraph, compile: Callable[[Graph | GraphFamily], Function]) -> None:
        """Raises GraphError for a graph with bounds that one program cannot serve."""
        self._graph, self._compile, self._lock = graph, compile, threading.Lock()
        self._programs: tuple[Module, ...] = ()  # each takes all shapes of the programs before it, and more
        self._members: Mapping[Shapes, Module] = {}
        shapes = graph.shapes
        first = self._grown(shapes) or self._module(graph.at(shapes))
        self._members = {tuple(shapes[a.name] for a in first.signature.inputs): first}
        self._key = ""
        self._start(first.artifact, first._loaded, first._values, first.threads, first._provider_name)

    @property
    def modules(self) -> tuple[Module, ...]:
        """The programs for ranges of shapes, then the programs for one set of shapes each."""
        return tuple(dict.fromkeys((*self._programs, *self._members.values())))

    @property
    def signature(self) -> Signature:
        """The signature of the first program. Its text has the names of the extents that a call chooses."""
        return self.modules[0].signature

    def _made_for(self, names: Sequence[str], found: Shapes) -> Module:
        """Raises ArgumentError for shapes that the model does not take."""
        with self._lock:
            member = self._members.get(found)
            if member is None:
                shapes = dict(zip(names, found, strict=True))
                member = self._serving(shapes) or self._module(self._graph.at(shapes))
                member.threads = self.threads
                kept = list(self._members.items())[-(KEPT_SHAPES - 1) :]
                self._members = dict([*kept, (found, member)])
            return member

    def _serving(self, shapes: Mapping[str, tuple[int, ...]]) -> Module | None:
        """The program for a range with these shapes. It is compiled now if no program has such a range; None
        if one program cannot serve them."""
        for program in self._programs:
            assert isinstance(program, OpenModule)
            try:
                program.open_shapes.values(self.name, shapes)
            except ArgumentError:
                continue
            return program
        if not self._programs or self._graph.is_bounded or any(0 in s for s in shapes.values()):
            return None  # there is no family, or a larger range would not help
        return self._grown(shapes)

    def _grown(self, shapes: Mapping[str, tuple[int, ...]]) -> Module | None:
        """A program for a range that contains these shapes; None if one program cannot serve them.

        If the model does not work for the whole range, half of the range is tried, then half of that.
        """
        end = max(REACH, power_of_two(2 * max((n for s in shapes.values() for n in s), default=1)))
        while end > NEAREST and self._most_elements(shapes, end) > MOST_ELEMENTS:
            end //= 2
        while True:
            try:
                program = self._compile(self._graph.family(shapes, end))
            except (GraphError, TensorError) as error:
                if self._graph.is_bounded:
                    raise
                told, end = error.what, end // 2
                if error.fix == BY_SHAPE or end < NEAREST:
                    break
            else:
                assert isinstance(program, OpenModule), "it has symbols"
                self._programs += (program,)
                return program
        log.at(1, lambda: f"{self._graph.name} is compiled for each set of shapes: {told}")
        return None

    def _most_elements(self, shapes: Mapping[str, tuple[int, ...]], end: int) -> int:
        """The number of elements of the largest input, if its open extents go up to `end`."""
        axes = {name: self._graph.open_axes(name) for name in shapes}
        return max(
            prod(max(n, end) if a in axes[name] else n for a, n in enumerate(shape))
            for name, shape in shapes.items()
        )

    def _module(self, graph: Graph) -> Module:
        made = self._compile(graph)
        if not isinstance(made, Module):
            raise TargetError(
                f"open shapes are for the processor, not for {type(made).__name__}s.",
                fix="Compile a graph of fixed shapes: open_graph.at(shapes).",
            )
        return made

    @property
    def _kept(self) -> Module:
        """The module to save or bind: the program with the widest range, or else all programs for one set of
        shapes each."""
        return self._programs[-1] if self._programs else ByShape(tuple(self._members.values()))

    def bind(self, **constants: Array) -> Any:
        return self._kept.bind(**constants)

    def save(self, path: str | Path, store: Store | None = None) -> None:
        """Writes the program for the widest range, or else all programs for one set of shapes, to an `.atm`
        file, atomically. store: as for one function."""
        self._kept.save(path, store)

    def __repr__(self) -> str:
        return "; ".join(map(repr, self.modules))

    def _with(self, values: dict[str, Array]) -> Any:
        return copy(self._kept)
