"""Messages and rules that stand for the package onnx are those of the package."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotensor.frontends.onnx import messages
from autotensor.frontends.onnx.errors import Malformed
from autotensor.frontends.onnx.messages import Message, ModelProto
from autotensor.frontends.onnx.operator_rules import TABLE, newest_opset, rules_of
from autotensor.frontends.onnx.tensors import array_of

INSIDE = {
    "TensorTypeProto": onnx.TypeProto.Tensor,
    "Dimension": onnx.TensorShapeProto.Dimension,
}


def test_layouts_are_the_packages() -> None:
    for kind in Message.__subclasses__():
        theirs = INSIDE.get(kind.__name__) or getattr(onnx, kind.__name__)
        for number, field in kind._fields.items():
            known = theirs.DESCRIPTOR.fields_by_number[number]
            assert (known.name, known.is_repeated) == (field.name, field.is_repeated)
            if (
                not field.is_repeated
                and field.message is None
                and field.one is not messages._KINDS["view"][1]
            ):
                assert known.default_value == field.empty or field.name == "data_location"


def same(mine: Any, theirs: Any) -> None:
    for field in type(mine)._fields.values():
        a, b = getattr(mine, field.name), getattr(theirs, field.name)
        if field.is_repeated and field.message:
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                same(x, y)
        elif field.is_repeated:
            np.testing.assert_array_equal(list(a), list(b))
        elif field.message:
            assert mine.HasField(field.name) == theirs.HasField(field.name)
            same(a, b)
        elif isinstance(b, bytes | str | int | float):
            assert (bytes(a) if isinstance(a, memoryview) else a) == b


def any_model(seed: int) -> onnx.ModelProto:
    rng = random.Random(seed)
    numbers = [
        rng.choice([0, 1, -1, 127, 128, 1 << 40, -(1 << 63), (1 << 63) - 1]) for _ in range(rng.randrange(5))
    ]
    body = helper.make_graph([helper.make_node("Relu", ["a"], ["b"])], "inner", [], [])
    table = numpy_helper.from_array(np.arange(rng.randrange(4), dtype=np.int64), "t")
    node = helper.make_node(
        "Op", ["x", ""], ["y"], name="名", domain="d", ints=[1, *numbers], f=1.5, g=body, s="s",
        fs=[0.5, -2.0], ss=["a", "b"], t=table,
    )  # fmt: skip
    tensors = [
        TensorProto(name="raw", dims=[2, 3], data_type=1, raw_data=bytes(range(24))),
        TensorProto(name="ints", dims=[len(numbers)], data_type=7, int64_data=numbers),
        TensorProto(name="small", dims=[3], data_type=3, int32_data=[-1, 2, 127]),
        TensorProto(name="halves", dims=[2], data_type=10, int32_data=[0x3C00, 0xC000]),
        TensorProto(name="doubles", dims=[1], data_type=11, double_data=[rng.random()]),
        TensorProto(name="large", dims=[2], data_type=13, uint64_data=[(1 << 64) - 1, 5]),
    ]
    shape = ["n", None, 3, 0][: rng.randrange(5)]
    inputs = [
        helper.make_tensor_value_info("x", 1, shape),
        helper.make_tensor_sequence_value_info("s", 1, None),
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 10, None)], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("d", 1)])
    made.functions.append(
        helper.make_function("d", "Op", ["x"], ["y"], [], [helper.make_opsetid("", 18)], ["a"])
    )
    return made


@pytest.mark.parametrize("seed", range(12))
def test_a_model_is_read_as_the_package_reads_it(seed: int) -> None:
    proto = any_model(seed)
    mine = ModelProto.read(memoryview(proto.SerializeToString()))
    same(mine, proto)
    assert mine.SerializeToString() == proto.SerializeToString()
    same(pickle.loads(pickle.dumps(mine)), proto)
    for t, known in zip(mine.graph.initializer, proto.graph.initializer, strict=True):
        for tensor in (t, known):  # of either reader
            array = array_of(tensor, None)
            np.testing.assert_array_equal(array, numpy_helper.to_array(known))
            assert array.dtype == numpy_helper.to_array(known).dtype
            assert not array.flags.writeable
    for v, known in zip(mine.graph.input, proto.graph.input, strict=True):
        assert v.type.WhichOneof("value") == known.type.WhichOneof("value")
        for d, n in zip(v.type.tensor_type.shape.dim, known.type.tensor_type.shape.dim, strict=True):
            assert d.WhichOneof("value") == n.WhichOneof("value")


def test_parts_of_a_message_are_one() -> None:
    first = onnx.ModelProto(graph=onnx.GraphProto(name="a"))
    second = onnx.ModelProto(graph=onnx.GraphProto(node=[helper.make_node("Relu", ["x"], ["y"])]))
    data = first.SerializeToString() + second.SerializeToString()
    mine = ModelProto.read(memoryview(data))
    assert (mine.graph.name, [n.op_type for n in mine.graph.node]) == ("a", ["Relu"])


@pytest.mark.parametrize("seed", range(200))
def test_damaged_bytes_are_refused_or_read(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(any_model(seed % 7).SerializeToString())
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    with contextlib.suppress(Malformed):
        ModelProto.read(memoryview(bytes(data[: rng.randrange(len(data)) + 1])))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x3a\x05abc", "a field ends behind its message"),
        (b"\x0f", "wire type 7"),
        (b"\x00\x00", "a field has number 0"),
        (b"\xff" * 11, "more than ten bytes"),
        (b"\x08", "a number ends behind its message"),
        (b"\x3a\x04\x12\x02\xff\xfe", "field 'name' is not text"),
        (b"\x3d\x00\x00\x00\x00", "field 'graph' has wire type 5"),
        (b"\x3a\x07\x2a\x05\x22\x03abc", "packed numbers end in the middle of one"),
        (b"\x3a\x05\x2a\x03\x3a\x01\x80", "packed numbers end in the middle of one"),
    ],
)
def test_what_is_no_message_is_named(data: bytes, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        ModelProto.read(memoryview(data))


def test_messages_are_nested_so_deep_at_most() -> None:
    data = b""
    for _ in range(60):
        for key in (0x32, 0x2A, 0x0A):  # of a node's attribute's graph: g, attribute, node
            size = len(data)
            data = bytes([key, size & 127 | 128, size >> 7]) + data
    with pytest.raises(Malformed, match="nested more than 100 levels"):
        messages.GraphProto.read(memoryview(data))


# -- rules: --update-golden writes the table -----------------------------------------------------------------

VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


def table() -> dict[str, Any]:
    types: dict[tuple[str, ...], int] = {}
    domains: dict[str, Any] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        versions = domains.setdefault(schema.domain, {}).setdefault(schema.name, {})
        versions[str(schema.since_version)] = rules(schema, types)
    in_order = {
        domain: {op: dict(sorted(v.items(), key=lambda kv: int(kv[0]))) for op, v in sorted(ops.items())}
        for domain, ops in sorted(domains.items())
    }
    return {"newest": onnx.defs.onnx_opset_version(), "types": [list(t) for t in types], "domains": in_order}


def rules(schema: onnx.defs.OpSchema, types: dict[tuple[str, ...], int]) -> list[Any]:
    operands = list(schema.inputs)
    names = [i.type_str for i in operands]
    repeats = bool(operands) and operands[-1].option == VARIADIC
    if repeats and not operands[-1].is_homogeneous:
        names, repeats = names[:-1], False
    allowed = [types.setdefault(tuple(sorted(i.types)), len(types)) for i in operands]
    kinds = {name: int(a.type.value) for name, a in sorted(schema.attributes.items())}
    required = [name for name, a in sorted(schema.attributes.items()) if a.required]
    defined = schema.has_function or schema.has_context_dependent_function
    counts = (schema.min_input, schema.max_input, schema.max_output)
    return [kinds, required, *counts, names, allowed, repeats, defined]


def test_the_table_is_the_packages(request: pytest.FixtureRequest) -> None:
    written = json.dumps(table(), separators=(",", ":"))
    written = written.replace('},"', '},\n"') + "\n"  # a line for each operator
    if request.config.getoption("--update-golden"):
        TABLE.write_text(written)
    found = json.loads(TABLE.read_text())
    if onnx.defs.onnx_opset_version() == found["newest"]:
        assert TABLE.read_text() == written


def test_rules_of_every_opset() -> None:
    names = {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
    for domain, name in sorted(names):
        for opset in range(1, newest_opset() + 1):
            try:
                schema = onnx.defs.get_schema(name, opset, domain)
            except onnx.defs.SchemaError:
                assert rules_of(name, opset, domain) is None
                continue
            known = rules_of(name, opset, domain)
            assert known is not None
            assert known.since == schema.since_version, (name, opset)
            assert set(known.attributes) == set(schema.attributes)
            assert set(known.required) == {a.name for a in schema.attributes.values() if a.required}
            assert (known.fewest_inputs, known.most_inputs) == (schema.min_input, schema.max_input)
            assert known.most_outputs == schema.max_output
            assert known.allowed == tuple(frozenset(i.types) for i in schema.inputs)
