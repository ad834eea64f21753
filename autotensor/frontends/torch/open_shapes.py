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
from autotensor.te.symbols import number, symbols_of, var


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
            extents[s] = var(self._names.get(s, str(s)), (max(least, 1), most or reached(numbers[s], end)))

        def make(choice: Choice) -> Graph:
            return self._at_numbers({s: number(e, choice) for s, e in extents.items()})

        return GraphFamily(self.name, symbols_of(*extents.values()), make)

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
        for symbol, name in self._names.items():
            text = re.sub(rf"\b{symbol}\b", name, text)
        return f"<OpenProgram {self.name}({text})>"


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
    """The names of the Dims that `dynamic_shapes` gives for inputs that are tensors."""
    tensors = _tensors(program)
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
    span = f"{low} or more" if high > 2**62 else f"{low} to {high}"
    if not isinstance(wanted, sympy.Symbol) and any(s not in known for s in wanted.free_symbols):
        form = str(wanted)
        for s, letter in zip(sorted(wanted.free_symbols, key=str), "nmkl", strict=False):
            form = form.replace(str(s), letter)
        return f"{span} of the form {form}"
    if wanted.subs(known) != given:
        return f"{wanted.subs(known)} next to the other axes"
    return "" if low <= given <= high else span
