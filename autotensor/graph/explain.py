"""A report for people on how a graph is compiled: before and after each pass, fused groups, memory.

It also lists the operators of a quantised graph that stay in floats, with the reasons.

print(graph.explain())                          text
graph.explain().dot("fold batch norm")          for Graphviz: the graph after the pass of this name
graph.explain().steps                           (name of the pass, graph after it) for passes that changed it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from autotensor.base.errors import GraphError
from autotensor.base.registry import suggest
from autotensor.graph.group_names import group_name
from autotensor.graph.groups import Group
from autotensor.graph.infer_types import type_text
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, Input
from autotensor.graph.memory import Lifetime, MemoryPlan, plan
from autotensor.graph.partition import last_readers, own_outputs, partition
from autotensor.graph.rules import IN_INTEGERS, PASSES, Pass
from autotensor.graph.rules.integers import left_in_float
from autotensor.graph.storage import storage

AS_WRITTEN = "as written"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A graph on its way to kernels."""

    steps: tuple[tuple[str, Graph], ...]  # the graph as written, then after each pass that changed it
    unchanged: tuple[str, ...]  # passes that found nothing to do
    groups: tuple[Group, ...]
    memory: MemoryPlan  # memory of the values between groups, without the kernels' own workspaces
    # the parts of a quantised graph that do not compute in integers, with the reasons
    in_float: tuple[str, ...] = ()

    @property
    def before(self) -> Graph:
        return self.steps[0][1]

    @property
    def after(self) -> Graph:
        return self.steps[-1][1]

    def step(self, name: str) -> Graph:
        """The graph after a pass. Raises GraphError for a pass that changed nothing or does not exist."""
        found = dict(self.steps)
        if name not in found:
            raise GraphError(
                f"explain: no pass {name!r} changed this graph.", fix=suggest(name, tuple(found))
            )
        return found[name]

    def dot(self, name: str = AS_WRITTEN) -> str:
        """The graph after a pass in Graphviz's language."""
        return dot(self.step(name))

    def __str__(self) -> str:
        lines: list[str] = []
        for n, (name, graph) in enumerate(self.steps):
            lines += [f"── {name}: {_counts(graph, self.steps[n - 1][1] if n else None)}", str(graph), ""]
        if self.in_float:
            lines += ["── in float although quantised", *self.in_float, ""]
        if self.unchanged:
            lines += [f"nothing to do: {', '.join(self.unchanged)}", ""]
        lines += [
            f"── {len(self.groups)} kernels",
            *(f"{n}: {g.name}" for n, g in enumerate(self.groups)),
            "",
        ]
        lines += ["── memory between kernels", *_memory_lines(self.memory)]
        return "\n".join(lines)


def explain(graph: Graph, passes: Sequence[Pass] = PASSES, *, rounded: bool = False) -> Explanation:
    """The report of a graph that goes through `passes` and fusion. rounded: as in `partition`."""
    steps = [(AS_WRITTEN, graph)]
    unchanged = []
    in_float: Counter[str] = Counter()
    for p in passes:
        after = p.run(steps[-1][1])
        if after.outputs == steps[-1][1].outputs:
            unchanged.append(p.name)
        else:
            steps.append((p.name, after))
        if p is IN_INTEGERS:
            in_float.update(f"{group_name((node,))}: {why}" for node, why in left_in_float(after))
    ready = own_outputs(steps[-1][1])
    groups = partition(ready, rounded=rounded, windows=True)
    left = tuple(f"{text}{f' ×{n}' if n > 1 else ''}" for text, n in in_float.items())
    return Explanation(tuple(steps), tuple(unchanged), groups, memory_between(ready, groups), left)


def memory_between(graph: Graph, groups: Sequence[Group]) -> MemoryPlan:
    """The memory plan of the values between groups."""
    outside = {storage(o) for o in graph.outputs}
    last = last_readers(groups)
    values = [
        Lifetime(f"{g.name}.{k}" if len(g.outputs) > 1 else g.name, _bytes(out), n, last.get(out, n))
        for n, g in enumerate(groups)
        for k, out in enumerate(g.outputs)
        if out not in outside
    ]
    return plan(values)


def _bytes(node: GraphNode) -> int:
    return prod(node.shape) * node.dtype.bytes


def _counts(graph: Graph, before: Graph | None) -> str:
    """The number of operators and of operations, now and before.

    3 operators, 1,204 flops (before: 5 and 2,408)
    """
    text = f"{graph.count()} operators, {graph.flops():,} flops"
    return text if before is None else f"{text} (before: {before.count()} and {before.flops():,})"


def _memory_lines(memory: MemoryPlan) -> list[str]:
    """Peak before and after sharing, and when each value lives."""
    lines = [
        f"before: {memory.unshared_bytes:,} bytes, every value in its own place",
        f"after:  {memory.arena_bytes:,} bytes ({memory.strategy}); no plan needs fewer than "
        f"{memory.lower_bound_bytes:,}",
    ]
    width = max((v.last for v in memory.values), default=0) + 1
    for v, offset in zip(memory.values, memory.offsets, strict=True):
        bar = "".join("#" if v.first <= n <= v.last else "." for n in range(width))
        lines.append(f"  {bar}  {offset:>9,} + {v.bytes:>9,}  {v.name}")
    return lines


def dot(graph: Graph) -> str:
    """A graph in Graphviz's language. Boxes are operators, and edges carry the types of tensors."""
    names: dict[GraphNode, str] = {}
    lines = ["digraph {", "  rankdir=TB; node [shape=box];"]
    titles: Mapping[GraphNode, str] = dict(zip(graph.inputs, graph.input_names, strict=True))
    for n, node in enumerate(graph.nodes):
        names[node] = f"n{n}"
        lines.append(f"  n{n} [{_style(node, titles)}];")
    for node in graph.applies:
        lines += [f'  {names[x]} -> {names[node]} [label="{type_text(x.type)}"];' for x in node.inputs]
    for name, out in zip(graph.output_names, graph.outputs, strict=True):
        lines += [
            f'  "{name}" [shape=plaintext];',
            f'  {names[out]} -> "{name}" [label="{type_text(out.type)}"];',
        ]
    return "\n".join([*lines, "}"])


def _style(node: GraphNode, titles: Mapping[GraphNode, str]) -> str:
    match node:
        case Apply():
            attrs = "".join(f"\\n{k}={v}" for k, v in node.attrs)
            return f'label="{node.op_name}{attrs}"'
        case Constant():
            small = node.array.size == 1
            text = str(node.array.reshape(-1)[0]) if small else node.name or "const"
            return f'label="{text}", shape=ellipse, style=dashed'
        case Input():
            return f'label="{titles.get(node, node.name)}", shape=ellipse'
    return f'label="{node!r}"'
