"""float16 and bfloat16 are types of storage: all computing between them is done in float32.

    x: float16 ─▶ conv2d ─▶ add ─▶ relu ─▶ y: float16

    x ─▶ cast float32 ─▶ conv2d ─▶ add ─▶ relu ─▶ cast float16 ─▶ y             weights: float32 now, once

Sums and chains keep float32's 24 bits, as the libraries of these networks do inside each operator. A value is
rounded only at the outputs, at a `cast` that the author wrote, and, with `rounded`, after every operator. So
all rules, schedules and tuning records of float32 serve these networks, too.

Operators that only move elements (slices, take, concat, views) keep the 16 bits of their inputs, so that a
table or a cache among the inputs is read without conversion. Inputs that an operator converts while it loads
them stay as they are, too (`Operator.stored`): scales of packed weights, keys and values of a cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.base.dtype import DType, float32
from autotensor.graph.function import TeFunction
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply, constant
from autotensor.operators import OPERATORS, Kind
from autotensor.te.wider_floats import widen_halves
from autotensor.te.workload import Workload

MOVING = (Kind.VIEW, Kind.INJECTIVE)  # kinds of operators that copy bits, if the operator is from the library


def float32_inside(graph: Graph, *, rounded: bool = False) -> Graph:
    """The graph with float32 instead of 16-bit floats, except in its inputs and outputs.

    rounded: every operator's result is rounded to its original type, so that a value has the same bits
    wherever the graph is cut.
    """
    if not any(n.dtype.is_half for n in graph.nodes):
        return graph
    made: dict[GraphNode, GraphNode] = {}  # new nodes: of the old type, or float32 for a 16-bit float
    for node in graph.nodes:
        new = _widened(node, [made[x] for x in node.inputs]) if isinstance(node, Apply) else node
        made[node] = as_type(new, node.dtype) if rounded else new
    return graph.with_outputs(as_type(made[o], o.dtype) for o in graph.outputs)


def as_type(node: GraphNode, dtype: DType) -> GraphNode:
    """The node in this type; a constant is converted now."""
    if node.dtype == dtype:
        return node
    if isinstance(node, Constant):
        return constant(node.array.astype(dtype.numpy), node.name)
    return apply("cast", (node,), {"dtype": str(dtype)})


def _wide(node: GraphNode) -> GraphNode:
    return as_type(node, float32) if node.dtype.is_half else node


def _widened(node: Apply, inputs: Sequence[GraphNode]) -> GraphNode:
    """The node with its new inputs. If some of these have become float32, the node's type may become float32,
    too."""
    types = [x.dtype for x in node.inputs]
    if not any(t.is_half for t in types):
        return node.given(inputs)
    if node.op == "cast":
        return as_type(inputs[0], node.dtype)
    if isinstance(node.op, TeFunction):
        # the function itself says which types it reads
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
    """The te function with its arithmetic in float32, and with results of the same types as before."""
    dag = widen_halves(fn.dag)
    return TeFunction(fn.name, dag, fn.outputs, Workload.of(dag).key)
