"""Finds common subexpressions.

Nodes are interned, so equal applications are one node already, and a graph holds only the nodes that its
outputs need. So the rule only has to recognise the same operation with its operands in two orders.
"""

from __future__ import annotations

from dataclasses import replace

from autotensor.graph.graph_rewriting import with_inputs
from autotensor.graph.ir import Apply, Graph, GraphNode
from autotensor.graph.rules.canonical import COMMUTATIVE


def common_subexpressions(graph: Graph) -> Graph:
    """b + a becomes a + b if a + b is computed, too."""
    made: dict[GraphNode, GraphNode] = {}
    kept: set[GraphNode] = set()
    for node in graph.nodes:
        new: GraphNode = node
        if isinstance(node, Apply):
            moved = with_inputs(node, tuple(made[x] for x in node.inputs))
            new = moved
            if moved.op in COMMUTATIVE:
                turned = moved.given(reversed(moved.inputs))
                new = turned if turned in kept else moved
        kept.add(new)
        made[node] = new
    return replace(graph, outputs=tuple(made[o] for o in graph.outputs))
