"""Replaces operators that front ends write only at special extents by the operators that they write
otherwise.

    upsample_nearest(x, 2)    at h = 40, from 20 rows        ──▶    take(take(x, [0, 0, 1, …]), [0, 0, 1, …])
    take(take(x, …), …)       at h = 39, from 20 rows

    adaptive_avg_pool2d(x, 3)           at h = 42             ──▶    weights @ x @ weights
    weights @ x @ weights               at h = 41

Graphs at several extents must have the same operators.
"""

from __future__ import annotations

from typing import Any

from autotensor.graph.build import ops
from autotensor.graph.graph_rewriting import with_inputs
from autotensor.graph.ir import Apply, Graph, GraphNode, topological
from autotensor.graph.symbols.graph_families import Choice, GraphFamily
from autotensor.graph.tables import nearest_places, resized, windows


def in_general_forms(family: GraphFamily) -> GraphFamily:
    """The family, whose graphs have no operators that need special extents."""

    def make(choice: Choice) -> Graph:
        return in_general_form(family.make(choice))

    return GraphFamily(family.name, family.symbols, make)


def in_general_form(graph: Graph) -> Graph:
    """The graph without operators that need special extents."""
    made: dict[GraphNode, GraphNode] = {}
    for node in topological(graph.outputs):
        if isinstance(node, Apply):
            inputs = tuple(made[x] for x in node.inputs)
            write = _WRITERS.get(node.op_name)
            fits = write is not None and node.attr("layout") == "NCHW"
            made[node] = write(inputs[0], node) if write and fits else with_inputs(node, inputs)
        else:
            made[node] = node
    return graph.with_outputs(made[o] for o in graph.outputs)


def _taken(x: GraphNode, like: Apply) -> GraphNode:
    for axis in (2, 3):
        x = ops.take(x, nearest_places(x.shape[axis], like.shape[axis]), axis=axis)
    return x


def _weighted(x: GraphNode, like: Apply) -> Any:
    if like.shape[2:] == (1, 1):
        return with_inputs(like, (x,))
    return resized(x, *(windows(n, o) for n, o in zip(x.shape[2:], like.shape[2:], strict=True)))


_WRITERS = {"upsample_nearest": _taken, "adaptive_avg_pool2d": _weighted}

__all__ = ["in_general_form", "in_general_forms"]
