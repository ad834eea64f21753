"""Replaces nodes of a graph, and applies the operators that read them to the new values.

replaced([relu(x + w)], {w: constant})    ──▶    [relu(x + constant)]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autotensor.graph.graph_rewriting import with_inputs
from autotensor.graph.ir import Apply, GraphNode, topological


def replaced(outputs: Iterable[GraphNode], swap: Mapping[GraphNode, GraphNode]) -> tuple[GraphNode, ...]:
    """The outputs with every key of `swap` replaced by its value, all at once.

    The values themselves are not searched for keys. The function does not recurse, because models are deep.
    """
    wanted = tuple(outputs)
    made: dict[GraphNode, GraphNode] = {}
    for node in topological(wanted, known=swap):
        if node in swap:
            made[node] = swap[node]
        elif isinstance(node, Apply):
            made[node] = with_inputs(node, tuple(made[x] for x in node.inputs))
        else:
            made[node] = node
    return tuple(made[o] for o in wanted)
