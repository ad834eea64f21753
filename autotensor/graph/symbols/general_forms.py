"""Replaces operators that front ends write only at special extents by the operators that they write
otherwise.

    upsample_nearest(x, 2)    at h = 40, from 20 rows        ──▶    take(take(x, [0, 0, 1, …]), [0, 0, 1, …])
    take(take(x, …), …)       at h = 39, from 20 rows

Graphs at several extents must have the same operators.
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import constant, ops
from autotensor.graph.graph_rewriting import with_inputs
from autotensor.graph.ir import Apply, Graph, GraphNode, topological
from autotensor.graph.symbols.graph_families import Choice, GraphFamily


def in_general_forms(family: GraphFamily) -> GraphFamily:
    """The family, whose graphs have no operators that need special extents."""

    def make(choice: Choice) -> Graph:
        return _general(family.make(choice))

    return GraphFamily(family.name, family.symbols, make)


def _general(graph: Graph) -> Graph:
    made: dict[GraphNode, GraphNode] = {}
    for node in topological(graph.outputs):
        if isinstance(node, Apply):
            inputs = tuple(made[x] for x in node.inputs)
            enlarged = node.op == "upsample_nearest" and node.attr("layout") == "NCHW"
            made[node] = _taken(inputs[0], node) if enlarged else with_inputs(node, inputs)
        else:
            made[node] = node
    return graph.with_outputs(made[o] for o in graph.outputs)


def _taken(x: GraphNode, like: Apply) -> GraphNode:
    for axis in (2, 3):
        places = np.arange(like.shape[axis]) * x.shape[axis] // like.shape[axis]
        x = ops.take(x, constant(places), axis=axis)
    return x


__all__ = ["in_general_forms"]
