"""Reverse mode on graphs: the derivative of outputs with respect to values, as more nodes of the same graph.

    loss ──▶ … ──▶ w            gradients([loss], [w])  ──▶  the node dloss/dw

This is one walk from the outputs to the inputs. Only nodes between an output and one of these inputs are
visited, so nothing unneeded is computed. An operator's own gradient is taken if it has one, else the rule for
it (`gradient_rules.py`), else the derivative of its te body (`body_gradients.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autotensor.autodiff import convolution_gradients as convolution_gradients  # these two fill the table
from autotensor.autodiff import gradient_rules as gradient_rules
from autotensor.autodiff.body_gradients import differentiate
from autotensor.autodiff.gradient_table import rule_of
from autotensor.base.errors import GraphError
from autotensor.graph.infer_types import type_text
from autotensor.graph.ir import Apply, GraphNode, as_node, constant, topological


def gradients(
    outputs: GraphNode | Sequence[GraphNode],
    inputs: GraphNode | Sequence[GraphNode],
    seeds: Sequence[Any] | None = None,
) -> tuple[GraphNode, ...]:
    """The derivative of the sum of all elements of all outputs, with respect to every input.

    inputs: any nodes of float type, not only `at.input`s. seeds: for each output the weights of its elements
    (a node or an array of its shape); None means ones. Inputs on which no output depends get zeros. No
    gradient passes through integers.
    Raises GraphError for an output or input that is not a float, a seed of another shape, or an operator that
    has no derivative.
    """
    outs, wanted = _listed(outputs, "output"), _listed(inputs, "input")
    order = tuple(topological(outs))
    live = _depending(order, wanted)
    adjoint: dict[GraphNode, GraphNode] = {}
    for out, seed in zip(outs, _seeds(outs, seeds), strict=True):
        _add(adjoint, out, seed)
    for node in reversed(order):
        if isinstance(node, Apply) and node in adjoint and node in live:
            _backward(node, adjoint, live)
    return tuple(adjoint[x] if x in adjoint else zeros_like(x) for x in wanted)


def _backward(node: Apply, adjoint: dict[GraphNode, GraphNode], live: set[GraphNode]) -> None:
    """Adds the node's contributions to the adjoints of its inputs."""
    g = adjoint[node]
    wanted = [k for k, x in enumerate(node.inputs) if x in live]
    if not wanted:
        return
    rule = rule_of(node)
    if rule is None:
        parts = differentiate(node, g, wanted)
    else:
        found = {k: rule(node, g, k) for k in wanted}
        parts = {k: part for k, part in found.items() if part is not None}
    for k, part in parts.items():
        x = node.inputs[k]
        if part.type != x.type:
            raise GraphError(
                f"the gradient of {node.op_name} for its input {k} is {type_text(part.type)}, "
                f"the input is {type_text(x.type)}.",
                fix="Give the gradient the shape and type of its input.",
            )
        _add(adjoint, x, part)


def _add(adjoint: dict[GraphNode, GraphNode], node: GraphNode, part: GraphNode) -> None:
    adjoint[node] = adjoint[node] + part if node in adjoint else part


def _depending(order: Sequence[GraphNode], wanted: Sequence[GraphNode]) -> set[GraphNode]:
    """The nodes `wanted`, and the float nodes that depend on one of them."""
    live: set[GraphNode] = set(wanted)
    for node in order:
        if isinstance(node, Apply) and node.dtype.is_float and any(x in live for x in node.inputs):
            live.add(node)
    return live


def _listed(nodes: GraphNode | Sequence[GraphNode], what: str) -> tuple[GraphNode, ...]:
    if isinstance(nodes, GraphNode) or not isinstance(nodes, Iterable):
        given: tuple[Any, ...] = (nodes,)
    else:
        given = tuple(nodes)
    for n, node in enumerate(given):
        if not isinstance(node, GraphNode):
            raise GraphError(f"gradients: {what} {n} is a {type(node).__name__}, expected a graph node.")
        if not node.dtype.is_float:
            raise GraphError(
                f"gradients: {what} {n} is {node.dtype}; only floats have derivatives.",
                fix="Cast it to float first." if what == "output" else "",
            )
    return given


def _seeds(outs: Sequence[GraphNode], seeds: Sequence[Any] | None) -> list[GraphNode]:
    if seeds is None:
        return [ones_like(o) for o in outs]
    if len(seeds) != len(outs):
        raise GraphError(f"gradients: {len(seeds)} seeds for {len(outs)} outputs.")
    made = []
    for n, (out, seed) in enumerate(zip(outs, seeds, strict=True)):
        node = seed if isinstance(seed, GraphNode) else as_node(np.asarray(seed, out.dtype.numpy))
        if node.type != out.type:
            raise GraphError(
                f"gradients: seed {n} is {type_text(node.type)}, its output is {type_text(out.type)}."
            )
        made.append(node)
    return made


def ones_like(x: GraphNode) -> GraphNode:
    return constant(np.ones(x.shape, x.dtype.numpy))


def zeros_like(x: GraphNode) -> GraphNode:
    return constant(np.zeros(x.shape, x.dtype.numpy))
