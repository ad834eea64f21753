"""From a graph to groups: what becomes one kernel program each.

    conv2d ─▶ add(bias) ─▶ add(shortcut) ─▶ relu        one group, head conv2d, the rest its epilogue
    reshape, a slice of whole rows                      no kernel: other names for bytes that are there

A group is a head (any operator) and the elementwise operators after it, as long as nobody outside reads the
values in between. Its computation is written as tensor expressions by chaining the operators' own te
functions. Where only rows and channels matter (pointwise convolutions, dense layers, elementwise groups) it
is written over [rows, channels], so that equal work has equal workloads wherever it stands in the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from autotensor import te
from autotensor.base.errors import GraphError
from autotensor.graph.function import TeFunction
from autotensor.graph.group_names import group_name
from autotensor.graph.infer_types import compute_te
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply
from autotensor.graph.storage import place, storage, window
from autotensor.graph.weights import converted_weights, is_converted, is_weight
from autotensor.ir.expr import Binary, Expr, Op, Unary, call
from autotensor.operators import OPERATORS, Kind
from autotensor.schedule.state import inline_into
from autotensor.te import Compute, Placeholder, Tensor, placeholder
from autotensor.te.dag import ComputeDAG, StageOp, placeholders_of
from autotensor.te.workload import Workload

MAX_EPILOGUE = 24  # operators after a head; real epilogues have fewer than 10

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One kernel program of the model.

    `inputs` are the values that the placeholders stand for (an Input, a Constant, another group's output or a
    window of one; never a view); a placeholder's shape may be another one over the same bytes.
    """

    name: str  # for people
    nodes: tuple[Apply, ...]  # producers first
    args: tuple[Tensor, ...]  # placeholders, then results
    inputs: tuple[GraphNode, ...]
    outputs: tuple[Apply, ...]
    workload: Workload

    @property
    def head(self) -> Apply:
        return self.nodes[0]

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Names of the inputs, then of the outputs, in the workload."""
        return self.workload.dag.args

    @property
    def flops(self) -> int:
        return self.workload.dag.flops()


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A distinct workload of a model."""

    name: str
    workload: Workload
    weight: int  # how often the model runs it
    flops: int  # of one run

    def __str__(self) -> str:
        return f"{self.name} ×{self.weight}"


def partition(graph: Graph, *, rounded: bool = False, windows: bool = False) -> tuple[Group, ...]:
    """The groups of a graph, in an order in which they can run.

    Every output of the graph is the output of one group (after `own_outputs`), possibly behind views.
    rounded: every operator's result is rounded before the next one reads it, so that a value has the same
    bits however the graph was cut; else a product and the sum after it may become one multiply-add.
    windows: slices of one block of bytes get no group, and who reads them reads there: for processors, on
    which a kernel's arguments may begin anywhere.
    """
    outputs = {storage(o) for o in graph.outputs}
    taken: set[GraphNode] = {n for n in graph.applies if windows and n not in outputs and window(n)}
    taken |= converted_weights(graph)
    chains: list[tuple[Apply, ...]] = []
    rank = {node: n for n, node in enumerate(graph.nodes)}
    for node in graph.applies:
        if node in taken or node.kind is Kind.VIEW:
            continue
        chain = _chain(graph, node, taken, rank)
        taken.update(chain)
        chains.append(chain)
    # A group can run when all that its last operator reads is there; several results come from one operator.
    chains.sort(key=lambda chain: rank[chain[0] if chain[0].results > 1 else chain[-1]])
    return tuple(_group(graph, chain, rounded) for chain in chains)


def tasks(groups: Sequence[Group]) -> tuple[KernelTask, ...]:
    """Distinct workloads with how often they run, in order of first appearance."""
    found: dict[str, list[Group]] = {}
    for g in groups:
        found.setdefault(g.workload.key, []).append(g)
    return tuple(KernelTask(gs[0].name, gs[0].workload, len(gs), gs[0].flops) for gs in found.values())


def own_outputs(graph: Graph) -> Graph:
    """The graph with a copy of every output that is an input, a constant, or an output already.

    One without elements stays: no kernel has anything to write there.
    """
    outputs: list[GraphNode] = []
    seen: set[GraphNode] = set()
    for out in graph.outputs:
        root = storage(out)
        if 0 not in out.shape and (root in seen or not isinstance(root, Apply)):
            # A fresh function for each: equal copies would be interned to one node, and be one output again.
            copy = TeFunction.trace(_copy, [out.type], f"copy_{len(outputs)}")
            out = apply(copy, (out,))
        seen.add(storage(out))
        outputs.append(out)
    return graph.with_outputs(outputs)


def _copy(x: Tensor) -> Tensor:
    result: Tensor = te.compute(x.shape, lambda *i: x[i], name="copy")
    return result


# -- which nodes belong together -------------------------------------------------------------------------


def _chain(
    graph: Graph, head: Apply, taken: set[GraphNode], rank: Mapping[GraphNode, int]
) -> tuple[Apply, ...]:
    """The head and the longest epilogue whose inner values nobody else reads."""
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
    """Whether only the last member is read from outside. Then no cycle through other groups can exist."""
    inside = set(members)
    return all(m not in graph.outputs and inside.issuperset(graph.consumers[m]) for m in members[:-1])


# -- writing a group as tensor expressions ---------------------------------------------------------------


class _Writer:
    """Collects placeholders, one for each value and shape."""

    def __init__(self, rounded: bool) -> None:
        self.rounded = rounded
        self.placeholders: dict[tuple[GraphNode, Shape], Tensor] = {}
        self.values: dict[GraphNode, Tensor] = {}  # members
        self.converted = False  # whether weights are converted by the kernel that reads them

    def read(self, node: GraphNode, shape: Shape, name: str) -> Tensor:
        if node in self.values:
            return self.values[node]
        root = storage(node)
        found = self.placeholders.get((root, shape))
        if found is None:
            found = placeholder(shape, node.dtype, name=name, constant=isinstance(root, Constant))
            self.placeholders[root, shape] = found
        return found

    def write(
        self, node: Apply, shapes: Sequence[Shape], op: str | None = None, over: Shape | None = None
    ) -> None:
        """The node on inputs of these shapes. op: instead of its own. over: shape of a pointwise function."""
        names = _parameter_names(node)
        inputs = []
        for x, shape, name in zip(node.inputs, shapes, names, strict=True):
            if x not in self.values and is_converted(x) and is_weight(node, x):
                self.convert(x)
            inputs.append(self.read(x, shape, name))
        if isinstance(node.op, TeFunction) and over is not None:
            results = node.op.over(inputs, over)
        else:
            results = compute_te(op or node.op, inputs, () if op else node.attrs)
        result = _computed(results[node.output])
        self.values[node] = _rounded(result) if self.rounded else result

    def convert(self, node: GraphNode) -> None:
        """A weight's conversion, which becomes part of what reads it."""
        assert isinstance(node, Apply)
        for x in node.inputs:
            if isinstance(x, Apply) and x not in self.values:
                self.convert(x)
        self.write(node, [x.shape for x in node.inputs])
        self.converted = True


def _computed(t: Tensor) -> Tensor:
    """The tensor; a copy of it when an operator had nothing to do and gave its input back."""
    return _copy(t) if isinstance(t.op, Placeholder) else t


def _rounded(t: Tensor) -> Tensor:
    """The tensor, computed so that nobody can join a product at its top with what comes after it."""
    if not (isinstance(t.op, Compute) and t.dtype.is_float and any(map(_is_product, t.op.bodies))):
        return t
    bodies = tuple(call("rounded", b) if _is_product(b) else b for b in t.op.bodies)
    return Compute(t.op.name, t.op.axes, t.op.reduce_axes, bodies, t.op.tag).output(t.index)


def _is_product(body: Expr) -> bool:
    """Also quotients, which may become products, and negations, which a sum takes in."""
    return isinstance(body, Unary) or (isinstance(body, Binary) and body.op in (Op.MUL, Op.DIV))


def _group(graph: Graph, chain: tuple[Apply, ...], rounded: bool) -> Group:
    writer = _pointwise(chain, rounded) or _flat(chain, rounded) or _general(chain, rounded)
    outputs = chain if chain[0].results > 1 else chain[-1:]
    results = tuple(writer.values[n] for n in outputs)
    read = placeholders_of(results)  # the one row of a table does not ask which
    used = {key: t for key, t in writer.placeholders.items() if t.op in read}
    args = (*used.values(), *results)
    dag = ComputeDAG.of(args)
    if writer.converted:
        dag = _loading_converted(dag)
    name = group_name(chain)
    return Group(name, chain, args, tuple(root for root, _ in used), outputs, Workload.of(dag, name))


def _loading_converted(dag: ComputeDAG) -> ComputeDAG:
    """The DAG without stages that convert constants: who reads their results converts what it loads."""
    fixed = dag.constant_stages()
    stages: list[StageOp] = []
    gone: list[StageOp] = []
    for stage in dag.stages:
        for producer in reversed(gone):
            stage = inline_into(stage, producer)
        (gone if stage.name in fixed and not stage.is_reduction else stages).append(stage)
    return replace(dag, stages=tuple(stages))


def _general(chain: tuple[Apply, ...], rounded: bool) -> _Writer:
    """Every operator in its own shape."""
    writer = _Writer(rounded)
    if chain[0].results > 1:
        first = chain[0]
        inputs = [
            writer.read(x, x.shape, n) for x, n in zip(first.inputs, _parameter_names(first), strict=True)
        ]
        results = compute_te(first.op, inputs, first.attrs)
        writer.values = {n: _computed(results[n.output]) for n in chain}
        return writer
    for node in chain:
        writer.write(node, [x.shape for x in node.inputs])
    return writer


def _pointwise(chain: tuple[Apply, ...], rounded: bool) -> _Writer | None:
    """A 1x1 convolution (NHWC, stride 1, unpadded) or dense layer as [rows, k] x [channels, k]; else None."""
    head = chain[0]
    if len(head.inputs) != 2 or not is_pointwise(head):
        return None
    x = head.inputs[0]
    channels, depth = head.shape[-1], x.shape[-1]
    rows = prod(x.shape[:-1])
    writer = _Writer(rounded)
    writer.write(head, [(rows, depth), (channels, depth)], op="dense")
    return writer if _epilogue(writer, chain[1:], (rows, channels)) else None


def is_pointwise(node: Apply) -> bool:
    """Whether the node is a matrix product of rows and weights, as it stands in memory."""
    if node.op == "dense":
        return True
    if node.op != "conv2d" or node.attr("layout") != "NHWC":
        return False
    ones = (node.attr("stride"), node.attr("groups"), *node.inputs[1].shape[2:])
    return all(_all_are(v, 1) for v in ones) and _all_are(node.attr("padding"), 0)


def _all_are(value: object, wanted: int) -> bool:
    return all(v == wanted for v in value) if isinstance(value, tuple) else value == wanted


def _flat(chain: tuple[Apply, ...], rounded: bool) -> _Writer | None:
    """An elementwise group over [elements], or [rows, channels] if something is broadcast; else None."""
    shape = chain[0].shape
    if chain[0].kind is not Kind.ELEMENTWISE or len(shape) < 1:
        return None
    outside = [x.shape for n in chain for x in n.inputs if x not in chain]
    vectors = any(prod(s) not in (1, prod(shape)) for s in outside)
    target = (prod(shape[:-1]), shape[-1]) if vectors else (prod(shape),)
    writer = _Writer(rounded)
    return writer if _epilogue(writer, chain, target) else None


def _epilogue(writer: _Writer, chain: Sequence[Apply], target: Shape) -> bool:
    """Writes elementwise operators over `target`, [rows, channels] or [elements]; False if one cannot be."""
    for node in chain:
        if node.has_attr("axis") or (isinstance(node.op, TeFunction) and not node.op.pointwise):
            return False
        shapes = [
            _flattened(x.shape, node.shape, target, vector=isinstance(x, Constant)) for x in node.inputs
        ]
        if None in shapes:
            return False
        writer.write(node, [s for s in shapes if s is not None], over=target)
    return True


def _flattened(shape: Shape, full: Shape, target: Shape, vector: bool = False) -> Shape | None:
    """A shape over the same bytes that broadcasts against `target` as `shape` does against `full`, or None.

    vector: with a single row, prefer [channels] (a bias) to [1, channels].

    >>> _flattened((1, 1, 1, 8), (2, 7, 7, 8), (98, 8)), _flattened((2, 7, 7, 1), (2, 7, 7, 8), (98, 8))
    ((8,), None)
    """
    if prod(shape) == prod(full) and not (vector and len(target) == 2 and target[0] == 1):
        return target
    if prod(shape) == 1:
        return (1,)
    if len(target) == 2 and shape[-1] == full[-1] == prod(shape):
        return target[1:]
    return None


def _parameter_names(node: Apply) -> list[str]:
    """Names for placeholders: those of the operator's parameters."""
    if isinstance(node.op, TeFunction):
        return [b.name for b in node.op.dag.inputs]
    parameters = inspect.signature(OPERATORS.get(node.op).compute).parameters.values()
    names = [p.name for p in parameters if "Tensor" in str(p.annotation) and p.kind is not p.VAR_POSITIONAL]
    return [*names, *(f"x{n}" for n in range(len(names), len(node.inputs)))][: len(node.inputs)]


def check_groups(graph: Graph, groups: Sequence[Group]) -> None:
    """Raises GraphError unless every output has its own group and every group reads what is made before."""
    made: set[GraphNode] = set()
    for g in groups:
        for x in g.inputs:
            if isinstance(x, Apply) and place(x, made).of not in made:
                raise GraphError(f"group {g.name!r} reads {x!r} before it is made.")
        made.update(g.outputs)
    roots = [storage(o) for o in graph.outputs if 0 not in o.shape]
    if any(r not in made for r in roots) or len(set(roots)) != len(roots):
        raise GraphError(
            f"graph {graph.name!r} has an output that no group makes.", fix="Use own_outputs(graph) first."
        )


def last_readers(groups: Sequence[Group]) -> dict[GraphNode, int]:
    """The number of the last group that reads each value, in whole or through a window."""
    made = {o for g in groups for o in g.outputs}
    return {place(x, made).of: n for n, g in enumerate(groups) for x in g.inputs}
