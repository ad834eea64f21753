"""A graph convolutional network (Kipf and Welling, 2016) of two layers, at the size of Cora.

    x: float32[nodes, 1433], neighbours: int64[nodes, degree], strengths: float32[nodes, degree]
        ──▶ logits: float32[nodes, 7]

    layer:  y[i] = sum_k strengths[i, k] * (x @ W)[neighbours[i, k]] + b

The graph is data: a list of neighbours for each node, which contains the node itself and is padded with
strength 0. `lists_of` makes these lists from edges, with strengths 1 / sqrt(degree · degree). Each layer
gathers and sums in one kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.errors import InputError
from autotensor.graph.build import call, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.weights import Array, Naming, Weights, WeightSource
from autotensor.operators.operator_helpers import stage

NODES, FEATURES, HIDDEN, CLASSES, DEGREE, EDGES = 2708, 1433, 16, 7, 24, 5278
NAMES = Naming("those of PyTorch Geometric's GCNConv")


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    nodes: int = NODES,
    features: int = FEATURES,
    degree: int = DEGREE,
) -> Graph:
    """The graph. weights: `conv1.lin.weight` [16, 1433], `conv1.bias`, …; if None, drawn from the seed.

    batch: the number of graphs; they are joined into one graph with the nodes of all. degree: the longest
    list.
    """
    w = WeightSource("gcn", weights, seed, NAMES)
    nodes *= batch
    x = input((nodes, features), name="x")
    neighbours = input((nodes, degree), "int64", "neighbours")
    strengths = input((nodes, degree), name="strengths")

    def layer(x: GraphNode, name: str, width: int) -> GraphNode:
        weight, bias = w(f"{name}.lin.weight", width, x.shape[1]), w(f"{name}.bias", width)
        sums = call(_sum_of_neighbours, ops.dense(x, weight), neighbours, strengths)
        result: GraphNode = sums + bias
        return result

    logits = layer(ops.relu(layer(x, "conv1", HIDDEN)), "conv2", CLASSES)
    return w.graph((x, neighbours, strengths), (logits,), ("logits",))


def _sum_of_neighbours(x: te.Tensor, neighbours: te.Tensor, strengths: te.Tensor) -> te.Tensor:
    """sum_k strengths[i, k] * x[neighbours[i, k], c]"""
    k = te.reduce_axis(neighbours.shape[1], "k")

    def body(i: Any, c: Any) -> Any:
        return te.sum(strengths[i, k] * x[neighbours[i, k], c], axis=k)

    return stage((neighbours.shape[0], x.shape[1]), body, "neighbours")


def lists_of(edges: Array, nodes: int, degree: int) -> tuple[Array, Array]:
    """Neighbours and strengths, each [nodes, degree], of undirected edges int[count, 2]; loops are added.

    Raises InputError if a node has more than degree - 1 neighbours, or if an edge names an unknown node.
    """
    edges = np.asarray(edges).reshape(-1, 2)
    if edges.size and not (edges.min() >= 0 and edges.max() < nodes):
        raise InputError(f"gcn: an edge names a node outside 0 … {nodes - 1}.")
    found: list[list[int]] = [[n] for n in range(nodes)]
    for a, b in edges.tolist():
        found[a].append(b)
        found[b].append(a)
    counts = np.array([len(f) for f in found])
    if counts.max() > degree:
        raise InputError(
            f"gcn: node {int(counts.argmax())} has {int(counts.max()) - 1} neighbours; degree={degree} "
            f"leaves room for {degree - 1}.",
            fix="Build the model with a greater degree.",
        )
    neighbours = np.zeros((nodes, degree), np.int64)
    strengths = np.zeros((nodes, degree), np.float32)
    for n, f in enumerate(found):
        neighbours[n, : len(f)] = f
        strengths[n, : len(f)] = 1 / np.sqrt(counts[n] * counts[f])
    return neighbours, strengths


def inputs(
    rng: np.random.Generator,
    batch: int = 1,
    nodes: int = NODES,
    features: int = FEATURES,
    degree: int = DEGREE,
) -> dict[str, Array]:
    """Random graphs with Cora's number of edges per node, and bags of words that contain 1 % of the words."""
    nodes *= batch
    edges = rng.integers(0, nodes, (nodes * EDGES // NODES, 2))
    full = np.zeros(nodes, np.int64)
    kept = []
    for a, b in edges.tolist():  # no node gets more neighbours than its list can hold
        if a != b and max(full[a], full[b]) < degree - 1:
            full[[a, b]] += 1
            kept.append((a, b))
    neighbours, strengths = lists_of(np.array(kept, np.int64).reshape(-1, 2), nodes, degree)
    x = (rng.random((nodes, features)) < 0.01).astype(np.float32)
    return {"x": x, "neighbours": neighbours, "strengths": strengths}
