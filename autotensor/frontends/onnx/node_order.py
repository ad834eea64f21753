"""Nodes in the order in which they can run.

ONNX requires that order. But converters to float16 append their casts at the end, and onnxruntime sorts the
nodes of a file.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from autotensor.frontends.onnx.messages import AttributeType, GraphProto, NodeProto

_GRAPHS = (AttributeType.GRAPH, AttributeType.GRAPHS)


def names_read(node: NodeProto) -> Iterable[str]:
    """The names that a node reads, also inside its subgraphs."""
    yield from (n for n in node.input if n)
    for g in subgraphs(node):
        yield from (o.name for o in g.output)
        for inner in g.node:
            yield from names_read(inner)


def subgraphs(node: NodeProto) -> Iterable[GraphProto]:
    """The subgraphs of a node, which are attributes."""
    for a in node.attribute:
        if a.type in _GRAPHS:
            yield from (a.g, *a.graphs)


def dequantised(graph: GraphProto) -> set[str]:
    """The names that only DequantizeLinear reads, as quantised numbers or as zero points."""
    found: set[str] = set()
    others = {o.name for o in graph.output}
    for node in graph.node:
        own = {*node.input[:1], *node.input[2:3]} if node.op_type == "DequantizeLinear" else set()
        found |= own
        others |= set(names_read(node)) - own
    return found - others


def in_order(nodes: Sequence[NodeProto]) -> Sequence[NodeProto]:
    """The nodes in their own order, if no node reads a result of a later one. Else each node comes after the
    nodes whose results it reads; among several possible nodes, the earliest comes first. Nodes that read each
    other in a circle come last. Source: Kahn 1962."""
    maker = {name: n for n, node in enumerate(nodes) for name in node.output if name}
    waits = [
        {maker[name] for name in names_read(node) if name in maker} - {n} for n, node in enumerate(nodes)
    ]
    if all(max(behind, default=-1) <= n for n, behind in enumerate(waits)):
        return nodes
    readers: list[list[int]] = [[] for _ in nodes]
    for n, behind in enumerate(waits):
        for made in behind:
            readers[made].append(n)
    missing = [len(behind) for behind in waits]
    ready = [n for n, count in enumerate(missing) if not count]  # a heap: ascending
    order: list[int] = []
    while ready:
        n = heapq.heappop(ready)
        order.append(n)
        for reader in readers[n]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    rest = set(range(len(nodes))).difference(order)
    return [nodes[n] for n in (*order, *sorted(rest))]
