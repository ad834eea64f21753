"""Exported programs with `Dim`s: extents that a call may choose, within what the program says of them.

    x: [batch, 4*n], batch in 2 … 64, n in 1 … 16 ──at({"x": (8, 12)})──▶ the graph for [8, 12]

torch keeps an extent as a symbol or as an expression of symbols. The shapes of a call give the symbols their
values; what does not fit is one sentence. The program is exported again for these shapes alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils._pytree import tree_leaves, tree_unflatten

from autotensor.base.errors import ArgumentError
from autotensor.frontends.errors import Unsupported
from autotensor.graph.ir import Graph
from autotensor.graph.symbols.open_graphs import OpenGraph, Shapes


def is_open(program: ExportedProgram) -> bool:
    """Whether a call may choose an extent of an input."""
    return any(not isinstance(n, int) for _, x in _tensors(program) for n in x.shape)


class OpenProgram(OpenGraph):
    """See the module's docstring."""

    def __init__(self, program: ExportedProgram, name: str, fixed: Callable[..., Any]) -> None:
        """fixed: `from_torch`, which writes the graph of one set of shapes."""
        self.program, self.name, self._fixed = program, name, fixed

    @property
    def shapes(self) -> Shapes:
        example = self.program.example_inputs
        if example is not None:
            arrays = [x for x in tree_leaves(example) if isinstance(x, torch.Tensor)]
            return {n: tuple(x.shape) for (n, _), x in zip(_tensors(self.program), arrays, strict=True)}
        return {n: tuple(_hint(e) for e in x.shape) for n, x in _tensors(self.program)}

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

    def __repr__(self) -> str:
        inputs = (f"{n}: {[str(e) for e in x.shape]}" for n, x in _tensors(self.program))
        return f"<OpenProgram {self.name}({', '.join(inputs)})>".replace("'", "")


def _inputs(program: ExportedProgram) -> dict[str, Any]:
    """What stands for each argument of a call: a tensor that torch made up, or a constant."""
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


def _hint(extent: Any) -> int:
    return extent if isinstance(extent, int) else int(extent.node.hint or 2)


# -- what fits ---------------------------------------------------------------------------------------------


def _axes(program: ExportedProgram, shapes: Shapes) -> Iterator[tuple[str, int, int, Any]]:
    """(input, axis, extent of the call, number or expression) of every axis."""
    for name, x in _tensors(program):
        for axis, (given, wanted) in enumerate(zip(shapes[name], x.shape, strict=True)):
            yield name, axis, given, wanted if isinstance(wanted, int) else wanted.node.expr


def _check(program: ExportedProgram, model: str, shapes: Shapes) -> None:
    """Raises ArgumentError naming the first axis that does not fit."""
    for name, x in _tensors(program):
        if name not in shapes or len(shapes[name]) != x.ndim:
            what = f"of shape {list(shapes[name])}" if name in shapes else "missing"
            raise ArgumentError(f"{model}: input {name!r} is {what}; it has {x.ndim} axes.")
    axes = list(_axes(program, shapes))
    known: dict[Any, int] = {}
    for _, _, given, wanted in axes:
        if isinstance(wanted, sympy.Symbol):
            known.setdefault(wanted, given)
    for _, _, given, wanted in axes:
        _solve(wanted, given, known)
    for name, axis, given, wanted in axes:
        takes = _misfit(wanted, given, known, program.range_constraints)
        if takes:
            raise ArgumentError(f"{model}: axis {axis} of input {name!r} is {given}; it takes {takes}.")


def _solve(wanted: Any, given: int, known: dict[Any, int]) -> None:
    """Learns the one symbol of an expression that is not known yet, if a whole number solves it."""
    unknown = [s for s in getattr(wanted, "free_symbols", ()) if s not in known]
    if len(unknown) == 1:
        for solution in sympy.solve(wanted.subs(known) - given, unknown[0]):
            if solution.is_integer and solution >= 0:
                known[unknown[0]] = int(solution)
                return


def _misfit(wanted: Any, given: int, known: Mapping[Any, int], ranges: Mapping[Any, Any]) -> str:
    """What an axis takes, if it does not take this extent; "" if it does."""
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
