"""Operators that ONNX itself defines by simpler operators: SoftmaxCrossEntropyLoss, AffineGrid, …

The definition comes from the standard's library, for the model's opset and the operands' types. For this, the
package onnx is imported.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from autotensor.base.errors import InputError
from autotensor.frontends.onnx.element_types import onnx_number
from autotensor.frontends.onnx.messages import FunctionProto
from autotensor.frontends.onnx.node_call import Call
from autotensor.frontends.onnx.operator_rules import rules_of
from autotensor.graph.ir import GraphNode

if TYPE_CHECKING:
    import onnx


def definition(call: Call, domain: str, opset: int) -> tuple[FunctionProto, dict[str, Any]] | None:
    """The function that defines a node, and its attributes with the operator's defaults; or None.

    Raises InputError if the node has a definition but the package onnx is not installed.
    """
    rules = rules_of(call.op, opset, domain)
    if rules is None or not rules.is_defined:
        return None
    onnx = _onnx(call)
    schema = onnx.defs.get_schema(call.op, opset, domain)
    attrs = {**_defaults(call.op, opset, domain), **call.attrs}
    if schema.has_function:
        fixed = _fixed(call.op, opset, domain)
        if fixed is not None:
            return fixed, attrs
    if not schema.has_context_dependent_function:
        return None
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return None
    types = [_type(v).SerializeToString() for v in call.inputs]
    while types and call.inputs[len(types) - 1] is None:
        types.pop()
    found = _parsed(
        schema.get_context_dependent_function_with_opset_version(
            versions[-1], _resolved(call).SerializeToString(), types
        )
    )
    return None if found is None else (found, attrs)


def _onnx(call: Call) -> Any:
    try:
        import onnx
    except ImportError as error:
        raise InputError(
            f"{call.where}: its definition is in the package onnx, which is not installed.",
            fix="pip install 'autotensor[onnx]'",
        ) from error
    return onnx


def _resolved(call: Call) -> onnx.NodeProto:
    """The node, with values in place of the attributes that it takes from the function around it."""
    import onnx

    node: onnx.NodeProto = onnx.NodeProto.FromString(call.node.SerializeToString())
    attributes = list(node.attribute)
    del node.attribute[:]
    for a in attributes:
        if not a.ref_attr_name:
            node.attribute.append(a)
        elif a.name in call.attrs:
            node.attribute.append(onnx.helper.make_attribute(a.name, call.attrs[a.name], attr_type=a.type))
    return node


@functools.lru_cache(maxsize=256)
def _defaults(op: str, opset: int, domain: str) -> dict[str, Any]:
    """The attributes with a default in the schema. A function's body uses these attributes without giving the
    defaults."""
    import onnx

    found: dict[str, Any] = {}
    for name, a in onnx.defs.get_schema(op, opset, domain).attributes.items():
        if a.default_value.type:
            value = onnx.helper.get_attribute_value(a.default_value)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


@functools.lru_cache(maxsize=256)
def _fixed(op: str, opset: int, domain: str) -> FunctionProto | None:
    import onnx

    schema: Any = onnx.defs.get_schema(op, opset, domain)
    versions = [v for v in schema.function_opset_versions if v <= opset]
    return _parsed(schema.get_function_with_opset_version(versions[-1])) if versions else None


def _parsed(data: Any) -> FunctionProto | None:
    function: FunctionProto = FunctionProto.read(memoryview(data or b""))
    return function if function.node else None


def _type(value: Any) -> onnx.TypeProto:
    import onnx

    if isinstance(value, GraphNode):
        return onnx.helper.make_tensor_type_proto(onnx_number(value.dtype), value.shape)
    return onnx.TypeProto()
