"""Layers of neural networks for static graphs: `flow.nn`, in TensorFlow 1's and tinyflow's spelling.

As in tinyflow, images are NCHW, and strides and window sizes are given as [1, h, w, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor.base.dtype import float32
from autotensor.base.errors import GraphError
from autotensor.flow.node_origin import here
from autotensor.flow.nodes import Node, Operation, Spec, as_node, operation
from autotensor.flow.ops import SPELLING, random_uniform, reduce_mean, reduce_sum, where
from autotensor.flow.variables import Variable
from autotensor.graph.build import constant as graph_constant
from autotensor.graph.build import ops as library
from autotensor.graph.ir import GraphNode

__all__ = [
    "avg_pool",
    "bias_add",
    "conv2d",
    "dropout",
    "flatten_layer",
    "l2_loss",
    "linear",
    "log_softmax",
    "max_pool",
    "mean_sparse_softmax_cross_entropy_with_logits",
    "relu",
    "sigmoid",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "sparse_softmax_cross_entropy_with_logits",
    "tanh",
]

Shapes = Callable[[tuple[int, ...]], tuple[tuple[int, ...], ...]]


relu, sigmoid, tanh = SPELLING("relu"), SPELLING("sigmoid"), SPELLING("tanh")


def softmax(x: Any, axis: int = -1) -> Node:
    """exp(x) / sum(exp(x)) along an axis, without overflow."""
    return operation("softmax", x, axis=axis)


def log_softmax(x: Any, axis: int = -1) -> Node:
    return operation("log_softmax", x, axis=axis)


def bias_add(x: Any, bias: Any) -> Node:
    """x + bias along the last axis."""
    return operation("bias_add", x, bias)


def l2_loss(x: Any) -> Node:
    """sum(x²) / 2."""
    node = as_node(x)
    return reduce_sum(node * node) * 0.5


def softmax_cross_entropy_with_logits(logits: Any = None, labels: Any = None, _swapped: Any = None) -> Node:
    """-sum(labels * log_softmax(logits)), one number per row; labels: distributions, of logits' shape."""
    if logits is None or labels is None:
        raise GraphError(f"{here()}: softmax_cross_entropy_with_logits takes logits and labels.")
    return -reduce_sum(as_node(labels) * log_softmax(logits), axis=-1)


def sparse_softmax_cross_entropy_with_logits(logits: Any, labels: Any) -> Node:
    """The same loss for labels that are whole numbers (of any type, as in tinyflow), one per row."""
    scores = as_node(logits)

    def lower(x: GraphNode, y: GraphNode) -> GraphNode:
        classes = np.arange(x.shape[-1])
        whole = library.cast(library.unsqueeze(y, axes=(len(y.shape),)), dtype="int64")
        hit = library.equal(whole, classes)
        picked = library.where(hit, library.log_softmax(x), graph_constant(0.0, dtype=x.dtype))
        return library.neg(library.sum(picked, axis=-1))

    return Operation("sparse_softmax_cross_entropy", lower, (scores, as_node(labels)))


def mean_sparse_softmax_cross_entropy_with_logits(logits: Any, labels: Any) -> Node:
    """The mean of `sparse_softmax_cross_entropy_with_logits` over all rows."""
    return reduce_mean(sparse_softmax_cross_entropy_with_logits(logits, labels))


def dropout(x: Any, keep_prob: float) -> Node:
    """Keeps each element with this probability and scales it by the inverse; other elements become 0.

    The mask is drawn anew in every run. It comes from the session's random numbers, so a seed fixes it. The
    shape of x must be known.
    """
    node = as_node(x)
    if node.shape is None or None in node.shape:
        raise GraphError(f"{here()}: dropout needs a known shape, {node.name} is {node.spec}.")
    if not 0 < keep_prob <= 1:
        raise GraphError(f"{here()}: dropout: keep_prob is {keep_prob}; it must be above 0 and at most 1.")
    kept = random_uniform([n for n in node.shape if n is not None]) < keep_prob
    return where(kept, node * (1.0 / keep_prob), 0.0)


# -- images ----------------------------------------------------------------------------------------------


def _window(name: str, given: Sequence[int]) -> tuple[int, int]:
    """(h, w) from [1, h, w, 1] or [h, w]."""
    inner = tuple(given)[1:3] if len(given) == 4 else tuple(given)
    if len(inner) != 2:
        raise GraphError(f"{here()}: {name} must be [1, h, w, 1], got {list(given)}.")
    return int(inner[0]), int(inner[1])


def max_pool(x: Any, ksize: Sequence[int], strides: Sequence[int], padding: str = "VALID") -> Node:
    """Maxima of windows; x: NCHW."""
    return _pool("max_pool2d", x, ksize, strides, padding)


def avg_pool(x: Any, ksize: Sequence[int], strides: Sequence[int], padding: str = "VALID") -> Node:
    """Means of windows; x: NCHW."""
    return _pool("avg_pool2d", x, ksize, strides, padding)


def _pool(op: str, x: Any, ksize: Sequence[int], strides: Sequence[int], padding: str) -> Node:
    if padding != "VALID":
        raise GraphError(f"{here()}: padding {padding!r} of a pool is not supported; write VALID.")
    return operation(op, x, kernel=_window("ksize", ksize), stride=_window("strides", strides))


def flatten_layer(x: Any) -> Node:
    """[n, …] ──▶ [n, all the rest]."""
    return operation("flatten", x)


# -- layers that make their variables --------------------------------------------------------------------


class Layer(Operation):
    """An operation whose variables get their shapes from its input: `shapes(input's shape)`."""

    def __init__(
        self, name: str, lower: Callable[..., GraphNode], inputs: Sequence[Node], shapes: Shapes
    ) -> None:
        self.shapes = shapes
        super().__init__(name, lower, inputs)


def _parameters(name: str, no_bias: bool) -> list[Variable]:
    unknown = Spec(float32, None)
    names = [f"{name}_weight"] if no_bias else [f"{name}_weight", f"{name}_bias"]
    return [Variable(None, name=n, spec=unknown) for n in names]


def linear(x: Any, num_hidden: int, name: str = "linear", no_bias: bool = True) -> Node:
    """x [n, k] · weight [num_hidden, k] (+ bias). `infer_variable_shapes` sets its variables' shapes."""

    def shapes(data: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        weight = (num_hidden, data[1])
        return (weight,) if no_bias else (weight, (num_hidden,))

    return Layer(name, library.dense, (as_node(x), *_parameters(name, no_bias)), shapes)


def conv2d(
    x: Any,
    filter: Any = None,
    strides: Sequence[int] = (1, 1, 1, 1),
    padding: str = "VALID",
    *,
    num_filter: int | None = None,
    ksize: Sequence[int] | None = None,
    name: str = "conv2d",
    no_bias: bool = True,
) -> Node:
    """Convolution of NCHW images with OIHW filters. The filter is given, or it is a variable of its own
    (num_filter, ksize), whose shape `infer_variable_shapes` sets."""
    if padding not in ("VALID", "SAME"):
        raise GraphError(f"{here()}: padding {padding!r} is unknown; write VALID or SAME.")
    stride = _window("strides", strides)

    def lower(*nodes: GraphNode) -> GraphNode:
        window = nodes[1].shape[2:]
        around = same_padding(nodes[0].shape[2:], window, stride) if padding == "SAME" else 0
        return library.conv2d(*nodes, stride=stride, padding=around)

    if filter is not None:
        return Operation(name, lower, (as_node(x), as_node(filter)))
    if num_filter is None or ksize is None:
        raise GraphError(f"{here()}: conv2d takes a filter, or num_filter and ksize.")
    size = _window("ksize", ksize)

    def shapes(data: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        weight = (num_filter, data[1], *size)
        return (weight,) if no_bias else (weight, (num_filter,))

    return Layer(name, lower, (as_node(x), *_parameters(name, no_bias)), shapes)


def same_padding(extents: Sequence[int], window: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """The padding before each axis, then after each axis, so that a result has ceil(extent / stride) elements
    along each axis.

    >>> same_padding((5, 8), (3, 2), (1, 2))
    (1, 0, 1, 0)
    """
    total = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(extents, window, stride, strict=True)]
    return (*(t // 2 for t in total), *(t - t // 2 for t in total))
