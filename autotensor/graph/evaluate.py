"""Evaluates a graph with the operators' NumPy references: slow, obvious, independent of the compiler.

evaluate(graph, x) ──▶ outputs                         evaluated(graph, values) does it node by node
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from autotensor.base.errors import GraphError
from autotensor.graph.function import TeFunction
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, Input
from autotensor.operators import OPERATORS
from autotensor.te import reference


class ReadsOutside(GraphError):
    """A constant holds an index that lies outside the indexed array."""


def evaluate(graph: Graph, *arrays: Array, **named: Array) -> tuple[Array, ...]:
    """The outputs of the graph for these inputs, which are given in order or by name.

    Raises GraphError when an input is missing, unknown or of another shape.
    """
    values = bound(graph, arrays, named)
    for _ in evaluated(graph, values):
        pass
    return tuple(values[o] for o in graph.outputs)


def evaluated(graph: Graph, values: dict[GraphNode, Array]) -> Iterator[None]:
    """Adds the value of one node to `values` in each step. A value is dropped after its last reader."""
    last = {x: node for node in graph.applies for x in node.inputs}
    for node in graph.nodes:
        if isinstance(node, Constant):
            values[node] = node.array
        elif isinstance(node, Apply):
            values[node] = evaluate_node(node, [values[x] for x in node.inputs])
            yield
            for x in dict.fromkeys(node.inputs):
                if last[x] is node and x not in graph.outputs:
                    del values[x]


def evaluate_node(node: Apply, inputs: list[Array]) -> Array:
    """The node's value, in the node's type, from the values of its inputs. Raises ReadsOutside."""
    if isinstance(node.op, TeFunction):
        results = _evaluate_function(node.op, inputs)
    else:
        with np.errstate(all="ignore"):  # 1 / (1 + exp(1000)) is 0, as in a kernel
            try:
                result = OPERATORS.get(node.op).reference(*inputs, **dict(node.attrs))
            except IndexError as error:
                raise ReadsOutside(f"{node.op_name}: {error}.") from error
        results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    value = np.asarray(results[node.output])
    if value.shape != node.shape:
        raise GraphError(f"{node.op_name}: its reference gives {value.shape}, its type says {node.shape}.")
    return value.astype(node.dtype.numpy, copy=False)


def _evaluate_function(fn: TeFunction, inputs: list[Array]) -> tuple[Array, ...]:
    names = [b.name for b in fn.dag.inputs]
    values = reference.evaluate(fn.dag, dict(zip(names, inputs, strict=True)))
    return tuple(values[n] for n in fn.outputs)


def bound(graph: Graph, arrays: tuple[Array, ...], named: Mapping[str, Array]) -> dict[GraphNode, Array]:
    """The inputs' values. Raises GraphError as `evaluate` does."""
    if len(arrays) > len(graph.inputs):
        raise GraphError(f"graph {graph.name!r} takes {len(graph.inputs)} inputs, {len(arrays)} were given.")
    by_name: dict[str, Input] = dict(zip(graph.input_names, graph.inputs, strict=True))
    if unknown := [n for n in named if n not in by_name]:
        raise GraphError(f"graph {graph.name!r} has no input {unknown[0]!r}; it has {', '.join(by_name)}.")
    given = {**dict(zip(graph.input_names, arrays, strict=False)), **named}
    values: dict[GraphNode, Array] = {}
    for name, node in by_name.items():
        if name not in given:
            raise GraphError(f"graph {graph.name!r} needs its input {name!r}, {node!r}.")
        array = np.asarray(given[name])
        if array.shape != node.shape:
            raise GraphError(
                f"input {name!r} of graph {graph.name!r} has shape {array.shape}, expected {node.shape}."
            )
        values[node] = array.astype(node.dtype.numpy, copy=False)
    return values
