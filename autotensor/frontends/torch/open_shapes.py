"""Exported programs with `Dim`s: a call may choose these extents, within the program's ranges.

    x: [batch, 4*n], batch in 2 … 64, n in 1 … 16 ──at({"x": (8, 12)})──▶ the graph for [8, 12]

torch writes an extent as a symbol or as an expression of symbols. autotensor uses the same symbols, with the
ranges of the program. For given sizes, the graph is the program's own graph with numbers in place of its
sizes (`sized_graphs.py`). The shapes of a call determine the symbols. Shapes that do not fit raise an error
of one sentence. If the program has other operators at some sizes, it is exported again for those shapes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils._pytree import tree_leaves, tree_unflatten

from autotensor.base.errors import ArgumentError
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.sized_graphs import Numbers, expression, size_at, sized, symbols_of_sizes
from autotensor.graph.ir import Graph
from autotensor.graph.symbols.graph_families import Choice, GraphFamily
from autotensor.graph.symbols.open_graphs import REACH, OpenGraph, Shapes, reached
from autotensor.ir.bounds import interval
from autotensor.ir.expr import as_expr
from autotensor.te.symbols import Extent, number, symbols_of, var


def is_open(program: ExportedProgram) -> bool:
    """Whether a call may choose an extent of an input."""
    return any(not isinstance(n, int) for _, x in _tensors(program) for n in x.shape)


class OpenProgram(OpenGraph):
    """See the module's docstring."""

    def __init__(
        self,
        program: ExportedProgram,
        name: str,
        fixed: Callable[..., Any],
        decompose: Callable[[ExportedProgram], ExportedProgram],
        graph_of: Callable[..., Graph],
        names: Mapping[sympy.Symbol, str],
    ) -> None:
        """fixed: `from_torch`, which returns the graph for one set of shapes. decompose, graph_of: the steps
        of `from_torch` for an exported program. names: the names of the symbols' Dims."""
        self.program, self.name, self._fixed = program, name, fixed
        self._decompose, self._graph_of, self._names = decompose, graph_of, names

    @property
    def shapes(self) -> Shapes:
        example = self.program.example_inputs
        if example is not None:
            arrays = [x for x in tree_leaves(example) if isinstance(x, torch.Tensor)]
            return {n: tuple(x.shape) for (n, _), x in zip(_tensors(self.program), arrays, strict=True)}
        return {n: tuple(hint(e) for e in x.shape) for n, x in _tensors(self.program)}

    def open_axes(self, name: str) -> tuple[int, ...]:
        extents = dict(_tensors(self.program))[name].shape
        return tuple(axis for axis, n in enumerate(extents) if not isinstance(n, int))

    def at(self, shapes: Shapes) -> Graph:
        _check(self.program, self.name, shapes)
        leaves: list[Any] = []
        for value in _inputs(self.program).values():
            if isinstance(value, torch.Tensor):
                name = next(n for n, x in _tensors(self.program) if x is value)
                leaves.append(torch.zeros(shapes[name], dtype=value.dtype))
            else:
                leaves.append(value)
        args, kwargs = tree_unflatten(leaves, self.program.call_spec.in_spec)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about its own internals
            module = self.program.module()
        made = self._fixed(module, tuple(args), kwargs, name=self.name)
        assert isinstance(made, Graph), "exported for fixed shapes"
        return made

    @property
    def is_bounded(self) -> bool:
        return all(most is not None for _, most in self._ranges.values())

    def family(self, shapes: Shapes, end: int = REACH) -> GraphFamily:
        numbers = _check(self.program, self.name, shapes)
        extents = {}
        for s, (least, most) in self._ranges.items():
            extents[s] = var(self._names[s], (max(least, 1), most or reached(numbers[s], end)))
        return self._family(extents)

    @property
    def dimensions(self) -> dict[str, tuple[int, int | None]]:
        """The least and the greatest value of each open dimension, by its name; None if there is no greatest
        value."""
        return {self._names[s]: (max(least, 1), most) for s, (least, most) in self._ranges.items()}

    def places(self, dimension: str) -> list[tuple[str, int]]:
        """The inputs and axes whose extent is exactly this dimension."""
        symbol = self._symbol(dimension)
        return [
            (n, axis)
            for n, x in _tensors(self.program)
            for axis, e in enumerate(x.shape)
            if expression(e) == symbol
        ]

    def said_by(self, name: str, shape: Sequence[Extent]) -> dict[str, Extent]:
        """The dimensions that a shape of one input chooses. Raises ArgumentError for a shape that the program
        does not take, and for a range of an extent that is an expression of dimensions."""
        forms = [expression(e) for e in dict(_tensors(self.program))[name].shape]
        if len(shape) != len(forms):
            raise ArgumentError(f"{self.name}: input {name!r} has {len(forms)} axes, not {len(shape)}.")
        numbers = solved([(form, e) for form, e in zip(forms, shape, strict=True) if isinstance(e, int)])
        for axis, (form, given) in enumerate(zip(forms, shape, strict=True)):
            where = f"{self.name}: axis {axis} of input {name!r} is"
            if isinstance(given, int):
                if takes := _misfit(form, given, numbers, self.program.range_constraints):
                    raise ArgumentError(f"{where} {given}; it takes {takes}.")
            elif isinstance(form, int):
                raise ArgumentError(f"{where} always {form}.")
            elif not isinstance(form, sympy.Symbol):
                parts = " and ".join(sorted(self._names[s] for s in form.free_symbols))
                raise ArgumentError(f"{where} {self._renamed(str(form))}.", fix=f"Give a range of {parts}.")
        ranges = {form: e for form, e in zip(forms, shape, strict=True) if not isinstance(e, int)}
        return {self._names[s]: e for s, e in (numbers | ranges).items()}

    def over(self, chosen: Mapping[str, Extent]) -> Graph | GraphFamily:
        """The graph for these extents of all open dimensions, by their names; a family if any is a range.

        Raises ArgumentError for an extent that its dimension does not take.
        """
        extents = {s: chosen[self._names[s]] for s in self._ranges}
        for s, (least, most) in self._ranges.items():
            ends = interval(as_expr(extents[s]))
            low, high = ends.lo or 0, ends.hi or 0  # numbers, or symbols with ranges: both are known
            if low < least or (most is not None and high > most):
                said = " to ".join(map(str, dict.fromkeys((low, high))))
                where = next(iter(self.places(self._names[s])), None)
                what = f"axis {where[1]} of input {where[0]!r}" if where else self._names[s]
                raise ArgumentError(f"{self.name}: {what} is {said}; it takes {_span(least, most)}.")
        if symbols_of(*extents.values()):
            return self._family(extents)
        numbers = {s: number(e, {}) for s, e in extents.items()}
        return self.at({n: tuple(size_at(e, numbers) for e in x.shape) for n, x in _tensors(self.program)})

    def _family(self, extents: Mapping[sympy.Symbol, Extent]) -> GraphFamily:
        def make(choice: Choice) -> Graph:
            return self._at_numbers({s: number(e, choice) for s, e in extents.items()})

        return GraphFamily(self.name, symbols_of(*extents.values()), make)

    def _symbol(self, dimension: str) -> sympy.Symbol:
        return next(s for s, name in self._names.items() if name == dimension)

    def _renamed(self, text: str) -> str:
        """A text with the names of the dimensions in place of torch's symbols."""
        for symbol, name in self._names.items():
            text = re.sub(rf"\b{symbol}\b", name, text)
        return text

    @cached_property
    def _ranges(self) -> dict[sympy.Symbol, tuple[int, int | None]]:
        """The least and the greatest value of each symbol; None if there is no greatest value."""
        ranges = self.program.range_constraints
        found = {}
        for s in symbols_of_sizes(x for _, x in _tensors(self.program)):
            limits = ranges.get(s)
            least, most = (limits.lower, limits.upper) if limits is not None else (0, sympy.oo)
            for form, its in ranges.items():  # torch gives 4 or more for 4*s, and 2 or more for s
                if form != s and form.free_symbols == {s} and its.lower < 2**62:
                    least = min(least, solved([(form, int(its.lower))]).get(s, least))
            found[s] = int(least), None if most > 2**62 else int(most)
        return found

    @cached_property
    def _decomposed(self) -> ExportedProgram:
        return self._decompose(self.program)

    def _at_numbers(self, numbers: Numbers) -> Graph:
        """The graph at these values of the symbols."""
        try:
            graph = sized(self._decomposed.graph, numbers)
        except Unsupported:  # other operators at these numbers, or branches and loops
            tensors = _tensors(self.program)
            return self.at({n: tuple(size_at(e, numbers) for e in x.shape) for n, x in tensors})
        return self._graph_of(self._decomposed, self.name, graph)

    def __repr__(self) -> str:
        text = ", ".join(f"{n}: [{', '.join(map(str, x.shape))}]" for n, x in _tensors(self.program))
        return f"<OpenProgram {self.name}({self._renamed(text)})>"


def _inputs(program: ExportedProgram) -> dict[str, Any]:
    """Name of each argument of a call → a placeholder tensor of torch, or a constant."""
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    found = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            name = spec.arg.name
            if isinstance(spec.arg, (TensorArgument, ConstantArgument)):
                found[name] = getattr(spec.arg, "value", values[name])
            else:
                raise Unsupported(
                    f"input {name!r} is a number that a call chooses.", fix="Export with the number fixed."
                )
    return found


def _tensors(program: ExportedProgram) -> list[tuple[str, torch.Tensor]]:
    return [(n, x) for n, x in _inputs(program).items() if isinstance(x, torch.Tensor)]


def hint(extent: Any) -> int:
    """The extent in the example; 2 if there is none."""
    return extent if isinstance(extent, int) else int(extent.node.hint or 2)


def dim_names(program: ExportedProgram, dynamic_shapes: Any) -> dict[sympy.Symbol, str]:
    """A name for every symbol of the inputs' shapes: that of its Dim, if `dynamic_shapes` gives the Dims.

    A file of torch.export.save does not hold the names of Dims. A first axis then is "batch", another axis
    has the name of its input and its number, "ids_1". A symbol that is not an axis by itself keeps torch's
    name.
    """
    tensors = _tensors(program)
    names = _given_names(tensors, dynamic_shapes)
    for name, x in tensors:
        for axis, extent in enumerate(x.shape):
            symbol = expression(extent)
            if isinstance(symbol, sympy.Symbol) and symbol not in names:
                free = [n for n in ("batch",) if axis == 0] + [f"{name}_{axis}", str(symbol)]
                taken = {*names.values(), *(n for n, _ in tensors)}
                names[symbol] = next(n for n in free if n not in taken)
    return names | {s: str(s) for s in symbols_of_sizes(x for _, x in tensors) if s not in names}


def _given_names(tensors: Sequence[tuple[str, torch.Tensor]], dynamic_shapes: Any) -> dict[sympy.Symbol, str]:
    """The names of the Dims that `dynamic_shapes` gives for inputs that are tensors."""
    if isinstance(dynamic_shapes, Mapping):
        said = [(x, dynamic_shapes.get(n)) for n, x in tensors]
    else:
        said = list(zip((x for _, x in tensors), dynamic_shapes or (), strict=False))
    names: dict[sympy.Symbol, str] = {}
    for x, dims in said:
        axes = dims.items() if isinstance(dims, Mapping) else enumerate(dims or ())
        for axis, dim in axes:
            symbols = symbols_of_sizes([x.shape[axis]]) if isinstance(axis, int) and axis < x.ndim else ()
            name = getattr(getattr(dim, "root", dim), "__name__", "")
            if len(symbols) == 1 and name.isidentifier() and name not in names.values():
                names.setdefault(symbols[0], name)
    return names


# -- what fits ---------------------------------------------------------------------------------------------


def _axes(program: ExportedProgram, shapes: Shapes) -> Iterator[tuple[str, int, int, Any]]:
    """(input, axis, extent in the call, number or expression in the program) of every axis."""
    for name, x in _tensors(program):
        for axis, (given, wanted) in enumerate(zip(shapes[name], x.shape, strict=True)):
            yield name, axis, given, expression(wanted)


def _check(program: ExportedProgram, model: str, shapes: Shapes) -> Numbers:
    """The values of the symbols. Raises ArgumentError, which names the first axis that does not fit."""
    for name, x in _tensors(program):
        if name not in shapes or len(shapes[name]) != x.ndim:
            what = f"of shape {list(shapes[name])}" if name in shapes else "missing"
            raise ArgumentError(f"{model}: input {name!r} is {what}; it has {x.ndim} axes.")
    axes = list(_axes(program, shapes))
    known = solved([(wanted, given) for _, _, given, wanted in axes])
    for name, axis, given, wanted in axes:
        takes = _misfit(wanted, given, known, program.range_constraints)
        if takes:
            raise ArgumentError(f"{model}: axis {axis} of input {name!r} is {given}; it takes {takes}.")
    return known


def solved(extents: Sequence[tuple[Any, int]]) -> dict[sympy.Symbol, int]:
    """The values of the symbols, solved from pairs of an expression and its value."""
    known: dict[sympy.Symbol, int] = {}
    for wanted, given in extents:
        if isinstance(wanted, sympy.Symbol):
            known.setdefault(wanted, given)
    for wanted, given in extents:
        _solve(wanted, given, known)
    return known


def _solve(wanted: Any, given: int, known: dict[Any, int]) -> None:
    """Adds the only unknown symbol of an expression to `known`, if a whole number gives the expression its
    value."""
    unknown = [s for s in getattr(wanted, "free_symbols", ()) if s not in known]
    if len(unknown) == 1:
        for solution in sympy.solve(wanted.subs(known) - given, unknown[0]):
            if solution.is_integer and solution >= 0:
                known[unknown[0]] = int(solution)
                return


def _misfit(wanted: Any, given: int, known: Mapping[Any, int], ranges: Mapping[Any, Any]) -> str:
    """The extents that an axis accepts, for a message; "" if it accepts this one."""
    if isinstance(wanted, int):
        return "" if wanted == given else str(wanted)
    limits = ranges.get(wanted)
    low, high = (limits.lower, limits.upper) if limits is not None else (0, sympy.oo)
    span = _span(low, None if high > 2**62 else high)
    if not isinstance(wanted, sympy.Symbol) and any(s not in known for s in wanted.free_symbols):
        form = str(wanted)
        for s, letter in zip(sorted(wanted.free_symbols, key=str), "nmkl", strict=False):
            form = form.replace(str(s), letter)
        return f"{span} of the form {form}"
    if wanted.subs(known) != given:
        return f"{wanted.subs(known)} next to the other axes"
    return "" if low <= given <= high else span


def _span(least: Any, most: Any) -> str:
    return f"{least} or more" if most is None else f"{least} to {most}"
