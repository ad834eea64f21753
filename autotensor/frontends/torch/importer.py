"""From ATen operators to graph nodes: an fx graph is walked once, in order.

    placeholder x ──▶ an Input, or a Constant; the caller decides
    aten.relu.default(x) ──▶ CONVERTERS[…](node of x)
    output ──▶ the nodes of its arguments

Every converted value must have the type and shape that torch derived for it. So if a converter gives another
type or shape than its operator, an error is raised at once, and no wrong numbers are computed later.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from math import prod
from operator import attrgetter
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from autotensor.base.errors import AutotensorError, GraphError
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.constants import by_torch
from autotensor.frontends.torch.element_types import dtype_name
from autotensor.frontends.torch.empty_tensors import of_nothing
from autotensor.frontends.torch.families.complex import MAKE_COMPLEX, ON_COMPLEX, Complex
from autotensor.frontends.torch.families.creation import from_tensor
from autotensor.frontends.torch.refused_operators import OTHER_FIX, no_complex, unknown
from autotensor.frontends.torch.registry import (
    BETTER_KNOWN,
    CONVERTERS,
    READS_MEMORY,
    Converter,
    Held,
    Layout,
    Missing,
)
from autotensor.frontends.values import as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode

_PICKS = (operator.getitem,)
# Assertions about types and sizes were true for the example. Assertions about data are not checked.
_CHECKS = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten._assert_async.msg",
        "aten._assert_async.default",
        "aten._assert_scalar.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    }
)


def import_nodes(graph: torch.fx.Graph, given: Mapping[str, Any]) -> list[Any]:
    """The values that the graph outputs: nodes, numbers or None, in order.

    given: name of a placeholder or of an attribute (`get_attr`) → its node. Other attributes are looked up in
    the module that owns the graph; parts of a program are modules there.
    Raises Unsupported for an operator without a converter, with its name and the line of the model.
    """
    values: dict[torch.fx.Node, Any] = {}
    checks = _checks(graph)
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = given[node.name]
        elif node.op == "get_attr":
            values[node] = _attribute(str(node.target), graph.owning_module, given)
        elif node.op == "output":
            return [_returned(_resolve(a, values), a) for a in _flat(node.args[0])]
        elif node not in checks:
            values[node] = _convert(node, values)
    raise GraphError("the fx graph has no output.")


def _checks(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes that only assertions use."""
    found: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "call_function" and (
            str(node.target) in _CHECKS or (node.users and found.issuperset(node.users))
        ):
            found.add(node)
    return found


def import_part(module: torch.fx.GraphModule, arguments: Sequence[Any]) -> list[Any]:
    """The results of a part of a program (a branch, a step of a loop) for these arguments."""
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    return import_nodes(module.graph, dict(zip(names, arguments, strict=True)))


def _attribute(target: str, module: Any, given: Mapping[str, Any]) -> Any:
    if target in given:
        return given[target]
    value = attrgetter(target)(module)
    if isinstance(value, torch.fx.GraphModule):
        return value
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        raise Unsupported(f"attribute {target!r} of the graph is not a tensor.")
    return from_tensor(value, target)


def _convert(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    name = str(node.target)
    if node.target in _PICKS:
        return _resolve(node.args[0], values)[node.args[1]]
    if name not in CONVERTERS:
        _known_shapes(node)
    try:
        if _is_complex(node) and name not in {*ON_COMPLEX, *MAKE_COMPLEX}:
            raise no_complex()
        is_for_torch = name not in CONVERTERS or name in BETTER_KNOWN
        if is_for_torch and (made := _constant(node, values)) is not None:
            return _held(node, made, node.meta.get("val"))
        args = [_resolve(a, values) for a in node.args]
        kwargs = {k: _resolve(a, values) for k, a in node.kwargs.items()}
        converter = _converter(name, node, (*args, *kwargs.values()))
        for value in (*args, *kwargs.values()):
            _check_present(value)
        if name in READS_MEMORY:
            kwargs["memory"] = _memory(node.args[0], values)
        if (empty := of_nothing(node, args, kwargs)) is not None:
            return empty
        result = converter(*args, **kwargs)
    except Unsupported as error:
        raise Unsupported(f"{name}: {error.what.rstrip('.')}{_place(node)}.", fix=error.fix) from error
    except AutotensorError as error:
        raise GraphError(f"{name}: {error.what.rstrip('.')}{_place(node)}.", fix=error.fix) from error
    # an argument that the converter does not accept, or a number that depends on data
    except Exception as error:
        _known_shapes(node)
        raise Unsupported(
            f"{name} cannot be converted{_place(node)}: {str(error).rstrip('.')}.", fix=OTHER_FIX
        ) from error
    _known_shapes(node)
    return _held(node, result, node.meta.get("val"))


def _constant(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    """Torch's result for a node that depends on no input; None for other nodes."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    return by_torch(node.target, args, kwargs)


def _converter(name: str, node: torch.fx.Node, arguments: Sequence[Any]) -> Converter:
    """The converter of an operator. Raises Unsupported if there is no converter for such arguments."""
    into = _is_complex(node) and name in ON_COMPLEX
    if into or any(isinstance(x, (Complex, complex)) for x in _flat(arguments)):
        if name not in ON_COMPLEX:
            raise no_complex()
        return ON_COMPLEX[name]
    if getattr(node.target, "__module__", "") == "_operator":
        raise Unsupported("Python computes with a number that depends on data", fix=OTHER_FIX)
    if name not in CONVERTERS:
        raise unknown(name)
    return CONVERTERS[name]


def _is_complex(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_complex


def _known_shapes(node: torch.fx.Node) -> None:
    """Raises Unsupported for a result whose shape depends on values."""
    for made in _flat(node.meta.get("val")):
        if isinstance(made, torch.Tensor) and any(not isinstance(n, int) for n in made.shape):
            raise Unsupported(
                f"{node.target} gives a shape that depends on data{_place(node)}.",
                fix="Give it a fixed size: pad, mask, or torch.where.",
            )


def _held(node: torch.fx.Node, result: Any, wanted: Any) -> Any:
    """The result, after a check that it has torch's type and shape."""
    if isinstance(wanted, (tuple, list)):
        if not isinstance(result, (tuple, list)) or len(result) != len(wanted):
            raise GraphError(f"{node.target}: the converter gives another number of results{_place(node)}.")
        return tuple(_held(node, r, w) for r, w in zip(result, wanted, strict=True))
    if isinstance(result, Complex):
        parts = wanted.real if isinstance(wanted, torch.Tensor) else wanted
        return Complex(_held(node, result.re, parts), _held(node, result.im, parts))
    if not isinstance(result, GraphNode) or not isinstance(wanted, torch.Tensor):
        return result
    if result.shape != tuple(wanted.shape) and prod(result.shape) == prod(wanted.shape) == 1:
        result = ops.reshape(result, shape=tuple(wanted.shape))  # a single number, with or without axes
    if result.shape != tuple(wanted.shape):
        raise GraphError(
            f"{node.target}: converted to shape {result.shape}, torch says {tuple(wanted.shape)}"
            f"{_place(node)}."
        )
    name = dtype_name(wanted.dtype)
    return result if str(result.dtype) == name else as_type(result, name)


def _memory(node: Any, values: Mapping[torch.fx.Node, Any]) -> list[Held]:
    """A tensor and the tensors of which it is a view. These are the arguments with the same storage."""
    found = []
    while node is not None:
        value = node.meta["val"]
        layout = Layout(tuple(value.shape), tuple(value.stride()), value.storage_offset())
        found.append(Held(values[node], layout))
        storage = value.untyped_storage()._cdata
        above = (n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor))
        node = next((n for n in above if n.meta["val"].untyped_storage()._cdata == storage), None)
    return found


def _resolve(arg: Any, values: Mapping[torch.fx.Node, Any]) -> Any:
    """An argument in the form that converters accept."""
    if isinstance(arg, torch.fx.Node):
        return values[arg]
    if isinstance(arg, (list, tuple)):
        return [_resolve(a, values) for a in arg]
    if isinstance(arg, torch.dtype):
        return str(arg).removeprefix("torch.") if arg.is_complex else dtype_name(arg)
    if isinstance(arg, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise Unsupported(f"size {arg} is not known before the call", fix="Export with static shapes.")
    return arg


def _check_present(value: Any) -> None:
    for v in _flat(value):
        if isinstance(v, Missing):
            raise Unsupported(f"{v.what} is not supported.")


def _returned(value: Any, node: Any) -> Any:
    """A result of the graph, computed by `node`."""
    if isinstance(value, Complex):
        raise Unsupported(
            f"a complex result is not supported{_place(node)}.", fix="Return torch.view_as_real of it."
        )
    try:
        _check_present(value)
    except Unsupported as error:
        raise Unsupported(f"{error.what.rstrip('.')}{_place(node)}.") from error
    return value


def _flat(value: Any) -> Sequence[Any]:
    if isinstance(value, (list, tuple)):
        return [v for part in value for v in _flat(part)]
    return [value]


def _place(node: torch.fx.Node) -> str:
    """Where in the model's source a node comes from: " (model.py:12: y = f(x))"; "" when it is unknown."""
    frames = [line.strip() for line in (node.meta.get("stack_trace") or node.stack_trace or "").splitlines()]
    for at in range(len(frames) - 1, -1, -1):
        if frames[at].startswith('File "') and not any(f in frames[at] for f in ("/torch/", '"<')):
            file, line = frames[at].split('"')[1], frames[at].split("line ")[1].split(",")[0]
            code = frames[at + 1] if at + 1 < len(frames) else ""
            return f" ({file.rsplit('/', 1)[-1]}:{line}{': ' + code if code else ''})"
    return f" (node {node.name})"
