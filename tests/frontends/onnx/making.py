"""Small ONNX models, written in a line or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Inputs = Mapping[str, Sequence[int | str | None]]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Inputs,
    outputs: Sequence[str] = ("y",),
    weights: Mapping[str, Any] | None = None,
    types: Mapping[str, int] | None = None,
    opset: int = 18,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model of these nodes; inputs are float32 unless `types` says otherwise."""
    kinds = types or {}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=9)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), name=attrs.pop("name", f"the_{op}"), **attrs)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
