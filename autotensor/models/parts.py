"""The common parts of models: layers that take their weights by name, and sample pictures.

    y = ops.relu(conv_norm(x, w, "conv1", "bn1", 64, kernel=7, stride=2))
    logits = classified(y, w, "fc", 1000)

Names end as torch's do: `.weight` and `.bias`, and for batch norms also `.running_mean` and `.running_var`. A
layer's width is an argument; its number of inputs follows from its input's shape.
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import ops
from autotensor.graph.ir import Constant, GraphNode
from autotensor.models.weights import Array, WeightSource

MOMENTS = ("weight", "bias", "running_mean", "running_var")
EPS = 1e-5  # torch's default


def weighted(w: WeightSource, name: str, *shape: int) -> tuple[Constant, Constant]:
    """A weight of this shape, whose first axis is the outputs, and the bias of these outputs."""
    return w(f"{name}.weight", *shape), w(f"{name}.bias", shape[0])


def linear(x: GraphNode, w: WeightSource, name: str, outputs: int) -> GraphNode:
    """A dense layer for rows [n, k] ──▶ [n, outputs]."""
    return ops.dense(x, *weighted(w, name, outputs, x.shape[1]))


def dense(x: GraphNode, weight: GraphNode, bias: GraphNode | None = None) -> GraphNode:
    """A dense layer over the last axis."""
    rows = ops.reshape(x, (-1, x.shape[-1]))
    y = ops.dense(rows, weight) if bias is None else ops.dense(rows, weight, bias)
    return ops.reshape(y, (*x.shape[:-1], weight.shape[0]))


def batch_norm(x: GraphNode, w: WeightSource, name: str, eps: float = EPS) -> GraphNode:
    """Batch norm over the channels, which are the second axis."""
    moments = (w(f"{name}.{part}", x.shape[1]) for part in MOMENTS)
    return ops.batch_norm(x, *moments, eps=eps)


def conv_norm(
    x: GraphNode,
    w: WeightSource,
    conv: str,
    norm: str,
    outputs: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    groups: int = 1,
    eps: float = EPS,
) -> GraphNode:
    """A convolution without bias, padded to keep the picture's size, followed by batch norm."""
    weight = w(f"{conv}.weight", outputs, x.shape[1] // groups, kernel, kernel)
    y = ops.conv2d(x, weight, stride=stride, padding=kernel // 2, groups=groups)
    return batch_norm(y, w, norm, eps)


def classified(x: GraphNode, w: WeightSource, name: str, classes: int) -> GraphNode:
    """Pictures [batch, channels, h, w] ──▶ logits [batch, classes], from the means of the channels."""
    return linear(ops.flatten(ops.global_avg_pool2d(x)), w, name, classes)


def images(rng: np.random.Generator, batch: int = 1, image: int = 224) -> dict[str, Array]:
    """A batch of normalised noise."""
    return {"x": rng.standard_normal((batch, 3, image, image), dtype=np.float32)}
