"""Groups: the parts of a graph that become one kernel program each, written as tensor expressions.

The operators' own te functions are chained. Where only rows and channels matter (pointwise convolutions,
dense layers, elementwise groups), the functions are written over [rows, channels]. So equal work has equal
workloads, wherever it stands in the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from autotensor import te
from autotensor.graph.function import TeFunction
from autotensor.graph.group_names import group_name
from autotensor.graph.infer_types import compute_te
from autotensor.graph.ir import Apply, Constant, GraphNode
from autotensor.graph.storage import storage
from autotensor.graph.weights import is_converted, is_weight, is_widened
from autotensor.ir.expr import Binary, Cast, Expr, Load, Op, Unary, call, const
from autotensor.operators import OPERATORS, Kind
from autotensor.operators.operator_helpers import multiplied
from autotensor.schedule.inlining import inline_into
from autotensor.te import Compute, Placeholder, Tensor, placeholder
from autotensor.te.dag import ComputeDAG, StageOp, placeholders_of
from autotensor.te.workload import Workload

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One kernel program of the model.

    `inputs` are the values of the placeholders: an Input, a Constant, another group's output or a window of
    such an output, but never a view. A placeholder may have another shape than its value, over the same
    bytes.
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


class GroupWriter:
    """Collects placeholders, one for each value and shape."""

    def __init__(self, rounded: bool) -> None:
        self.rounded = rounded
        self.placeholders: dict[tuple[GraphNode, Shape], Tensor] = {}
        self.wide: dict[tuple[GraphNode, Shape], Tensor] = {}
        self.values: dict[GraphNode, Tensor] = {}  # the values of the group's own nodes
        self.converted = False  # whether the kernel converts weights or other values while it loads them

    def read(self, node: GraphNode, shape: Shape, name: str) -> Tensor:
        if node in self.values:
            return self.values[node]
        if is_widened(node):
            return self.widened(node, shape, name)
        root = storage(node)
        found = self.placeholders.get((root, shape))
        if found is None:
            found = placeholder(shape, node.dtype, name=name, constant=isinstance(root, Constant))
            self.placeholders[root, shape] = found
        return found

    def widened(self, node: GraphNode, shape: Shape, name: str) -> Tensor:
        """A value of 16 bits as float32: each of its readers converts it."""
        assert isinstance(node, Apply)
        x = self.read(node.inputs[0], shape, name)
        if (node, shape) not in self.wide:
            self.wide[node, shape] = te.compute(shape, lambda *i: te.cast(node.dtype, x[i]), name="wide")
            self.converted = True
        return self.wide[node, shape]

    def write(
        self, node: Apply, shapes: Sequence[Shape], op: str | None = None, over: Shape | None = None
    ) -> None:
        """Writes the node on inputs of these shapes.

        op: another operator, in place of the node's own. over: the shape for a pointwise function.
        """
        names = _parameter_names(node)
        inputs = []
        for x, shape, name in zip(node.inputs, shapes, names, strict=True):
            if x not in self.values and is_converted(x) and is_weight(node, x):
                self.convert(x)
            inputs.append(self.read(x, shape, name))
        if isinstance(node.op, TeFunction) and over is not None:
            results = node.op.over(inputs, over)
        else:
            attrs = tuple(a for a in node.attrs if a[0] in ("zeros", "sums")) if op else node.attrs
            results = compute_te(op or node.op, inputs, attrs)
        result = _computed(results[node.output])
        self.values[node] = _rounded(result) if self.rounded else result

    def write_over(self, nodes: Sequence[Apply], target: Shape) -> bool:
        """Writes elementwise nodes over `target`, [rows, channels] or [elements].

        Returns False if one of them cannot be written in this way.
        """
        for node in nodes:
            if node.has_attr("axis") or (isinstance(node.op, TeFunction) and not node.op.pointwise):
                return False
            shapes = [
                x.shape
                if n in node.tables
                else _flattened(x.shape, node.shape, target, vector=isinstance(x, Constant))
                for n, x in enumerate(node.inputs)
            ]
            if None in shapes:
                return False
            self.write(node, [s for s in shapes if s is not None], over=target)
        return True

    def group(self, name: str, nodes: tuple[Apply, ...], outputs: tuple[Apply, ...]) -> Group:
        """The written stages as a group."""
        results = tuple(self.values[n] for n in outputs)
        read = placeholders_of(results)  # a value may be unread: the index into a table with a single row
        used = {key: t for key, t in self.placeholders.items() if t.op in read}
        args = (*used.values(), *results)
        dag = ComputeDAG.of(args)
        if self.converted:
            dag = _loading_converted(dag)
        return Group(name, nodes, args, tuple(root for root, _ in used), outputs, Workload.of(dag, name))

    def multiply(self, node: Apply, rows: Tensor) -> None:
        """Writes a pointwise node as the product of rows of [..., k] and its weights: [rows, channels].

        If the rows have another axis in front, for pictures, the result is [pictures, rows, channels].
        """
        channels, depth = node.shape[-1], rows.shape[-1]
        long = [n for n in rows.shape[:-1] if n > 1]
        inner = prod(long[-2:])
        outer = prod(long) // inner
        lead = (outer, inner) if outer > 1 else (inner,)
        w = node.inputs[1]
        if is_converted(w) and is_weight(node, w):
            self.convert(w)
        weights, k = self.read(w, (channels, depth), "w"), te.reduce_axis(depth, "k")
        self.values[node] = te.compute(
            (*lead, channels),
            lambda *i: te.sum(
                multiplied(
                    rows[(*_place(i[:-1], lead, rows.shape[:-1]), k)],
                    weights[i[-1], k],
                    node.attr("zeros"),
                    node.attr("sums"),
                ),
                axis=k,
            ),
            name="product",
        )

    def convert(self, node: GraphNode) -> None:
        """Writes a weight's conversion, which becomes part of each kernel that reads the weight."""
        assert isinstance(node, Apply)
        for x in node.inputs:
            if isinstance(x, Apply) and x not in self.values:
                self.convert(x)
        self.write(node, [x.shape for x in node.inputs])
        self.converted = True


def _place(at: Sequence[Expr], lead: Shape, shape: Shape) -> tuple[Expr, ...]:
    """The indices into `shape` of an element of `lead`, whose last axis joins up to two axes of `shape`."""
    long = [n for n, extent in enumerate(shape) if extent > 1]
    out = [const(0)] * len(shape)
    last = at[-1]
    if len(long) > 1:
        out[long[-2]], out[long[-1]] = last // shape[long[-1]], last % shape[long[-1]]
    elif long:
        out[long[-1]] = last
    before = at[0]
    for n in reversed(long[:-2]):
        out[n] = before % shape[n] if n != long[0] else before
        before = before // shape[n]
    return tuple(out)


def _computed(t: Tensor) -> Tensor:
    """The tensor, or a copy of it if it is an input that an operator returned unchanged."""
    return copy_of(t) if isinstance(t.op, Placeholder) else t


def _rounded(t: Tensor) -> Tensor:
    """The tensor with a product at its top rounded, so that no later sum can be contracted with it."""
    if not (isinstance(t.op, Compute) and t.dtype.is_float and any(map(_is_product, t.op.bodies))):
        return t
    bodies = tuple(call("rounded", b) if _is_product(b) else b for b in t.op.bodies)
    return Compute(t.op.name, t.op.axes, t.op.reduce_axes, bodies, t.op.tag).output(t.index)


def _is_product(body: Expr) -> bool:
    """Quotients, which may become products, and negations, which a sum takes in, count as products, too."""
    return isinstance(body, Unary) or (isinstance(body, Binary) and body.op in (Op.MUL, Op.DIV))


def group_of(chain: tuple[Apply, ...], rounded: bool) -> Group:
    """Operators as one group. Its outputs are the last result, or all results of a single operator."""
    writer = _pointwise(chain, rounded) or _flat(chain, rounded) or write_all(chain, rounded)
    outputs = chain if chain[0].results > 1 else chain[-1:]
    return writer.group(group_name(chain), chain, outputs)


def _loading_converted(dag: ComputeDAG) -> ComputeDAG:
    """The DAG without stages that convert constants or widen values: their readers convert what they load."""
    fixed = {*dag.constant_stages(), *(s.name for s in dag.stages if _is_widening(s))}
    stages: list[StageOp] = []
    gone: list[StageOp] = []
    for stage in dag.stages:
        for producer in reversed(gone):
            stage = inline_into(stage, producer)
        (gone if stage.name in fixed and not stage.is_reduction else stages).append(stage)
    return replace(dag, stages=tuple(stages))


def _is_widening(stage: StageOp) -> bool:
    match stage.bodies:
        case (Cast(t, Load(b, _, None)),):
            return stage.combiner is None and t.holds(b.dtype) and b.dtype.is_half
    return False


def write_all(chain: tuple[Apply, ...], rounded: bool) -> GroupWriter:
    """Writes every operator in its own shape."""
    writer = GroupWriter(rounded)
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


def _pointwise(chain: tuple[Apply, ...], rounded: bool) -> GroupWriter | None:
    """Writes a pointwise convolution or dense layer as [rows, k] x [channels, k]; None for other chains."""
    head = chain[0]
    if len(head.inputs) != 2 or not is_pointwise(head):
        return None
    x = head.inputs[0]
    channels, depth = head.shape[-1], x.shape[-1]
    rows = prod(x.shape[:-1])
    writer = GroupWriter(rounded)
    writer.write(head, [(rows, depth), (channels, depth)], op="dense")
    return writer if writer.write_over(chain[1:], (rows, channels)) else None


def is_pointwise(node: Apply) -> bool:
    """Whether the node is a matrix product of rows and weights that are already in this order in memory."""
    if node.op == "dense":
        return True
    if node.op != "conv2d" or node.attr("layout") != "NHWC":
        return False
    ones = (node.attr("stride"), node.attr("groups"), *node.inputs[1].shape[2:])
    return all(_all_are(v, 1) for v in ones) and _all_are(node.attr("padding"), 0)


def _all_are(value: object, wanted: int) -> bool:
    return all(v == wanted for v in value) if isinstance(value, tuple) else value == wanted


def _flat(chain: tuple[Apply, ...], rounded: bool) -> GroupWriter | None:
    """Writes an elementwise group over [elements], or [rows, channels] if it broadcasts; else None."""
    shape = chain[0].shape
    if chain[0].kind is not Kind.ELEMENTWISE or len(shape) < 1:
        return None
    outside = [x.shape for n in chain for k, x in enumerate(n.inputs) if x not in chain and k not in n.tables]
    vectors = any(prod(s) not in (1, prod(shape)) for s in outside)
    target = (prod(shape[:-1]), shape[-1]) if vectors else (prod(shape),)
    writer = GroupWriter(rounded)
    return writer if writer.write_over(chain, target) else None


def _flattened(shape: Shape, full: Shape, target: Shape, vector: bool = False) -> Shape | None:
    """A shape over the same bytes that broadcasts with `target` as `shape` does with `full`; else None.

    vector: with a single row, prefer [channels] (a bias) to [1, channels].

    >>> _flattened((1, 1, 1, 8), (2, 7, 7, 8), (98, 8)), _flattened((2, 7, 7, 1), (2, 7, 7, 8), (98, 8))
    ((8,), None)
    """
    if prod(shape) == prod(full) and not (vector and len(target) > 1 and prod(target[:-1]) == 1):
        return target
    if prod(shape) == 1:
        return (1,)
    if len(target) > 1 and shape[-1] == full[-1] == prod(shape):
        return target[-1:]
    return None


def _parameter_names(node: Apply) -> list[str]:
    """Names for the placeholders: those of the operator's parameters."""
    if isinstance(node.op, TeFunction):
        return [b.name for b in node.op.dag.inputs]
    parameters = inspect.signature(OPERATORS.get(node.op).compute).parameters.values()
    names = [p.name for p in parameters if "Tensor" in str(p.annotation) and p.kind is not p.VAR_POSITIONAL]
    return [*names, *(f"x{n}" for n in range(len(names), len(node.inputs)))][: len(node.inputs)]


def copy_of(x: Tensor) -> Tensor:
    result: Tensor = te.compute(x.shape, lambda *i: x[i], name="copy")
    return result
