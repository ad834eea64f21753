"""Products of many rows in bfloat16: operands of 16 bits, and products and sums in float32.

    relu(y) ─▶ dense(…, w)            cast(relu(y): bfloat16) ─▶ dense(…, w: bfloat16, sums="float32")
            └▶ add(…)         ──▶                             └▶ cast(float32, as_read) ─▶ add(…)

Dot instructions add two such products at a time. The kernel that makes the operand stores it in bfloat16, and
the operand's other readers widen each element that they load. Norms, sums and functions between products
compute in float32. Weights are rounded once, by this pass. So only the operands of products are rounded to
bfloat16, which has 8 significant bits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from autotensor.base.dtype import bfloat16, float32
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.kept_layers import kept_layers
from autotensor.graph.storage import storage
from autotensor.graph.weights import CONVOLUTIONS
from autotensor.operators import Kind
from autotensor.operators.operator_helpers import per_axis

ROWS = 4  # a product with at least this many rows of results is worth it (chosen, 2026-11)
# fewest neighbouring terms of a product's sums, and fewest columns of its weights (chosen, 2026-11)
DEPTH, COLUMNS = 16, 16


def in_bfloat16(
    graph: Graph, pays: Callable[[Apply], bool] = lambda _: True, keep: tuple[str, ...] = ()
) -> Graph:
    """The graph with its large products in bfloat16.

    pays: whether a product is faster in bfloat16. keep: patterns of layers that stay in float32.
    """
    kept = kept_layers(graph, keep)
    products = {n for n in graph.applies if is_product(n) and n not in kept and pays(n)}
    outputs = {storage(o) for o in graph.outputs}
    stored = {storage(n.inputs[0]) for n in products} - outputs
    made: dict[GraphNode, GraphNode] = {}  # each value in float32
    half: dict[GraphNode, GraphNode] = {}  # the operands of products, in bfloat16
    for node in graph.nodes:
        if not isinstance(node, Apply):
            made[node] = node
            continue
        x = node.inputs[0] if node.inputs else node
        if node in products:
            w = node.inputs[1]
            assert isinstance(w, Constant)
            rounded = constant(w.array.astype(bfloat16.numpy), w.name)
            inputs = (_half(x, made, half), rounded, *(made[b] for b in node.inputs[2:]))
            new: GraphNode = node.given(inputs, sums=str(float32))
        elif node.kind is Kind.VIEW and x in half:
            half[node] = node.given((half[x],))
            new = _widened(half[node])
        else:
            new = node.given(made[x] for x in node.inputs)
        if node in stored:
            half[node] = _rounded(new)
            new = _widened(half[node])
        made[node] = new
    return graph.with_outputs(made[o] for o in graph.outputs)


def is_product(node: Apply) -> bool:
    """Whether a node is a product of many rows with constant weights, deep and wide enough."""
    if len(node.inputs) < 2:
        return False
    x, w = node.inputs[:2]
    if not isinstance(w, Constant) or x.dtype != float32 or w.dtype != float32 or isinstance(x, Constant):
        return False
    if node.op == "dense":
        rows = x.shape[0]
    elif node.op in CONVOLUTIONS and node.attr("groups") == 1 and str(node.attr("layout")).endswith("C"):
        rows = prod(node.shape[:-1])
    else:
        return False
    return rows >= ROWS and _depth(node, w.shape) >= DEPTH and w.shape[0] >= COLUMNS


def _depth(node: Apply, weights: tuple[int, ...]) -> int:
    """How many terms are neighbours in memory: the channels, without dilation those of a whole line."""
    if node.op not in CONVOLUTIONS:
        return weights[1]
    steps = per_axis("conv", "dilation", node.attr("dilation"), len(weights) - 2)
    return weights[1] * (weights[-1] if steps[-1] == 1 else 1)


def _half(x: GraphNode, made: dict[GraphNode, GraphNode], half: dict[GraphNode, GraphNode]) -> GraphNode:
    """A product's operand in bfloat16. Arguments, and results that the caller gets in float32, are copied."""
    if x not in half:
        if isinstance(x, Apply) and x.kind is Kind.VIEW:
            half[x] = x.given((_half(x.inputs[0], made, half),))
        else:
            half[x] = _rounded(made[x])
    return half[x]


def _rounded(x: GraphNode) -> GraphNode:
    return apply("cast", (x,), {"dtype": str(bfloat16)})


def _widened(x: GraphNode) -> GraphNode:
    return apply("cast", (x,), {"dtype": str(float32), "as_read": True})
