"""From a graph to groups: each group becomes one kernel program.

    conv2d ─▶ add(bias) ─▶ add(shortcut) ─▶ relu        one group, head conv2d, the rest its epilogue
    reshape, a slice of whole rows                      no kernel: other names for existing bytes

A group is a head (any operator) and the elementwise operators after it, as long as no other node reads the
values in between. Its computation is written as tensor expressions by chaining the operators' own te
functions. Where only rows and channels matter (pointwise convolutions, dense layers, elementwise groups), the
group is written over [rows, channels]. So equal work has equal workloads, wherever it stands in the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotensor.base.errors import GraphError
from autotensor.graph.function import TeFunction
from autotensor.graph.groups import Group, Shape, copy_of, group_of
from autotensor.graph.ir import Apply, Graph, GraphNode, apply
from autotensor.graph.storage import place, storage, window
from autotensor.graph.weights import converted_weights, is_widened
from autotensor.operators import Kind
from autotensor.te.workload import Workload

MAX_EPILOGUE = 24  # operators after a head; real epilogues have fewer than 10


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A distinct workload of a model."""

    name: str
    workload: Workload
    weight: int  # how often the model runs it
    flops: int  # operations of one run

    def __str__(self) -> str:
        return f"{self.name} ×{self.weight}"


def partition(graph: Graph, *, rounded: bool = False, windows: bool = False) -> tuple[Group, ...]:
    """The groups of a graph, in an order in which they can run.

    Every output of the graph is the output of one group (after `own_outputs`), possibly through views.
    rounded: every operator's result is rounded before the next one reads it, so that a value has the same
    bits however the graph was cut. Otherwise a product and the sum after it may become one multiply-add.
    windows: slices of one block of bytes get no group; their readers read the block directly. This is for
    processors, on which a kernel's arguments may begin anywhere.
    """
    outputs = {storage(o) for o in graph.outputs}
    taken: set[GraphNode] = {n for n in graph.applies if windows and n not in outputs and window(n)}
    taken |= converted_weights(graph)
    taken |= {n for n in graph.applies if is_widened(n)}
    chains: list[tuple[Apply, ...]] = []
    rank = {node: n for n, node in enumerate(graph.nodes)}
    for node in graph.applies:
        if node in taken or node.kind is Kind.VIEW:
            continue
        chain = _chain(graph, node, taken, rank)
        taken.update(chain)
        chains.append(chain)
    # A group can run when its last operator's inputs are ready; several results come from one operator.
    chains.sort(key=lambda chain: rank[chain[0] if chain[0].results > 1 else chain[-1]])
    return tuple(group_of(chain, rounded) for chain in chains)


def tasks(groups: Sequence[Group]) -> tuple[KernelTask, ...]:
    """The distinct workloads and how often each runs, in order of first appearance."""
    found: dict[str, list[Group]] = {}
    for g in groups:
        found.setdefault(g.workload.key, []).append(g)
    return tuple(KernelTask(gs[0].name, gs[0].workload, len(gs), gs[0].flops) for gs in found.values())


def own_outputs(graph: Graph) -> Graph:
    """The graph with a copy of every output that is an input, a constant or an earlier output.

    An output without elements stays, because a kernel would have nothing to write.
    """
    outputs: list[GraphNode] = []
    seen: set[GraphNode] = set()
    for out in graph.outputs:
        root = storage(out)
        if 0 not in out.shape and (root in seen or not isinstance(root, Apply)):
            # Each copy is a new function: equal copies would be interned as one node, and be one output
            # again.
            copy = TeFunction.trace(copy_of, [out.type], f"copy_{len(outputs)}")
            out = apply(copy, (out,))
        seen.add(storage(out))
        outputs.append(out)
    return graph.with_outputs(outputs)


# -- which nodes belong together -------------------------------------------------------------------------


def _chain(
    graph: Graph, head: Apply, taken: set[GraphNode], rank: Mapping[GraphNode, int]
) -> tuple[Apply, ...]:
    """The head and the longest epilogue whose inner values no other node reads."""
    if head.results > 1:
        same = (
            n for n in graph.applies if n.op == head.op and n.inputs == head.inputs and n.attrs == head.attrs
        )
        return tuple(same)
    members = [head]
    best = 1
    while len(members) <= MAX_EPILOGUE:
        readers = {c for m in members for c in graph.consumers[m] if c not in members}
        joining = sorted((c for c in readers if _joins(c, head.shape, taken)), key=lambda c: rank[c])
        if not joining:
            break
        members.append(joining[0])
        if _closed(graph, members):
            best = len(members)
    return tuple(members[:best])


def _joins(node: Apply, shape: Shape, taken: set[GraphNode]) -> bool:
    return node.kind is Kind.ELEMENTWISE and node.shape == shape and node.results == 1 and node not in taken


def _closed(graph: Graph, members: list[Apply]) -> bool:
    """Whether only the last member is read from outside, so that groups can form no cycle."""
    inside = set(members)
    return all(m not in graph.outputs and inside.issuperset(graph.consumers[m]) for m in members[:-1])


def check_groups(graph: Graph, groups: Sequence[Group]) -> None:
    """Raises GraphError unless every output has its own group and every group reads only earlier values."""
    made: set[GraphNode] = set()
    for g in groups:
        for x in g.inputs:
            root = place(x, made).of
            if isinstance(root, Apply) and root not in made:
                raise GraphError(f"group {g.name!r} reads {x!r} before it is computed.")
        made.update(g.outputs)
    roots = [storage(o) for o in graph.outputs if 0 not in o.shape]
    if any(r not in made for r in roots) or len(set(roots)) != len(roots):
        raise GraphError(
            f"graph {graph.name!r} has an output that no group computes.", fix="Use own_outputs(graph) first."
        )


def last_readers(groups: Sequence[Group]) -> dict[GraphNode, int]:
    """For each value, the position of the last group that reads it, in whole or through a window."""
    made = {o for g in groups for o in g.outputs}
    return {place(x, made).of: n for n, g in enumerate(groups) for x in g.inputs}
