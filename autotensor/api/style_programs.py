"""Programs that are compiled once for each structure, for the two programming styles (flow, imperative).

    run([loss, w - 0.1 * g], known={x: array, w: array})

        loss, w'            known nodes are the program's inputs, whatever computes them;
         │                  equal structure, equal types ──▶ the same program, compiled once
        …▲…
        x   w

Every operator's result is rounded before the next one reads it (`partition(rounded=True)`), schedules are the
rules' defaults, and no pass changes the arithmetic of several operators together. A value therefore has the
same bits whether it is computed alone or together with others, in one program or in many: printing an
intermediate value changes nothing. If speed matters more than this, compile the graph with `compile_model`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from autotensor.api.models import ModelPlan, default_traces, link_model
from autotensor.base import fork_locks
from autotensor.base.errors import GraphError
from autotensor.base.target import Target, parse
from autotensor.graph.evaluate import evaluate
from autotensor.graph.graph_rewriting import Uses, rewrite_graph, with_inputs
from autotensor.graph.infer_types import type_text
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, Input, topological
from autotensor.graph.partition import own_outputs, partition, tasks
from autotensor.graph.rules import OPEN_PASSES, Pass, optimize
from autotensor.graph.rules.canonical import transpose
from autotensor.graph.rules.layout import LAST, to_first, to_last
from autotensor.graph.rules.narrow_floats import float32_inside
from autotensor.ir.rewrite import Rules, rule
from autotensor.runtime.open_artifact import Function, open_artifact

# These passes look at several operators and may write other arithmetic for them, so that a value would depend
# on the operators next to it.
REACHING = ("fold batch norm", "merge sums", "single pixels", "attention in place")


@rule(Apply)
def turned_alone(node: Apply, uses: Uses) -> GraphNode | None:
    """conv2d(x, NCHW) ──▶ transpose(conv2d(transpose(x), NHWC))

    The whole-graph pass also keeps the values between convolutions in NHWC. A mean of such a value would add
    in another order than a mean that is computed alone.
    """
    layout = node.attr("layout") if node.has_attr("layout") else ""
    if not isinstance(node.op, str) or layout not in LAST or len(node.inputs[0].shape) != len(layout):
        return None
    rank = len(layout)
    if len(node.shape) != rank:
        return None
    first = transpose(node.inputs[0], to_last(rank))
    return transpose(node.given((first, *node.inputs[1:]), layout=LAST[layout]), to_first(rank))


TURNED = Rules(turned_alone)
ALONE = {  # pass → the pass that replaces it
    "float32 inside": lambda graph: float32_inside(graph, rounded=True),
    "channels last": lambda graph: rewrite_graph(graph, TURNED, name="convolutions turned"),
}
LOCAL_PASSES: tuple[Pass, ...] = tuple(
    Pass(p.name, ALONE.get(p.name, p.run)) for p in OPEN_PASSES if p.name not in REACHING
)

Key = tuple[Any, ...]
Resolve = Callable[[GraphNode], GraphNode]
NOTHING: Mapping[GraphNode, GraphNode] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a graph between known values and requested ones."""

    outputs: tuple[GraphNode, ...]
    leaves: tuple[GraphNode, ...]  # known nodes, in order of first use
    nodes: tuple[GraphNode, ...]  # all other nodes, producers first
    key: Key  # equal for equal structure
    resolve: Resolve

    def graph(self, name: str = "program") -> Graph:
        """The same computation with an input for each leaf."""
        made: dict[GraphNode, GraphNode] = {
            leaf: Input(getattr(leaf, "name", "") or f"v{n}", leaf.type, n)
            for n, leaf in enumerate(self.leaves)
        }
        inputs = tuple(x for x in made.values() if isinstance(x, Input))
        for node in self.nodes:
            made[node] = (
                with_inputs(node, tuple(made[self.resolve(x)] for x in node.inputs))
                if isinstance(node, Apply)
                else node
            )
        return Graph(inputs, tuple(made[self.resolve(o)] for o in self.outputs), name)


def cut(
    outputs: Sequence[GraphNode],
    known: Container[GraphNode],
    defined: Mapping[GraphNode, GraphNode] = NOTHING,
) -> Cut:
    """The nodes that must be computed for `outputs` if the values of `known` are given.

    defined: maps inputs to the nodes for which they stand. Differentiation does not look behind such inputs.
    Raises GraphError when an input without a value is needed.
    """

    def resolve(node: GraphNode) -> GraphNode:
        while node in defined and node not in known:
            node = defined[node]
        return node

    number: dict[GraphNode, int] = {}
    leaves: list[GraphNode] = []
    nodes: list[GraphNode] = []
    lines: list[Any] = []
    for node in topological(outputs, known, resolve):
        number[node] = len(number)
        if node in known:
            leaves.append(node)
            lines.append(type_text(node.type))
            continue
        nodes.append(node)
        match node:
            case Apply(op, inputs, attrs, output):
                lines.append((op, tuple(number[resolve(x)] for x in inputs), repr(attrs), output))
            case Constant(data):
                lines.append(data.digest)
            case _:
                raise GraphError(f"{node!r} has no value.", fix="Feed it.")
    key = (*lines, tuple(number[resolve(o)] for o in outputs))
    return Cut(tuple(outputs), tuple(leaves), tuple(nodes), key, resolve)


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled cut: it takes the arrays of the leaves, in order, and gives the arrays of the outputs."""

    graph: Graph
    module: Function | None  # None: evaluated by the operators' NumPy references

    def __call__(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if self.module is None:
            return evaluate(self.graph, *arrays)
        result = self.module(*arrays)
        return result if isinstance(result, tuple) else (result,)


class Programs:
    """Programs for one target, compiled at their first use. Any thread may call."""

    def __init__(self, target: str | Target | None = None) -> None:
        self.target: Target = parse(target)
        self._made: dict[Key, Program] = {}
        self._lock = fork_locks.renewed(threading.Lock())

    def __len__(self) -> int:
        """The number of programs."""
        return len(self._made)

    def run(
        self,
        outputs: Sequence[GraphNode],
        known: Mapping[GraphNode, Array],
        defined: Mapping[GraphNode, GraphNode] = NOTHING,
    ) -> tuple[Array, ...]:
        """The values of `outputs`; nothing is compiled or run for outputs that are known."""
        missing = tuple(dict.fromkeys(o for o in outputs if o not in known))
        if not missing:
            return tuple(known[o] for o in outputs)
        part = cut(missing, known, defined)
        made = self.program(part)([known[leaf] for leaf in part.leaves])
        values = dict(zip(missing, made, strict=True))
        return tuple(values[o] if o in values else known[o] for o in outputs)

    def program(self, part: Cut) -> Program:
        """The program of a cut."""
        with self._lock:
            found = self._made.get(part.key)
            if found is None:
                found = self._made[part.key] = compile_local(part.graph(), self.target)
        return found


def compile_local(graph: Graph, target: Target) -> Program:
    """The graph as a program in which every operator gives the same bits as it does alone; see the module's
    docstring."""
    if target.kind == "interp":
        return Program(graph, None)
    plan = plan_local(graph, target)
    return Program(graph, open_artifact(link_model(plan, default_traces(plan)), threads=target.num_cores))


def plan_local(graph: Graph, target: Target) -> ModelPlan:
    """A plan of the graph, optimised by local passes and cut into groups."""
    passes = tuple(p for p in LOCAL_PASSES if not (target.is_gpu and p.name == "float32 inside"))
    ready = own_outputs(optimize(graph, passes))
    groups = partition(ready, rounded=True)
    return ModelPlan(ready, groups, tasks(groups), target)
