"""Constant folding: what depends on constants only is computed now, by the operators' NumPy references."""

from __future__ import annotations

from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, constant
from autotensor.graph.rewriting import Uses, rewrite_graph
from autotensor.ir.rewrite import Rules, rule

# A result much larger than its inputs (a broadcast, say) is cheaper to compute than to read from memory.
MAX_GROWTH_BYTES = 1 << 20


@rule(Apply)
def fold(node: Apply, uses: Uses) -> GraphNode | None:
    """add(2, 3) ──▶ 5"""
    inputs = [x for x in node.inputs if isinstance(x, Constant)]
    if not inputs or len(inputs) != len(node.inputs):
        return None
    grown = node.dtype.bytes
    for n in node.shape:
        grown *= n
    if grown > sum(x.array.nbytes for x in inputs) + MAX_GROWTH_BYTES:
        return None
    return constant(evaluate_node(node, [x.array for x in inputs]), name=inputs[0].name)


FOLD = Rules(fold)


def fold_constants(graph: Graph) -> Graph:
    return rewrite_graph(graph, FOLD, name="fold constants")
