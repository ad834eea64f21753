"""`from_torch`: a module, exported by torch for example inputs, as a graph.

    module ──torch.export──▶ ATen operators ──decompositions──▶ fewer kinds ──import_nodes──▶ Graph

Parameters and buffers become constants; shapes are those of the examples. Inputs keep the names of
`forward`'s arguments, and results in a dictionary are named by its keys.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from autotensor.base.errors import InputError
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.decomposed.table import WHOLE, extended
from autotensor.frontends.torch.element_types import dtype_name
from autotensor.frontends.torch.families.creation import from_tensor
from autotensor.frontends.torch.importer import import_nodes
from autotensor.frontends.torch.open_shapes import OpenProgram, dim_names, is_open
from autotensor.frontends.torch.refused_operators import first_line, reasons, suggestions
from autotensor.graph.build import input as new_input
from autotensor.graph.ir import Graph, GraphNode, Input
from autotensor.graph.symbols.open_graphs import OpenGraph

# torch.export keeps these operators whole; its decompositions would turn them into products and sums
KEPT = frozenset(
    {
        *WHOLE,
        "aten.linear.default",
        "aten.matmul.default",
        "aten.scaled_dot_product_attention.default",
        "aten.rms_norm.default",
        *(f"aten.{layer}.input" for layer in ("lstm", "gru", "rnn_tanh", "rnn_relu")),
    }
)
_CHANGED = {
    OutputKind.BUFFER_MUTATION: "writes to its buffer {!r}",
    OutputKind.PARAMETER_MUTATION: "writes to its parameter {!r}",
    OutputKind.USER_INPUT_MUTATION: "writes into its input {!r}",
}
_INSTEAD = {
    OutputKind.BUFFER_MUTATION: "Take its value as an input and return the new one",
    OutputKind.PARAMETER_MUTATION: "Take its value as an input and return the new one",
    OutputKind.USER_INPUT_MUTATION: "Write to a clone of it",
}


def from_torch(
    module: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str = "",
) -> Graph | OpenGraph:
    """The module's computation at the shapes and types of the examples; its weights are constants.

    dynamic_shapes: extents that calls may choose, in the form of torch.export.export. The result then is an
    OpenGraph, as for an exported program with open extents: one program serves all extents of its Dims.

    example_inputs: the arguments of `module(*example_inputs, **example_kwargs)`; a single tensor may stand
    alone. A program that torch.export.export has already exported needs no example inputs.
    Results that are None are left out. Raises Unsupported, with operator and line, for operators that cannot
    be converted. Also raises it for modules that torch cannot export or that write to inputs or buffers.
    """
    if isinstance(module, ExportedProgram):
        if dynamic_shapes is not None:
            raise InputError("dynamic_shapes is for modules; an exported program has its own.")
        program = module
    elif isinstance(module, torch.nn.Module):
        if isinstance(dynamic_shapes, bool | int | str):
            raise InputError(
                f"dynamic_shapes is {dynamic_shapes!r}; it names the open axes of each input.",
                fix='For example ({0: torch.export.Dim("batch", max=64)},).',
            )
        module = getattr(module, "_orig_mod", module)  # torch.compile wraps modules
        name = name or type(module).__name__.lower()
        if example_kwargs is not None and not isinstance(example_kwargs, Mapping):
            raise InputError(f"example_kwargs is a {type(example_kwargs).__name__}, expected inputs by name.")
        program = _export(module, _as_tuple(example_inputs), dict(example_kwargs or {}), dynamic_shapes)
    else:
        raise InputError(
            f"from_torch takes a torch.nn.Module or an exported program, not {type(module).__name__}.",
            fix=_instead(module),
        )
    name = re.sub(r"\W", "_", name) or "model"
    if is_open(program):
        names = dim_names(program, dynamic_shapes)
        return OpenProgram(program, name, from_torch, _decomposed, graph_of, names)
    return graph_of(_decomposed(program), name)


def graph_of(program: ExportedProgram, name: str, nodes_of: torch.fx.Graph | None = None) -> Graph:
    """The graph of an exported program whose operators are decomposed. nodes_of: the same nodes, with numbers
    in place of the program's open sizes."""
    nodes_of = program.graph if nodes_of is None else nodes_of
    inputs, given = _given(program, nodes_of)
    nodes = import_nodes(nodes_of, given)
    keys = _result_names(program)
    outputs: list[GraphNode] = []
    names: list[str] = []
    held = {s.target: given[s.arg.name] for s in program.graph_signature.input_specs if s.target}
    for spec, node in zip(program.graph_signature.output_specs, nodes, strict=True):
        if spec.kind is OutputKind.TOKEN:
            continue
        if spec.kind in _CHANGED and held.get(spec.target) is node:  # self.table = self.table.to(x.device)
            continue
        if spec.kind is OutputKind.BUFFER_MUTATION and _has_norms_in_training(program.graph):
            raise Unsupported(
                f"{name} writes to its buffer {spec.target!r}: a norm in training mode changes its buffers.",
                fix="Call .eval() on the module.",
            )
        if spec.kind in _CHANGED:
            raise Unsupported(
                f"{name} {_CHANGED[spec.kind].format(spec.target)}.",
                fix=f'{_INSTEAD[spec.kind]}; torch.compile(model, backend="autotensor") writes it back.',
            )
        key = next(keys, "") if spec.kind is OutputKind.USER_OUTPUT else ""
        if node is None:
            continue
        if not isinstance(node, GraphNode):
            raise Unsupported(f"{name} returns {node!r}, which is not a tensor.")
        outputs.append(node)
        names.append(key)
    if not outputs:
        raise Unsupported(f"{name} returns no tensor.")
    usable = all(names) and len({*names, *(i.name for i in inputs)}) == len(names) + len(inputs)
    return Graph(tuple(inputs), tuple(outputs), name, tuple(names) if usable else ())


def _has_norms_in_training(graph: torch.fx.Graph) -> bool:
    return any(str(n.target) == "aten._native_batch_norm_legit_functional.default" for n in graph.nodes)


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """Exports the module. Raises Unsupported, with torch's message, if torch cannot."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own internals
        try:
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        except Exception as error:  # torch raises many kinds
            raise Unsupported(
                f"torch.export cannot export {type(module).__name__}: {reasons(error)}.",
                fix=_export_advice(module, args, kwargs, error),
            ) from error


def _instead(given: Any) -> str:
    """The advice for an object that is not a module."""
    if isinstance(given, str | os.PathLike):
        return f"Read the file: torch.export.load({os.fspath(given)!r})."
    if isinstance(given, Mapping):
        return "These are weights: load them into the module, module.load_state_dict(weights)."
    return "Wrap a function in a module." if callable(given) else ""


def _export_advice(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> str:
    """The advice for a module that torch.export refuses. torch.compile helps only a module that runs."""
    if not args and not kwargs:
        return "Give example inputs: at.from_torch(module, (x,))."
    if isinstance(module, torch.jit.ScriptModule):
        return "Give the module as it was before torch.jit.script or torch.jit.trace."
    if any(isinstance(v, torch.ScriptObject) for m in module.modules() for v in vars(m).values()):
        return "Its weights are packed for torch's own kernels: quantise the exported program instead (pt2e)."
    if any(p.is_meta for p in module.parameters()):
        return 'Its weights have no values (device "meta"): load them first.'
    if not isinstance(error, GuardOnDataDependentSymNode) and (refused := _refusal(module, args, kwargs)):
        return f"The module itself does not run on these inputs: {refused}."
    if values := suggestions(error):
        return f"torch suggests {values}: give the example inputs, or dynamic_shapes, accordingly."
    return 'Python decides in it: torch.compile(model, backend="autotensor") splits it there.'


def _refusal(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The error of a call of the module, as torch runs it; "" if it runs."""
    try:
        module(*args, **kwargs)
    except Exception as error:  # a module may raise anything
        return first_line(error)
    return ""


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    table = torch.export.default_decompositions()
    for operator in [o for o in table if str(o) in KEPT]:
        del table[operator]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program.run_decompositions(extended(table))
        except Exception as error:  # torch raises many kinds
            raise Unsupported(
                f"torch cannot take the program apart: {first_line(error)}.",
                fix='torch.compile(model, backend="autotensor") does not need that.',
            ) from error


def _given(program: ExportedProgram, graph: torch.fx.Graph) -> tuple[list[Input], dict[str, Any]]:
    """The graph's inputs, and the value of every placeholder."""
    inputs: list[Input] = []
    given: dict[str, Any] = {}
    types = {n.name: n.meta.get("val") for n in graph.nodes if n.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        at = spec.arg.name
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(spec.arg, ConstantArgument):  # a number or None is part of the program
                given[at] = spec.arg.value
                continue
            inputs.append(_input(at, types[at]))
            given[at] = inputs[-1]
        elif spec.kind is InputKind.TOKEN:  # a token keeps checks of data in order; it has no value
            given[at] = None
        else:
            given[at] = from_tensor(_held_tensor(program, spec), spec.target or at)
    return inputs, given


def _held_tensor(program: ExportedProgram, spec: Any) -> torch.Tensor:
    for table in (program.state_dict, program.constants):
        if spec.target in table and isinstance(table[spec.target], torch.Tensor):
            found: torch.Tensor = table[spec.target]
            return found
    raise Unsupported(f"{spec.target!r} of the module is not a tensor.")


def _input(name: str, value: Any) -> Input:
    if not isinstance(value, torch.Tensor) or any(not isinstance(n, int) for n in value.shape):
        raise Unsupported(
            f"input {name!r} has a size that is not known.",
            fix="Export with static shapes, one for each call.",
        )
    return new_input(tuple(value.shape), dtype_name(value.dtype), name)


def _result_names(program: ExportedProgram) -> Any:
    """The names of the results: the keys of dictionaries and the positions in lists, joined; "" for a single
    tensor."""
    from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

    spec = program.call_spec.out_spec
    if spec is None:
        return iter(())
    paths, _ = tree_flatten_with_path(tree_unflatten(list(range(spec.num_leaves)), spec))
    named = ["_".join(_key(k) for k in path) for path, _ in paths]
    plain = all(n.isdigit() for n in named)  # a plain tuple: its results are output_0, output_1 …
    return iter("" if plain else re.sub(r"\W", "_", n) for n in named)


def _key(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _as_tuple(example_inputs: Any) -> tuple[Any, ...]:
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,)
    if isinstance(example_inputs, (tuple, list)):
        if any(isinstance(x, np.ndarray) for x in example_inputs):
            raise InputError(
                "an example input is a NumPy array.", fix="Give a tensor: torch.from_numpy(array)."
            )
        return tuple(example_inputs)
    raise InputError(f"example_inputs is a {type(example_inputs).__name__}, expected a tuple of tensors.")
