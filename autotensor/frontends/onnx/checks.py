"""The standard's rules for the nodes of each operator: names of attributes, number of operands, equal types.

Converters rely on these rules. A node that breaks one is refused, because a guess could give wrong numbers.
"""

from __future__ import annotations

from autotensor.frontends.onnx.element_types import onnx_name
from autotensor.frontends.onnx.messages import kind_name
from autotensor.frontends.onnx.node_call import Call
from autotensor.frontends.onnx.operator_rules import rules_of
from autotensor.graph.ir import GraphNode


def check_call(call: Call, domain: str) -> None:
    """Raises Malformed for a node that the standard does not allow."""
    rules = rules_of(call.op, call.opset, domain)
    if rules is None:
        return
    if unknown := [a.name for a in call.node.attribute if a.name not in rules.attributes]:
        raise call.malformed(f"it has no attribute {unknown[0]!r} in this opset.")
    for a in call.node.attribute:
        # a reference to another attribute need not give its kind
        if not a.ref_attr_name and a.type != rules.attributes[a.name]:
            given, wanted = (kind_name(k) for k in (a.type, rules.attributes[a.name]))
            raise call.malformed(f"its attribute {a.name!r} is {given}; the standard says {wanted}.")
    if missing := [name for name in rules.required if name not in call.attrs]:
        raise call.malformed(f"attribute {missing[0]!r} is missing.")
    if len(call.inputs) < rules.fewest_inputs:
        raise call.malformed(f"operand {len(call.inputs)} is missing.")
    if len(call.inputs) > rules.most_inputs or call.outputs > rules.most_outputs:
        raise call.malformed(
            f"it has {len(call.inputs)} operands and {call.outputs} results; "
            f"at most {rules.most_inputs} and {rules.most_outputs} are allowed."
        )
    seen: dict[str, tuple[int, GraphNode]] = {}
    for n, value in enumerate(call.inputs):
        name = rules.types[n] if n < len(rules.types) else rules.types[-1] if rules.repeats else ""
        if not name or not isinstance(value, GraphNode):
            continue
        first, other = seen.setdefault(name, (n, value))
        if other.dtype != value.dtype:
            raise call.malformed(
                f"operands {first} and {n} are {other.dtype} and {value.dtype}; they must be of one type."
            )


def check_types(call: Call, domain: str) -> None:
    """Raises Malformed for an operand whose type the operator does not accept."""
    rules = rules_of(call.op, call.opset, domain)
    if rules is None:
        return
    for n, (value, kinds) in enumerate(zip(call.inputs, rules.allowed, strict=False)):
        if isinstance(value, GraphNode) and onnx_name(value.dtype) not in kinds:
            known = ", ".join(sorted(k[7:-1] for k in kinds if k.startswith("tensor(")))
            raise call.malformed(f"operand {n} is {value.dtype}; in this opset it may be {known}.")
