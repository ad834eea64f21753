"""float16 and bfloat16 are types of storage: all computing between them is done in float32.

    x: float16 ─▶ conv2d ─▶ add ─▶ relu ─▶ y: float16

    x ─▶ cast float32 ─▶ conv2d ─▶ add ─▶ relu ─▶ cast float16 ─▶ y             weights: float32 now, once

Sums and chains keep float32's 24 bits, as the libraries of such networks do inside each operator; a value is
rounded where somebody can see it: at the outputs, at a `cast` of the author's, and, with `rounded`, after
every operator. All rules, schedules and tuning records of float32 then serve these networks as well.

Operators that only move elements (slices, take, concat, views) keep the 16 bits of their inputs, so that a
table or a cache among the inputs is read without conversion. Inputs that an operator converts as it loads
them stay, too (`Operator.stored`): scales of packed weights, keys and values of a cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.base.dtype import DType, float32
from autotensor.graph.function import TeFunction
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply, constant
from autotensor.operators import OPERATORS, Kind
from autotensor.te.wider_floats import widen_halves
from autotensor.te.workload import Workload

MOVING = (Kind.VIEW, Kind.INJECTIVE)  # kinds of operators that copy bits, as long as they are the library's


def float32_inside(graph: Graph, *, rounded: bool = False) -> Graph:
    """The graph with float32 in the place of 16-bit floats, except its inputs and outputs.

    rounded: every operator's result is rounded to the type that it had, so that a value has the same bits
    wherever the graph is cut.
    """
    if not any(n.dtype.is_half for n in graph.nodes):
        return graph
    made: dict[GraphNode, GraphNode] = {}  # new nodes: of the same type, or float32 for a 16-bit float
    for node in graph.nodes:
        new = _widened(node, [made[x] for x in node.inputs]) if isinstance(node, Apply) else node
        made[node] = as_type(new, node.dtype) if rounded else new
    return graph.with_outputs(as_type(made[o], o.dtype) for o in graph.outputs)


def as_type(node: GraphNode, dtype: DType) -> GraphNode:
    """The node in this type; the elements of a constant are converted now."""
    if node.dtype == dtype:
        return node
    if isinstance(node, Constant):
        return constant(node.array.astype(dtype.numpy), node.name)
    return apply("cast", (node,), {"dtype": str(dtype)})


def _wide(node: GraphNode) -> GraphNode:
    return as_type(node, float32) if node.dtype.is_half else node


def _widened(node: Apply, inputs: Sequence[GraphNode]) -> GraphNode:
    """The node on inputs of which some became float32: of its type, or float32 in the place of 16 bits."""
    types = [x.dtype for x in node.inputs]
    if not any(t.is_half for t in types):
        return node.given(inputs)
    if node.op == "cast":
        return as_type(inputs[0], node.dtype)
    if isinstance(node.op, TeFunction):
        # the operator itself says which types it reads
        given = [as_type(x, t) for x, t in zip(inputs, types, strict=True)]
        return apply(_computing_wide(node.op), given, output=node.output)
    if _moves(node) and all(x.dtype == t for x, t in zip(inputs, types, strict=True)):
        return node.given(inputs)
    stored = OPERATORS.get(node.op).stored
    made = node.given(x if n in stored else _wide(x) for n, x in enumerate(inputs))
    fits = made.dtype == node.dtype or (node.dtype.is_half and made.dtype == float32)
    return made if fits else as_type(made, node.dtype)


def _moves(node: Apply) -> bool:
    return node.kind in MOVING or node.op == "store"


def _computing_wide(fn: TeFunction) -> TeFunction:
    """The te function with its arithmetic in float32 and results as they were."""
    dag = widen_halves(fn.dag)
    return TeFunction(fn.name, dag, fn.outputs, Workload.of(dag).key)
