"""Folds constants: values that depend only on constants are computed now, with the NumPy references.

Large weights in few bits stay as they are where a product reads them. cast(int8[n, k]) takes four times their
bytes, and a kernel can convert a packed weight while it loads the weight (`graph/partition.py` makes such
kernels). A transpose of such weights moves below the conversion, and a product with them becomes a `dense`.
"""

from __future__ import annotations

from math import prod

import numpy as np

from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.canonical import reshape, transposition
from autotensor.graph.weights import is_converted, is_weight
from autotensor.ir.rewrite import Rules, rule

# A result much larger than its inputs, such as a broadcast, is cheaper to compute than to read from memory.
MAX_GROWTH_BYTES = 1 << 20


def fold_constants(graph: Graph) -> Graph:
    small = rewrite_graph(graph, FOLD, name="fold constants")
    return rewrite_graph(small, _beside_weights(small), name="fold constants beside weights")


@rule(Apply)
def fold(node: Apply, uses: Uses) -> GraphNode | None:
    """add(2, 3) ──▶ 5"""
    return None if _read(node) is None or is_grown(node) else _folded(node)


def is_grown(node: Apply) -> bool:
    """Whether a result is much larger than the inputs."""
    read = sum(prod(x.shape) * x.dtype.bytes for x in node.inputs)
    return prod(node.shape) * node.dtype.bytes > read + MAX_GROWTH_BYTES


FOLD = Rules(fold)


def _read(node: Apply) -> list[Array] | None:
    """The arrays from which the node is computed; None if some input is not a constant."""
    found = [x.array for x in node.inputs if isinstance(x, Constant)]
    return found if found and len(found) == len(node.inputs) else None


def _folded(node: Apply) -> Constant:
    inputs = [x for x in node.inputs if isinstance(x, Constant)]
    return constant(evaluate_node(node, [x.array for x in inputs]), name=inputs[0].name)


def _beside_weights(graph: Graph) -> Rules:
    """Rules that also fold values that are larger than their inputs only because their type is wider. Values
    that a product reads are not folded."""
    roots = {n for n in graph.applies if is_converted(n) and _is_large(n) and _is_for_products(graph, n)}
    kept = {x for n in roots for x in _parts(n)}

    def turned(w: Apply) -> GraphNode:
        made = _turned(w)
        if w in kept:
            kept.update(_parts(made))
        return made

    @rule(Apply)
    def fold_wider(node: Apply, uses: Uses) -> GraphNode | None:
        """cast(c) ──▶ c as another type"""
        read = None if node in kept else _read(node)
        if read is None:
            return None
        return _folded(node) if prod(node.shape) <= sum(x.size for x in read) else fold(node, uses)

    @rule(Apply)
    def turned_weights(node: Apply, uses: Uses) -> GraphNode | None:
        """transpose(cast(w)) ──▶ cast(wᵀ)"""
        match node:
            case Apply("transpose", (Apply() as w,)) if is_converted(w) and w.ndim == 2:
                return turned(w) if transposition(node) == (1, 0) else None
        return None

    @rule(Apply)
    def product_with_weights(node: Apply, uses: Uses) -> GraphNode | None:
        """matmul(x, cast(w)) ──▶ dense(x, cast(wᵀ)), over all rows at once"""
        match node:
            case Apply("matmul" | "batch_matmul", (x, Apply() as w)) if is_converted(w) and w.ndim == 2:
                pass
            case _:
                return None
        if node.attr("transpose_a") or x.dtype != w.dtype:
            return None
        weights = w if node.attr("transpose_b") else turned(w)
        rows = reshape(x, (prod(x.shape[:-1]), x.shape[-1]))
        return reshape(apply("dense", (rows, weights)), node.shape)

    return Rules(fold_wider, turned_weights, product_with_weights)


def _is_large(node: Apply) -> bool:
    """Whether the conversion's result is larger than its constants by more than a little."""
    read = sum(c.array.nbytes for c in _parts(node) if isinstance(c, Constant))
    return prod(node.shape) * node.dtype.bytes > read + MAX_GROWTH_BYTES


def _parts(node: GraphNode) -> set[GraphNode]:
    """The conversion and all nodes from which it is computed."""
    found: set[GraphNode] = {node}
    for x in node.inputs if isinstance(node, Apply) else ():
        found |= _parts(x)
    return found


def _is_for_products(graph: Graph, node: GraphNode) -> bool:
    """Whether only products read the node, as their weights; transposes and conversions may lie between."""
    if node in graph.outputs:
        return False
    for reader in graph.consumers[node]:
        through = is_converted(reader) or (reader.op == "transpose" and reader.ndim == 2)
        if not (is_weight(reader, node) or (through and _is_for_products(graph, reader))):
            return False
    return bool(graph.consumers[node])


def _turned(w: GraphNode) -> GraphNode:
    """A converted matrix, or the matrix below the conversion, with its axes exchanged."""
    if isinstance(w, Apply):
        return w.given(_turned(x) for x in w.inputs)
    assert isinstance(w, Constant)
    matrix = w.array.reshape((1,) * (2 - w.array.ndim) + w.array.shape)
    return constant(np.ascontiguousarray(matrix.T), w.name)
