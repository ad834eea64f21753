"""What the models are written with: weights by name as constants, their shapes, and sample pictures.

    y = ops.relu(batch_norm(ops.conv2d(x, named(w, "conv1.weight")), w, "bn1"))
    logits = classified(y, w, "fc")

Names end as torch's do: `.weight` and `.bias`, and of batch norms also `.running_mean` and `.running_var`.
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import constant, ops
from autotensor.graph.ir import Constant, GraphNode
from autotensor.models.weights import Array, Weights

MOMENTS = ("weight", "bias", "running_mean", "running_var")
EPS = 1e-5  # torch's default

Shapes = dict[str, tuple[int, ...]]


def named(w: Weights, name: str) -> Constant:
    return constant(w[name], name)


def weighted(w: Weights, name: str) -> tuple[Constant, Constant]:
    """Weight and bias of one layer."""
    return named(w, f"{name}.weight"), named(w, f"{name}.bias")


def dense(x: GraphNode, weight: GraphNode, bias: GraphNode | None = None) -> GraphNode:
    """A dense layer over the last axis."""
    rows = ops.reshape(x, (-1, x.shape[-1]))
    y = ops.dense(rows, weight) if bias is None else ops.dense(rows, weight, bias)
    result: GraphNode = ops.reshape(y, (*x.shape[:-1], weight.shape[0]))
    return result


def weighted_shapes(name: str, *shape: int) -> Shapes:
    """Of a weight of this shape, whose outputs are its first axis, and their bias."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def batch_norm(x: GraphNode, w: Weights, name: str, eps: float = EPS) -> GraphNode:
    result: GraphNode = ops.batch_norm(x, *(named(w, f"{name}.{part}") for part in MOMENTS), eps=eps)
    return result


def norm_shapes(name: str, width: int) -> Shapes:
    """Of a batch norm over so many channels."""
    return {f"{name}.{part}": (width,) for part in MOMENTS}


def classified(x: GraphNode, w: Weights, name: str) -> GraphNode:
    """Pictures [batch, channels, h, w] ──▶ logits [batch, classes] of the means of their channels."""
    result: GraphNode = ops.dense(ops.flatten(ops.global_avg_pool2d(x)), *weighted(w, name))
    return result


def images(rng: np.random.Generator, batch: int = 1, image: int = 224) -> dict[str, Array]:
    """A batch of normalised noise."""
    return {"x": rng.standard_normal((batch, 3, image, image), dtype=np.float32)}
