"""Puts numbers into torch's graphs in place of symbols for sizes. So one trace of torch serves every size.

    n = s0 * 4;  y = view(x: [s0, 8], [n, 2])    ──s0 = 6──▶    y = view(x: [6, 8], [24, 2])     y: [24, 2]

Computed sizes become numbers in the arguments of the nodes that read them. torch then derives the shape and
strides of every result again, without data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from autotensor.base import log
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.refused_operators import first_line

Numbers = Mapping[sympy.Symbol, int]  # value of each symbol of torch
# assertions about sizes, which torch has proved for the whole range of the symbols
_ASSERTS = ("aten._assert_scalar", "aten.sym_constrain_range", "aten._assert_tensor_metadata")


def expression(size: Any) -> Any:
    """A size as a sympy expression, or as a number."""
    return size if isinstance(size, int) else size.node.expr


def symbols_of_sizes(values: Iterable[Any]) -> tuple[sympy.Symbol, ...]:
    """The symbols in the shapes of tensors and in sizes, in order."""
    sizes = [e for v in values for e in (v.shape if isinstance(v, torch.Tensor) else (v,))]
    found: dict[sympy.Symbol, None] = {}
    for size in sizes:
        if isinstance(size, torch.SymInt):
            found |= dict.fromkeys(sorted(expression(size).free_symbols, key=str))
    return tuple(found)


def size_at(size: Any, numbers: Numbers) -> int:
    """A size at these values of the symbols. Raises Unsupported if it has other symbols."""
    if isinstance(size, int):
        return size
    found = expression(size).xreplace({s: sympy.Integer(n) for s, n in numbers.items()})
    if not found.is_integer or not found.is_number:
        raise Unsupported(f"size {size} is not known before the call", fix="Export with static shapes.")
    return int(found)


def sized(graph: torch.fx.Graph, numbers: Numbers) -> torch.fx.Graph:
    """The graph at these numbers, with placeholders and attributes of the same names.

    Raises Unsupported for operators that torch refuses at these numbers, and for graphs with graphs inside.
    """
    made = torch.fx.Graph(graph.owning_module)
    new: dict[torch.fx.Node, Any] = {}  # nodes of `made`, or numbers
    fakes: dict[torch.fx.Node, Any] = {}  # a tensor without data for each node of `graph`
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        for node in graph.nodes:
            if node.op == "call_function":
                if str(node.target).startswith(_ASSERTS):
                    continue
                fakes[node] = _run(node, fakes)
                if isinstance(fakes[node], (int, float, bool)):
                    new[node] = fakes[node]
                    continue
            elif node.op == "placeholder":
                fakes[node] = _placeholder(node.meta.get("val"), numbers)
            elif node.op == "get_attr":
                fakes[node] = _attribute(node, graph.owning_module, mode)
            copied = made.node_copy(node)
            copied.name = node.name  # the new graph renames nodes such as "input"
            copied.args = map_arg(node.args, new.__getitem__)
            copied.kwargs = map_arg(node.kwargs, new.__getitem__)
            if node in fakes:
                copied.meta["val"] = fakes[node]
            new[node] = copied
    return made


def _placeholder(value: Any, numbers: Numbers) -> Any:
    if isinstance(value, torch.SymInt):
        return size_at(value, numbers)
    if not isinstance(value, torch.Tensor):
        return value
    shape = [size_at(n, numbers) for n in value.shape]
    strides = [size_at(n, numbers) for n in value.stride()]
    return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)


def _attribute(node: torch.fx.Node, owner: Any, mode: FakeTensorMode) -> Any:
    value = attrgetter(str(node.target))(owner)
    if isinstance(value, torch.nn.Module):
        raise Unsupported("branches and loops of torch at sizes that a call chooses")
    return mode.from_tensor(value)


def _run(node: torch.fx.Node, fakes: Mapping[torch.fx.Node, Any]) -> Any:
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        raise Unsupported(f"{node.target} at sizes that a call chooses")
    args, kwargs = map_arg((node.args, node.kwargs), fakes.__getitem__)
    assert callable(node.target)
    try:
        with log.silent("torch._subclasses.fake_tensor"):
            made = node.target(*args, **kwargs)
    except Exception as error:  # torch raises many kinds
        raise Unsupported(f"{node.target}: {first_line(error)}") from error
    if any(isinstance(v, (torch.SymInt, torch.SymFloat, torch.SymBool)) for v in tree_leaves(made)):
        raise Unsupported(f"{node.target} gives a size that depends on data.")
    return made
