"""The rewriting engine's driver for graphs.

Rules are those of `ir/rewrite.py`. A rule gets (node, uses), where `uses[node]` says how often a node is
read, so that a rule can see that a value has only one reader. The driver visits producers first and does not
recurse along the graph: models are hundreds of nodes deep, too deep for the engine's recursion.
"""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import GraphError
from autotensor.graph.ir import Apply, Graph, GraphNode
from autotensor.ir.rewrite import FUEL, Rules, fire


class Uses(dict[GraphNode, int]):
    """How often a node is read; a node that a rule has just made is read once."""

    def __missing__(self, node: GraphNode) -> int:
        return 1


def rewrite_graph(graph: Graph, rules: Rules, *, name: str) -> Graph:
    """The graph with the rules applied to every node until none fires.

    Raises GraphError, which names the pass, when rules keep undoing one another.
    """
    uses = Uses(graph.uses())
    settled: dict[GraphNode, GraphNode] = {}

    def settle(node: GraphNode) -> GraphNode:
        """Applies the rules to a node that has just been made.

        Its inputs may be new too, a few levels deep.
        """
        if node in settled:
            return settled[node]
        for _ in range(FUEL):
            if isinstance(node, Apply):
                node = with_inputs(node, tuple(settle(x) for x in node.inputs))
            fired = fire(node, rules, uses)
            if fired is None:
                settled[node] = node
                return node
            if fired in settled:
                return settled[fired]
            node = fired
        raise GraphError(f"{name}: rules do not settle on {node!r}.")

    for node in graph.nodes:
        before = node
        if isinstance(node, Apply):
            node = with_inputs(node, tuple(settled[x] for x in node.inputs))
            if node is not before:
                uses.setdefault(node, 0)
                uses[node] += uses[before]
        result = settle(node)
        if result is not node:
            # The count of uses is never too small: a rule that trusts it must not duplicate work.
            uses[result] = uses.get(result, 0) + uses[before]
        settled[before] = result
    return replace(graph, outputs=tuple(settled[o] for o in graph.outputs))


def with_inputs(node: Apply, inputs: tuple[GraphNode, ...]) -> Apply:
    """The node on other inputs; the node itself when the inputs are the same."""
    if all(a is b for a, b in zip(node.inputs, inputs, strict=True)):
        return node
    made: Apply = Apply(node.op, inputs, node.attrs, node.output)
    return made
