"""A compiled part of a torch program: the arguments that its module takes, and where its results come from.

    ATen graph ──import──▶ Graph ──compile_model──▶ CompiledPart
    ATen graph with open sizes ──▶ OpenPart, a graph for all values of the sizes ──▶ CompiledPart

A call determines open sizes. One program serves all sizes of an open part; `api/open_models.py` describes
how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any

import sympy
import torch

from autotensor.api.model_compiling import compile_model
from autotensor.base.errors import ArgumentError
from autotensor.frontends.torch import Unsupported, import_nodes
from autotensor.frontends.torch.element_types import dtype_name, to_array, to_tensor
from autotensor.frontends.torch.families.creation import from_tensor
from autotensor.frontends.torch.open_shapes import hint, solved
from autotensor.frontends.torch.sized_graphs import expression, size_at, sized, symbols_of_sizes
from autotensor.graph.build import input as new_input
from autotensor.graph.build import ops
from autotensor.graph.ir import Graph, GraphNode, Input, topological
from autotensor.graph.symbols.graph_families import Choice, GraphFamily
from autotensor.graph.symbols.open_graphs import REACH, OpenGraph, Shapes, reached
from autotensor.integrations.strided_results import Strides
from autotensor.integrations.torch_options import Options
from autotensor.runtime.open_artifact import Function
from autotensor.te.symbols import number, symbols_of, var

Run = Callable[..., Any]
Views = frozenset[int] | None  # indices of results that torch turns into views; None: any result may be one
_KEPT_SIZES = 64  # most values that are kept of a result that is a size
_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """A module, and how its arguments and results correspond to those of a part."""

    module: Function | None  # None: nothing is computed
    inputs: tuple[int, ...]  # the indices of the part's arguments that the module takes, in order
    # per result: ("out", n), ("turned", (n, axes)), ("strided", (n, strides)), ("arg", n), ("value", x), or
    # ("size", of the arguments)
    results: tuple[Any, ...]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        made: Any = ()
        if self.module is not None:
            arrays = [_argument(args[n]) for n in self.inputs]
            made = self.module(*arrays)
            made = made if isinstance(made, tuple) else (made,)
        return [
            to_tensor(made[x])
            if kind == "out"
            else args[x]
            if kind == "arg"
            else to_tensor(made[x[0]]).permute(x[1])
            if kind == "turned"
            else x[1].placed(to_tensor(made[x[0]]), args)
            if kind == "strided"
            else x(args)
            if kind == "size"
            else x
            for kind, x in self.results
        ]


def _argument(value: torch.Tensor) -> Any:
    """The tensor's memory if a kernel can read it, else a copy."""
    try:
        array: Any = value.numpy()  # most tensors are plain memory, and this takes half a microsecond
    except (RuntimeError, TypeError):  # a lazily negated tensor, or a type that NumPy lacks
        array = None
    if array is None or not array.flags.c_contiguous:
        array = to_array(value)
    return array if array.flags.aligned else array.copy()


def compile_part(
    module: torch.fx.GraphModule, known: dict[int, Any], options: Options, views: Views = None
) -> CompiledPart:
    """Compiles an ATen graph. known: the arguments that are constants (weights and numbers), by index. views:
    the results that must have torch's own strides and offset, because torch makes views with these.

    Raises Unsupported for operators that cannot be converted.
    """
    arguments = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
    constants = {n: from_tensor(x) for n, x in known.items() if isinstance(x, torch.Tensor)}
    model: OpenPart | Graph | None
    if symbols_of_sizes(arguments):
        part = OpenPart(module.graph, {**known, **constants}, views)
        results, inputs, model = part.results, part.inputs, part if part.computes else None
    else:
        cut = _cut(module.graph, {**known, **constants}, views=views)
        results, inputs, model = cut.results, cut.inputs, cut.graph
    if model is None:
        return CompiledPart(None, (), results)
    made = compile_model(
        model,
        options.trials,
        options.target,
        db=options.log,
        seed=options.seed,
        progress=not options.quiet,
        instant=options.instant,
    )
    return CompiledPart(made, inputs, results)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A part at one set of shapes, with the fields of `CompiledPart`."""

    graph: Graph | None
    inputs: tuple[int, ...]
    results: tuple[Any, ...]


def _cut(
    graph: torch.fx.Graph,
    known: Mapping[int, Any],
    taken: frozenset[int] = frozenset(),
    views: Views = None,
) -> _Cut:
    """The graph of the computed results; other results are arguments or values. known: the nodes or numbers
    to use instead of arguments.

    taken: arguments that are inputs of the graph even if it does not read them. views: as for `compile_part`.
    """
    given: dict[str, Any] = {}
    places: dict[Input, int] = {}
    for number_, node in enumerate(n for n in graph.nodes if n.op == "placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and number_ not in known:
            argument = new_input(tuple(value.shape), dtype_name(value.dtype), node.name)
            given[node.name] = argument
            places[argument] = number_
        else:
            given[node.name] = known.get(number_, value)
    (made,) = graph.find_nodes(op="output")
    nodes = import_nodes(graph, given)
    outputs: list[GraphNode] = []
    results: list[tuple[str, Any]] = []
    for number_, (node, result) in enumerate(zip(nodes, made.args[0], strict=True)):
        value = getattr(result, "meta", {}).get("val")
        strides = Strides.of(value, int) if views is None or number_ in views else None
        # torch's order of the axes in memory; code after the part may read it: `as_strided`, `is_contiguous`
        order = _order(value)
        if not isinstance(node, GraphNode):
            results.append(("value", node))
        elif isinstance(node, Input):
            results.append(("arg", places[node]))
        elif strides is not None:
            results.append(("strided", (len(outputs), strides)))
            outputs.append(node)
        elif order:
            back = tuple(order.index(a) for a in range(len(order)))
            results.append(("turned", (len(outputs), back)))
            outputs.append(ops.transpose(node, axes=order))
        else:
            results.append(("out", len(outputs)))
            outputs.append(node)
    if not outputs:
        return _Cut(None, (), tuple(results))
    reached = set(topological(tuple(outputs)))
    inputs = tuple(n for n, at in places.items() if n in reached or at in taken)
    found = Graph(inputs, tuple(outputs), "torch_part")
    return _Cut(found, tuple(places[n] for n in inputs), tuple(results))


def _order(value: Any) -> tuple[int, ...]:
    """The axes of a tensor in the order of its memory, outermost first. () if that is their own order, or if
    the memory has gaps."""
    if not isinstance(value, torch.Tensor) or value.is_contiguous():
        return ()
    axes = sorted(range(value.dim()), key=lambda a: (-int(value.stride(a)), -int(value.shape[a])))
    return tuple(axes) if value.permute(axes).is_contiguous() else ()


def unpacked(part: CompiledPart) -> Run:
    def run(*args: Any) -> list[Any]:
        return part(args)

    return run


# -- sizes that a call tells -------------------------------------------------------------------------------


class OpenPart(OpenGraph):
    """A part whose sizes depend on the call. Dynamo checks them by torch's guards."""

    name = "torch_part"

    def __init__(self, graph: torch.fx.Graph, known: Mapping[int, Any], views: Views = None) -> None:
        """known, views: as for `_cut`. Raises Unsupported for operators that cannot be converted."""
        self._graph, self._known, self._views = graph, known, views
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        values = {k: n.meta.get("val") for k, n in enumerate(placeholders)}
        self._symbols = symbols_of_sizes(values.values())
        self._tensors = {k: x for k, x in values.items() if isinstance(x, torch.Tensor) and k not in known}
        self._names = {k: placeholders[k].name for k in self._tensors}
        self._open = frozenset(k for k, x in self._tensors.items() if symbols_of_sizes([x]))
        example = solved([(expression(n), hint(n)) for n in _sizes(values.values())])
        self._ranges = _ranges(self._symbols, values.values())
        first = self._cut_at(example)
        self.inputs, self.computes = first.inputs, first.graph is not None
        self._example, self._results = example, first.results
        told = {s for k in self.inputs for s in symbols_of_sizes(self._plain(k))}
        if self.computes and told != set(self._symbols):
            raise Unsupported("a size that does not follow from the shapes of inputs")
        (output,) = graph.find_nodes(op="output")
        traced = [getattr(n, "meta", {}).get("val") for n in output.args[0]]
        self.results = tuple(
            _open_result(value, result, lambda n: n if isinstance(n, int) else Size.of(n, values))
            for value, result in zip(traced, first.results, strict=True)
        )

    @property
    def shapes(self) -> Shapes:
        return {self._names[k]: self._shape(k, self._example) for k in self.inputs}

    @property
    def is_bounded(self) -> bool:
        return False

    def open_axes(self, name: str) -> tuple[int, ...]:
        (k,) = (k for k, n in self._names.items() if n == name)
        return tuple(axis for axis, n in enumerate(self._tensors[k].shape) if not isinstance(n, int))

    def at(self, shapes: Shapes) -> Graph:
        return self._at_numbers(self._numbers(shapes))

    def family(self, shapes: Shapes, end: int = REACH) -> GraphFamily:
        numbers = self._numbers(shapes)
        extents = {}
        for s, (least, most, unit) in self._ranges.items():
            last = most if most is not None else reached(numbers[s], end)
            extents[s] = var(str(s), (-(-least // unit) * unit, last // unit * unit), unit)

        def make(choice: Choice) -> Graph:
            return self._at_numbers({s: number(e, choice) for s, e in extents.items()})

        return GraphFamily(self.name, symbols_of(*extents.values()), make)

    def _at_numbers(self, numbers: Mapping[sympy.Symbol, int]) -> Graph:
        cut = self._cut_at(numbers)
        same = [_same_result(a, b) for a, b in zip(cut.results, self._results, strict=True)]
        if cut.graph is None or cut.inputs != self.inputs or not all(same):
            raise Unsupported("a part of the model has other results at other sizes.")
        return cut.graph

    def _cut_at(self, numbers: Mapping[sympy.Symbol, int]) -> _Cut:
        return _cut(sized(self._graph, numbers), self._known, self._open, self._views)

    def _numbers(self, shapes: Shapes) -> dict[sympy.Symbol, int]:
        extents = [
            (expression(n), given)
            for k in self.inputs
            for n, given in zip(self._tensors[k].shape, shapes[self._names[k]], strict=True)
        ]
        found = solved([(e, given) for e, given in extents if not isinstance(e, int)])
        if set(found) != set(self._symbols) or any(
            (e if isinstance(e, int) else int(e.xreplace(found))) != given for e, given in extents
        ):
            raise ArgumentError(f"{self.name}: no sizes of it give inputs of shapes {dict(shapes)}.")
        return found

    def _shape(self, k: int, numbers: Mapping[sympy.Symbol, int]) -> tuple[int, ...]:
        return tuple(size_at(n, numbers) for n in self._tensors[k].shape)

    def _plain(self, k: int) -> list[Any]:
        """The sizes of an argument with exactly one symbol."""
        return [n for n in self._tensors[k].shape if len(symbols_of_sizes([n])) == 1]


def _open_result(value: Any, result: tuple[str, Any], open_: Callable[[Any], Any]) -> tuple[str, Any]:
    """A result at one set of sizes as the result at any sizes.

    value: what torch has traced. open_: makes a function of a size.
    """
    if isinstance(value, _SIZES):
        return "size", open_(value)
    if result[0] == "strided":
        return "strided", (result[1][0], Strides.of(value, open_))
    return result


def _same_result(a: tuple[str, Any], b: tuple[str, Any]) -> bool:
    """Whether two sets of sizes give the same result: numbers and strides may differ."""
    return a == b or a[0] == b[0] == "value" or (a[0] == b[0] == "strided" and a[1][0] == b[1][0])


@dataclass(frozen=True, slots=True)
class Size:
    """A size among the results of a part, as a function of the part's arguments."""

    size: Any  # torch's own value
    # for each symbol, an argument and its axis; axis -1: the argument itself
    places: tuple[tuple[sympy.Symbol, int, int], ...]
    known: dict[tuple[int, ...], Any] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(size: Any, arguments: Mapping[int, Any]) -> Size:
        """The size as such a function. Raises Unsupported if the arguments do not determine it."""
        places: dict[sympy.Symbol, tuple[int, int]] = {}
        for k, x in arguments.items():
            axes = enumerate(x.shape) if isinstance(x, torch.Tensor) else ((-1, x),)
            for axis, n in axes:
                if isinstance(n, torch.SymInt) and isinstance(expression(n), sympy.Symbol):
                    places.setdefault(expression(n), (k, axis))
        wanted = sorted(expression(size).free_symbols, key=str)
        if any(s not in places for s in wanted):
            raise Unsupported(f"a result is the size {size}, which does not follow from the arguments.")
        return Size(size, tuple((s, *places[s]) for s in wanted))

    def __call__(self, args: Sequence[Any]) -> Any:
        key = tuple(int(args[k] if axis < 0 else args[k].shape[axis]) for _, k, axis in self.places)
        if key not in self.known:
            if len(self.known) >= _KEPT_SIZES:
                self.known.clear()
            numbers = {s: sympy.Integer(n) for (s, _, _), n in zip(self.places, key, strict=True)}
            kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(self.size)]
            self.known[key] = kind(expression(self.size).xreplace(numbers))
        return self.known[key]


def _sizes(values: Any) -> list[Any]:
    """The open sizes in the shapes of tensors, and among numbers."""
    sizes = (n for v in values for n in (v.shape if isinstance(v, torch.Tensor) else (v,)))
    return [n for n in sizes if isinstance(n, torch.SymInt)]


def _ranges(symbols: Sequence[sympy.Symbol], values: Any) -> dict[sympy.Symbol, tuple[int, int | None, int]]:
    """For each symbol, the least and the greatest value, and a unit that divides the value."""
    world = next(n.node.shape_env for n in _sizes(values))
    found = {}
    for s in symbols:
        limits = world.bound_sympy(s)
        most = None if limits.upper > 2**62 else int(limits.upper)
        parts = (
            sympy.cancel(m.args[0] / m.args[1]) / s for m in world.divisible
        )  # 1/2 for (n * s) % (2 * n)
        units = [int(p.q) for p in parts if p.is_Rational]
        found[s] = int(limits.lower) if limits.lower > 1 else 1, most, lcm(*units)
    return found


__all__ = ["CompiledPart", "OpenPart", "compile_part", "unpacked"]
