"""Operators that ONNX itself defines by simpler ones: LayerNormalization, SoftmaxCrossEntropyLoss, …

The definition is taken as the standard's library gives it, for the model's opset and the operands' types.
"""

from __future__ import annotations

import functools
from typing import Any

import onnx

from autotensor.frontends.onnx.call import Call
from autotensor.frontends.onnx.types import onnx_number
from autotensor.graph.ir import GraphNode


def definition(call: Call, domain: str, opset: int) -> onnx.FunctionProto | None:
    """The function that defines a node; None where there is none."""
    try:
        schema = onnx.defs.get_schema(call.op, opset, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        fixed = _fixed(call.op, opset, domain)
        if fixed is not None:
            return fixed
    if not schema.has_context_dependent_function:
        return None
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return None
    types = [_type(v).SerializeToString() for v in call.inputs]
    while types and call.inputs[len(types) - 1] is None:
        types.pop()
    data = schema.get_context_dependent_function_with_opset_version(
        versions[-1], call.node.SerializeToString(), types
    )
    return _parsed(data)


@functools.lru_cache(maxsize=256)
def _fixed(op: str, opset: int, domain: str) -> onnx.FunctionProto | None:
    schema = onnx.defs.get_schema(op, opset, domain)
    versions = [v for v in schema.function_opset_versions if v <= opset]
    return _parsed(schema.get_function_with_opset_version(versions[-1])) if versions else None


def _parsed(data: Any) -> onnx.FunctionProto | None:
    if not data:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(data)
    return function if function.node else None


def _type(value: Any) -> onnx.TypeProto:
    if isinstance(value, GraphNode):
        return onnx.helper.make_tensor_type_proto(onnx_number(value.dtype), value.shape)
    return onnx.TypeProto()
