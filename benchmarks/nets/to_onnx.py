"""Converts a graph of autotensor to an ONNX model, so that onnxruntime runs the same network with the same
weights.

It supports the operators of the built-in models; any other operator is an error. It needs the `onnx` package.

An operator without an equal ONNX operator becomes several operators, in the form that exporters write and
runtimes can fuse: attention is two MatMuls with a Softmax between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import sqrt
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from autotensor.graph.ir import Apply, Array, Constant, Graph, Input

OPSET = 20  # the first with Gelu

# operators that become one ONNX operator with the same inputs and without attributes
SAME = {
    **{"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "exp": "Exp", "sqrt": "Sqrt"},
    **{"sin": "Sin", "cos": "Cos", "less": "Less", "where": "Where"},
    **{"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div"},
    **{"maximum": "Max", "minimum": "Min", "global_avg_pool2d": "GlobalAveragePool"},
}
TYPES = {
    "float32": TensorProto.FLOAT,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
}


def to_onnx(graph: Graph, opset: int = OPSET) -> Any:
    """An onnx.ModelProto with the graph's weights inside.

    Raises ValueError for an operator, or attributes of one, that cannot be written.
    """
    writer = _Writer()
    for node in graph.nodes:
        if isinstance(node, Input):
            writer.names[node] = node.name
        elif isinstance(node, Constant):
            writer.names[node] = writer.array(node.array)
        elif isinstance(node, Apply):
            writer.names[node] = writer.apply(node, [writer.names[x] for x in node.inputs])
    inputs = [_value(writer.names[i], i) for i in graph.inputs]
    outputs = [_value(writer.names[o], o) for o in graph.outputs]
    made = helper.make_graph(writer.nodes, graph.name, inputs, outputs, writer.arrays)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _value(name: str, node: Any) -> Any:
    return helper.make_tensor_value_info(name, TYPES[str(node.dtype)], list(node.shape))


class _Writer:
    """Collects the nodes and weights."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.nodes: list[Any] = []
        self.arrays: list[Any] = []

    def array(self, value: Array) -> str:
        """Adds a weight and returns its name."""
        name = f"w{len(self.arrays)}"
        self.arrays.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def ints(self, values: Iterable[int]) -> str:
        return self.array(np.array(list(values), np.int64))

    def node(self, op: str, inputs: list[str], **attrs: Any) -> str:
        """Adds a node and returns the name of its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name

    def apply(self, node: Apply, inputs: list[str]) -> str:
        """Adds an operator of autotensor and returns the name of its result."""
        if node.op in SAME:
            return self.node(SAME[str(node.op)], inputs)
        write = WRITERS.get(str(node.op))
        if write is None:
            raise ValueError(f"to_onnx does not write operator {node.op_name!r}")
        return write(self, node, inputs)


Write = Callable[[_Writer, Apply, list[str]], str]


def _each(value: Any, rank: int) -> list[int]:
    return [int(v) for v in value] if isinstance(value, (tuple, list)) else [int(value)] * rank


def _pads(value: Any, rank: int) -> list[int]:
    found = _each(value, rank)
    return found if len(found) == 2 * rank else [*found, *found]


def _channels_first(node: Apply) -> int:
    """The number of spatial axes. Raises ValueError for any layout but ONNX's."""
    layout = str(node.attr("layout"))
    if layout[1] != "C":
        raise ValueError(f"to_onnx writes channels first, not {node.op_name} in {layout}")
    return len(layout) - 2


def _conv(w: _Writer, node: Apply, inputs: list[str]) -> str:
    rank = _channels_first(node)
    strides, pads = _each(node.attr("stride"), rank), _pads(node.attr("padding"), rank)
    group = int(node.attr("groups"))
    if node.op == "conv2d_transpose":
        extra = _each(node.attr("output_padding"), rank)
        return w.node("ConvTranspose", inputs, strides=strides, pads=pads, group=group, output_padding=extra)
    dilations = _each(node.attr("dilation"), rank)
    return w.node("Conv", inputs, strides=strides, pads=pads, dilations=dilations, group=group)


def _pool(w: _Writer, node: Apply, inputs: list[str]) -> str:
    rank = _channels_first(node)
    kernel = _each(node.attr("kernel"), rank)
    strides = kernel if node.attr("stride") is None else _each(node.attr("stride"), rank)
    pads, rounding = _pads(node.attr("padding"), rank), int(node.attr("ceil_mode"))
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": rounding}
    if node.op == "max_pool2d":
        return w.node("MaxPool", inputs, **attrs)
    return w.node("AveragePool", inputs, count_include_pad=int(node.attr("count_include_pad")), **attrs)


def _layer_norm(w: _Writer, node: Apply, inputs: list[str]) -> str:
    return w.node("LayerNormalization", inputs, axis=int(node.attr("axis")), epsilon=float(node.attr("eps")))


def _batch_norm(w: _Writer, node: Apply, inputs: list[str]) -> str:
    if node.attr("axis") != 1:
        raise ValueError("to_onnx writes batch_norm over axis 1 only")
    return w.node("BatchNormalization", inputs, epsilon=float(node.attr("eps")))


def _transpose(w: _Writer, node: Apply, inputs: list[str]) -> str:
    axes = node.attr("axes") or tuple(reversed(range(len(node.shape))))
    return w.node("Transpose", inputs, perm=[int(a) % len(node.shape) for a in axes])


def _slice(w: _Writer, node: Apply, inputs: list[str]) -> str:
    begin, end = node.attr("begin"), node.attr("end")
    if None in (*begin, *end) or node.attr("stride"):
        raise ValueError("to_onnx writes slices with both ends and without strides only")
    axes = node.attr("axes") or range(len(begin))
    return w.node("Slice", [*inputs, w.ints(begin), w.ints(end), w.ints(axes)])


def _reduction(w: _Writer, node: Apply, inputs: list[str]) -> str:
    over, rank = node.attr("axis"), len(node.inputs[0].shape)
    axes = range(rank) if over is None else over if isinstance(over, tuple) else (over,)
    name = {"mean": "ReduceMean", "sum": "ReduceSum"}[str(node.op)]
    return w.node(name, [*inputs, w.ints(axes)], keepdims=int(node.attr("keepdims")))


def _matmul(w: _Writer, node: Apply, inputs: list[str]) -> str:
    turned = []
    for name, x, turn in zip(inputs, node.inputs, ("transpose_a", "transpose_b"), strict=True):
        rank = len(x.shape)
        order = [*range(rank - 2), rank - 1, rank - 2]
        turned.append(w.node("Transpose", [name], perm=order) if node.attr(turn) else name)
    return w.node("MatMul", turned)


def _attention(w: _Writer, node: Apply, inputs: list[str]) -> str:
    """Attention; all tensors are [batch, heads, tokens, depth]."""
    if node.attr("layout") != "BHND":
        raise ValueError("to_onnx writes attention in layout BHND only")
    q, k, v, *mask = inputs
    depth, queries, keys = node.inputs[0].shape[3], node.inputs[0].shape[2], node.inputs[1].shape[2]
    scale = 1 / sqrt(depth) if node.attr("scale") is None else float(node.attr("scale"))
    scores = w.node("MatMul", [q, w.node("Transpose", [k], perm=[0, 1, 3, 2])])
    scores = w.node("Mul", [scores, w.array(np.array(scale, np.float32))])
    low = np.float32(-1e30)
    if mask:
        hidden = w.array(np.array(low))
        masked = node.inputs[3].dtype.is_bool
        scores = w.node("Where", [*mask, scores, hidden]) if masked else w.node("Add", [scores, *mask])
    if node.attr("causal"):
        ahead = np.where(np.tri(queries, keys, dtype=bool), np.float32(0), low)
        scores = w.node("Add", [scores, w.array(ahead)])
    return w.node("MatMul", [w.node("Softmax", [scores], axis=-1), v])


def _cached_attention(w: _Writer, node: Apply, inputs: list[str]) -> str:
    """The scores of old and new words are joined, so the cache is not copied."""
    q, k, v, keys, values, position = inputs
    rows, depth = node.inputs[0].shape[2:]
    tokens, capacity = node.inputs[1].shape[2], node.inputs[3].shape[2]
    scale = 1 / sqrt(depth) if node.attr("scale") is None else float(node.attr("scale"))
    hidden = w.array(np.array(-1e30, np.float32))
    q = w.node("Mul", [q, w.array(np.array(scale, np.float32))])
    filled = w.node("Less", [w.array(np.arange(capacity)), position])

    def scores(seen: str, visible: str) -> str:
        product = w.node("MatMul", [q, w.node("Transpose", [seen], perm=[0, 1, 3, 2])])
        return w.node("Where", [visible, product, hidden])

    past = w.array(np.tile(np.tri(tokens, dtype=bool), (rows // tokens, 1)))
    joined = w.node("Concat", [scores(keys, filled), scores(k, past)], axis=3)
    shares = w.node("Softmax", [joined], axis=3)
    ends = ((0, capacity), (capacity, capacity + tokens))
    old, own = (w.node("Slice", [shares, w.ints([a]), w.ints([b]), w.ints([3])]) for a, b in ends)
    column = w.node("Reshape", [filled, w.ints([capacity, 1])])
    values = w.node("Where", [column, values, w.array(np.array(0, np.float32))])
    return w.node("Add", [w.node("MatMul", [old, values]), w.node("MatMul", [own, v])])


WRITERS: dict[str, Write] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv2d_transpose"), _conv),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), _pool),
    **dict.fromkeys(("matmul", "batch_matmul"), _matmul),
    **dict.fromkeys(
        ("reshape", "squeeze", "unsqueeze"),
        lambda w, node, inputs: w.node("Reshape", [*inputs, w.ints(node.shape)]),
    ),
    "attention": _attention,
    "cached_attention": _cached_attention,
    "batch_norm": _batch_norm,
    "concat": lambda w, node, inputs: w.node("Concat", inputs, axis=int(node.attr("axis"))),
    "cast": lambda w, node, inputs: w.node("Cast", inputs, to=TYPES[str(node.dtype)]),
    "dense": lambda w, node, inputs: w.node("Gemm", inputs, transB=1),
    "flatten": lambda w, node, inputs: w.node("Flatten", inputs, axis=int(node.attr("start"))),
    "gelu": lambda w, node, inputs: w.node("Gelu", inputs, approximate=str(node.attr("approximate"))),
    "layer_norm": _layer_norm,
    **dict.fromkeys(("mean", "sum"), _reduction),
    "relu6": lambda w, node, inputs: w.node(
        "Clip", [*inputs, *(w.array(np.array(v, np.float32)) for v in (0, 6))]
    ),
    "silu": lambda w, node, inputs: w.node("Mul", [*inputs, w.node("Sigmoid", inputs)]),
    "slice": _slice,
    "softmax": lambda w, node, inputs: w.node("Softmax", inputs, axis=int(node.attr("axis"))),
    "take": lambda w, node, inputs: w.node("Gather", inputs, axis=int(node.attr("axis"))),
    "transpose": _transpose,
}
