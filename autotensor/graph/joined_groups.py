"""Joins a product and its producer into one group, so that a block of rows can be computed at a time.

    depthwise conv2d ─▶ conv2d 1x1            one group
    layer_norm ─▶ dense
    multiply (of a squeeze) ─▶ conv2d 1x1

The caller decides whether joining pays, by the default schedules. The schedule of a joined group decides
whether both share a nest of loops: a search may still choose to compute one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from autotensor.graph.groups import Group, GroupWriter, is_pointwise, write_all
from autotensor.graph.ir import Apply, Graph, GraphNode
from autotensor.graph.storage import storage
from autotensor.operators import Kind
from autotensor.te.workload import Workload

MOST = 3  # the most kernels that become one


def joined(
    graph: Graph, groups: Sequence[Group], is_worth_it: Callable[[Workload], bool]
) -> tuple[Group, ...]:
    """The groups, some of them joined, in an order in which they can run.

    is_worth_it: whether a workload is faster as one kernel.
    """
    made: dict[GraphNode, Group] = {o: g for g in groups for o in g.outputs}
    gone: set[Group] = set()
    found: dict[Group, Group] = {}
    for product in reversed(groups):
        if product in gone or not _can_begin(product):
            continue
        parts: tuple[Group, ...] = (product,)
        while len(parts) < MOST:
            front = next((g for g in _in_front(graph, parts, made) if g not in gone), None)
            whole = None if front is None else _joined((front, *parts))
            if front is None or whole is None or not is_worth_it(whole.workload):
                break
            parts = (front, *parts)
            gone.add(front)
            found[product] = whole
    return tuple(found.get(g, g) for g in groups if g not in gone)


def _can_begin(group: Group) -> bool:
    return len(group.head.inputs) == 2 and is_pointwise(group.head)


def _in_front(graph: Graph, parts: Sequence[Group], made: dict[GraphNode, Group]) -> list[Group]:
    """The groups with one result that only the first part reads, once, as an operand of its product."""
    first, found = parts[0], []
    for x in map(storage, first.head.inputs[:1] if len(parts) == 1 else first.inputs):
        group = made.get(x)
        if group is None or group.head.results > 1 or x in map(storage, graph.outputs):
            continue
        reads = [i for n in first.nodes for i in n.inputs if storage(i) is x]
        if len(reads) == 1 and (len(parts) == 1 or reads[0] is x) and _readers(graph, x) <= {*first.nodes}:
            found.append(group)
    return found


def _readers(graph: Graph, x: GraphNode) -> set[Apply]:
    """The readers of a value, also those that read it through a view."""
    found: set[Apply] = set()
    for c in graph.consumers[x]:
        found |= _readers(graph, c) if c.kind is Kind.VIEW else {c}
    return found


def _joined(parts: Sequence[Group]) -> Group | None:
    """The groups as one group; None if the product's rows are not rows of its producer."""
    nodes = tuple(n for p in parts[:-1] for n in p.nodes)
    product, after = parts[-1].nodes[0], parts[-1].nodes[1:]
    made, depth = nodes[-1], product.inputs[0].shape[-1]
    if made.shape[-1] != depth:
        return None
    writer = _in_rows(nodes, (prod(made.shape[:-1]), depth)) or write_all(nodes, rounded=False)
    rows = writer.values[made]
    writer.multiply(product, rows)
    if not writer.write_over(after, writer.values[product].shape):
        return None
    name = " > ".join(p.name for p in parts)
    return writer.group(name, (*nodes, product, *after), parts[-1].outputs)


def _in_rows(nodes: Sequence[Apply], shape: tuple[int, int]) -> GroupWriter | None:
    """Writes elementwise nodes over [rows, channels]; None if some node has no such form."""
    writer = GroupWriter(rounded=False)
    flat = all(n.kind is Kind.ELEMENTWISE and prod(n.shape) == prod(shape) for n in nodes)
    return writer if flat and writer.write_over(nodes, shape) else None
