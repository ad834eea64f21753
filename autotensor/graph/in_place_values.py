"""Values that replace an input: parameters after a training step, at the addresses of the old parameters.

    w' = w - 0.1 * g          computed where w lies, after all other kernels have read w

A kernel may write over an input if it reads each element at most once, for the result's element in the same
place: the same iteration then reads the old element before it writes the new one. Such a kernel is compiled
for two arguments that may share bytes (`overlapping_arguments`); all other kernels are compiled for arrays
that share none. If a kernel reads more, or if two new values wait for each other's old values, the new value
is computed elsewhere, and a kernel of its own stores it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from math import prod

from autotensor.base.errors import GraphError
from autotensor.graph.groups import Group
from autotensor.graph.infer_types import type_text
from autotensor.graph.ir import Apply, Graph, GraphNode, Input, apply
from autotensor.graph.partition import partition
from autotensor.graph.storage import storage
from autotensor.ir.expr import Const, Load
from autotensor.te.dag import ComputeDAG, StageOp

Updates = Mapping[str, str]  # name of an output → name of the input whose place it takes


def updating_groups(graph: Graph, updates: Updates) -> tuple[Graph, tuple[Group, ...]]:
    """The graph's groups in an order in which outputs may replace inputs, and the graph of these groups.

    The graph must be a result of `own_outputs`. The returned graph has a store before some outputs. Raises
    GraphError for a name that does not exist, or for values of different types.
    """
    check_updates(graph, updates)
    while True:
        groups = partition(graph)
        places = _places(graph, updates)
        unfit = {o for o, x in places.items() if not _may_overwrite(_maker(groups, o), o, x)}
        order = None if unfit else _order(groups, places)
        if order is not None:
            return graph, order
        # A store reads only its value, so every round leaves fewer values that can wait for other values.
        waiting = unfit or {next(o for o in places if not _is_store(o))}
        graph = graph.with_outputs(
            apply("store", (o,)) if storage(o) in waiting else o for o in graph.outputs
        )


def overlapping_arguments(
    graph: Graph, groups: Sequence[Group], updates: Updates
) -> dict[str, frozenset[str]]:
    """By workload key, the arguments of kernels that share bytes: results, and the inputs they replace."""
    places = _places(graph, updates)
    found: dict[str, frozenset[str]] = {}
    for g in groups:
        names = g.arg_names
        for out, name in zip(g.outputs, names[len(g.inputs) :], strict=True):
            old = places.get(storage(out))
            read = [n for n, x in zip(names, g.inputs, strict=False) if old is not None and x is old]
            if read:
                found[g.workload.key] = found.get(g.workload.key, frozenset()) | {name, *read}
    return found


def check_updates(graph: Graph, updates: Updates) -> None:
    inputs = dict(zip(graph.input_names, graph.inputs, strict=True))
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    for new, old in updates.items():
        if new not in outputs or old not in inputs:
            missing = f"output {new!r}" if new not in outputs else f"input {old!r}"
            raise GraphError(f"graph {graph.name!r} has no {missing}, which an update names.")
        if outputs[new].type != inputs[old].type:
            raise GraphError(
                f"{new!r} is {type_text(outputs[new].type)} and cannot take the place of {old!r}, "
                f"{type_text(inputs[old].type)}."
            )
    if len(set(updates.values())) != len(updates):
        raise GraphError(f"graph {graph.name!r}: two outputs take the place of one input.")


def _places(graph: Graph, updates: Updates) -> dict[GraphNode, Input]:
    """The values of outputs that update an input, each with the input that it replaces."""
    inputs = dict(zip(graph.input_names, graph.inputs, strict=True))
    named = zip(graph.output_names, graph.outputs, strict=True)
    return {storage(o): inputs[updates[name]] for name, o in named if name in updates}


def _maker(groups: Sequence[Group], node: GraphNode) -> Group:
    return next(g for g in groups if node in g.outputs)


def _is_store(node: GraphNode) -> bool:
    return isinstance(node, Apply) and node.op == "store"


def _may_overwrite(group: Group, out: GraphNode, old: Input) -> bool:
    """Whether the group's kernel, whatever its schedule, reads an element of `old` only to write over it."""
    dag = group.workload.dag
    outputs = dag.args[len(group.inputs) :]
    target = outputs[group.outputs.index(out)]
    names = [n for n, x in zip(dag.args, group.inputs, strict=False) if x is old]
    return all(reads_in_place(dag, name, target) for name in names)


def reads_in_place(dag: ComputeDAG, name: str, target: str) -> bool:
    """Whether stages that read the buffer compute, element by element, nothing but the target."""
    local = [s for s in dag.stages if not s.is_reduction and any(b.name == target for b in s.buffers)]
    for stage in reversed(dag.stages):  # consumers first
        readers = [c for c in dag.consumers(stage) if c is not stage]
        if readers and not stage.is_reduction and all(c in local for c in readers):
            own = {b.name for b in stage.buffers}
            if all(_same_place(x, c) for c in readers for x in c.loads() if x.buffer.name in own):
                local.append(stage)
    reading = [s for s in dag.stages if any(b.name == name for b in s.reads())]
    return all(s in local and _only_at_place(s, name) for s in reading)


def _only_at_place(stage: StageOp, name: str) -> bool:
    return all(_same_place(x, stage) for x in stage.loads() if x.buffer.name == name)


def _same_place(load: Load, stage: StageOp) -> bool:
    """Whether the load reads the element that the stage computes."""
    if load.buffer.shape != stage.buffers[0].shape:
        return bool(prod(load.buffer.shape) == prod(stage.buffers[0].shape) == 1)
    return all(
        i is a.var or (a.extent == 1 and isinstance(i, Const))
        for i, a in zip(load.indices, stage.axes, strict=True)
    )


def _order(groups: Sequence[Group], places: Mapping[GraphNode, Input]) -> tuple[Group, ...] | None:
    """The groups in the earliest order in which each writer of an input comes after its other readers.

    None when some wait for each other.
    """
    maker: dict[GraphNode, int] = {o: n for n, g in enumerate(groups) for o in g.outputs}
    before: list[set[int]] = [{maker[x] for x in g.inputs if x in maker} for g in groups]
    for out, old in places.items():
        writer = maker[out]
        before[writer] |= {n for n, g in enumerate(groups) if old in g.inputs and n != writer}
    after: list[list[int]] = [[] for _ in groups]
    for n, needed in enumerate(before):
        for m in needed:
            after[m].append(n)
    left = [len(needed) for needed in before]
    ready = [n for n, count in enumerate(left) if count == 0]
    heapq.heapify(ready)
    done: list[Group] = []
    while ready:
        n = heapq.heappop(ready)
        done.append(groups[n])
        for m in after[n]:
            left[m] -= 1
            if left[m] == 0:
                heapq.heappush(ready, m)
    return tuple(done) if len(done) == len(groups) else None
