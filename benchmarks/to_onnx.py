"""A graph of ours as an ONNX model, so that onnxruntime runs the same network with the same weights.

Only what the built-in models use; anything else is an error. Needs the `onnx` package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from autotensor.graph.ir import Apply, Constant, Graph, Input


def to_onnx(graph: Graph, opset: int = 17) -> Any:
    """An onnx.ModelProto with the graph's weights inside."""
    names: dict[Any, str] = {}
    nodes, weights = [], []
    for n, node in enumerate(graph.nodes):
        if isinstance(node, Input):
            names[node] = node.name
        elif isinstance(node, Constant):
            names[node] = f"w{n}"
            weights.append(numpy_helper.from_array(np.ascontiguousarray(node.array), names[node]))
        elif isinstance(node, Apply):
            names[node] = f"v{n}"
            nodes.append(_node(node, [names[x] for x in node.inputs], names[node]))
    inputs = [
        helper.make_tensor_value_info(names[i], TensorProto.FLOAT, list(i.shape)) for i in graph.inputs
    ]
    outputs = [
        helper.make_tensor_value_info(names[o], TensorProto.FLOAT, list(o.shape)) for o in graph.outputs
    ]
    made = helper.make_graph(nodes, graph.name, inputs, outputs, weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _pair(value: Any) -> list[int]:
    return [int(v) for v in value] if isinstance(value, (tuple, list)) else [int(value)] * 2


def _pads(value: Any) -> list[int]:
    found = _pair(value)
    return found if len(found) == 4 else [*found, *found]


def _node(node: Apply, inputs: list[str], output: str) -> Any:
    attrs = dict(node.attrs)
    match node.op:
        case "conv2d":
            return helper.make_node(
                "Conv",
                inputs,
                [output],
                strides=_pair(attrs.get("stride", 1)),
                pads=_pads(attrs.get("padding", 0)),
                dilations=_pair(attrs.get("dilation", 1)),
                group=int(attrs.get("groups", 1)),
            )
        case "batch_norm":
            return helper.make_node(
                "BatchNormalization", inputs, [output], epsilon=float(attrs.get("eps", 1e-5))
            )
        case "relu":
            return helper.make_node("Relu", inputs, [output])
        case "add":
            return helper.make_node("Add", inputs, [output])
        case "max_pool2d":
            kernel = _pair(attrs["kernel"])
            strides = _pair(attrs["stride"]) if attrs.get("stride") is not None else kernel
            return helper.make_node(
                "MaxPool",
                inputs,
                [output],
                kernel_shape=kernel,
                strides=strides,
                pads=_pads(attrs.get("padding", 0)),
            )
        case "global_avg_pool2d":
            return helper.make_node("GlobalAveragePool", inputs, [output])
        case "flatten":
            return helper.make_node("Flatten", inputs, [output], axis=int(attrs.get("start", 1)))
        case "dense":
            return helper.make_node("Gemm", inputs, [output], transB=1)
        case _:
            raise ValueError(f"to_onnx does not write operator {node.op_name!r}")
