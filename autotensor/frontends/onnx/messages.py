"""ONNX's messages as records, read from protobuf's wire format.

    bytes ──▶ ModelProto(graph=GraphProto(node=[NodeProto(op_type="Relu", …), …], …), …)

Fields have the names of onnx.proto, so readers accept these records as well as the messages of the package
onnx. Importing that package takes longer than reading most models. A tensor's bytes are a view of the file's
bytes. Fields that are not in `_LAYOUTS` are skipped, but `SerializeToString` includes them.
Source: protobuf.dev/programming-guides/encoding; onnx/onnx.proto (1.23).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from autotensor.frontends.onnx.errors import Malformed

DEEPEST = 100  # most messages inside one another, as in protobuf
VARINT, DOUBLE, SIZED, FLOAT = 0, 1, 2, 5  # types of fields on the wire
_MASK = (1 << 64) - 1


class AttributeType(IntEnum):
    """The kinds of attributes, with the standard's numbers."""

    UNDEFINED, FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS = range(11)
    SPARSE_TENSOR, SPARSE_TENSORS, TYPE_PROTO, TYPE_PROTOS = range(11, 15)


def kind_name(number: int) -> str:
    """The standard's name of a kind of attributes."""
    return AttributeType(number).name if number in list(AttributeType) else f"of kind {number}"


class Message:
    """A message. A field that is missing in the bytes is empty, as in protobuf."""

    _fields: ClassVar[dict[int, _Field]] = {}
    _data = memoryview(b"")

    if False:  # for type checkers: fields

        def __getattr__(self, name: str) -> Any: ...

    @classmethod
    def read(cls, data: memoryview, depth: int = 0) -> Any:
        """Reads a message. Raises Malformed if the bytes are not such a message."""
        if depth > DEEPEST:
            raise Malformed(f"messages are nested more than {DEEPEST} levels deep.")
        message = cls()
        message._data = data
        found, fields = message.__dict__, cls._fields
        at, end = 0, len(data)
        while at < end:
            key, at = _varint(data, at)
            wire = key & 7
            if wire == SIZED:
                size, at = _varint(data, at)
                value: Any = data[at : at + size]
                at += size
            elif wire == VARINT:
                value, at = _varint(data, at)
            elif wire in (FLOAT, DOUBLE):
                size = 4 if wire == FLOAT else 8
                value = data[at : at + size]
                at += size
            else:
                raise Malformed(f"a field has wire type {wire}.")
            if at > end or key < 8:
                raise Malformed("a field has number 0." if key < 8 else "a field ends behind its message.")
            field = fields.get(key >> 3)
            if field is not None:
                field.enter(found, value, wire, depth)
        return message

    def HasField(self, name: str) -> bool:
        return name in self.__dict__

    def WhichOneof(self, group: str) -> str | None:
        """The last alternative in the bytes. In a message with alternatives, all fields are alternatives."""
        names = [f.name for f in type(self)._fields.values() if f.is_alternative]
        return next((name for name in reversed(self.__dict__) if name in names), None)

    def SerializeToString(self) -> bytes:
        return bytes(self._data)

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (type(self), self.SerializeToString())


def _read(kind: type[Message], data: bytes) -> Any:
    return kind.read(memoryview(data))


class _Field:
    """How one field is read."""

    def __init__(self, text: str, kinds: dict[str, type[Message]]) -> None:
        """text: name:kind, with * for a repeated field, ? for an alternative."""
        self.name, _, kind = text.partition(":")
        self.is_repeated, self.is_alternative = kind.endswith("*"), kind.endswith("?")
        kind = kind.rstrip("*?")
        self.message = kinds.get(kind)
        self.wire, self.one, self.many, empty = _KINDS["message" if self.message else kind]
        self.empty = () if self.is_repeated else self.message() if self.message else empty

    def enter(self, found: dict[str, Any], value: Any, wire: int, depth: int) -> None:
        """Adds a value to the fields of a message."""
        name = self.name
        if wire != self.wire:  # a repeated field has its numbers packed, or one by one
            if wire != SIZED or self.many is None:
                raise Malformed(f"field {name!r} has wire type {wire}.")
            several = self.many(value)
            if self.is_repeated:
                before = found.get(name)
                found[name] = several if before is None else np.concatenate([before, several])
            elif len(several):
                found[name] = several[-1]
        elif self.message is not None:
            if self.is_repeated:
                found.setdefault(name, []).append(self.message.read(value, depth + 1))
            else:
                if name in found:  # this field comes again: both are parts of one message
                    value = memoryview(found.pop(name).SerializeToString() + bytes(value))
                found[name] = self.message.read(value, depth + 1)
        else:
            try:
                made = self.one(value)
            except UnicodeDecodeError as error:
                raise Malformed(f"field {name!r} is not text.") from error
            if not self.is_repeated:
                # removed and added again, because WhichOneof returns the last alternative
                found.pop(name, None)
                found[name] = made
            elif isinstance(found.get(name), np.ndarray):
                found[name] = np.append(found[name], made)
            else:
                found.setdefault(name, []).append(made)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and the position where it ends."""
    try:
        byte = data[at]
        if byte < 128:
            return byte, at + 1
        number = shift = 0
        for place in range(at, at + 10):
            byte = data[place]
            number |= (byte & 127) << shift
            if byte < 128:
                return number & _MASK, place + 1
            shift += 7
    except IndexError:
        raise Malformed("a number ends behind its message.") from None
    raise Malformed("a number has more than ten bytes.")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _varints(data: memoryview) -> Any:
    """Packed numbers: int64."""
    digits = np.frombuffer(data, np.uint8)  # digits of seven bits, the least significant first
    if not digits.size:
        return np.zeros(0, np.int64)
    last = np.flatnonzero(digits < 128)
    first = np.concatenate([[0], last[:-1] + 1]) if last.size else last
    lengths = last - first + 1
    if not last.size or last[-1] != digits.size - 1 or lengths.max() > 10:
        raise Malformed("packed numbers end in the middle of one.")
    places = np.arange(digits.size) - np.repeat(first, lengths)
    shifted = (digits & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.add.reduceat(shifted, first).view(np.int64)


def _packed(kind: str) -> Callable[[memoryview], Any]:
    size = np.dtype(kind).itemsize

    def read(data: memoryview) -> Any:
        if len(data) % size:
            raise Malformed("packed numbers end in the middle of one.")
        return np.frombuffer(data, kind)

    return read


def _number(form: str) -> Callable[[memoryview], Any]:
    unpack = struct.Struct(form).unpack
    return lambda data: unpack(data)[0]


# kind → type on the wire; reads one value; reads packed values; the value of a missing field
_KINDS: dict[str, tuple[int, Callable[[Any], Any], Callable[[memoryview], Any] | None, Any]] = {
    "int": (VARINT, _signed, _varints, 0),
    "uint": (VARINT, int, lambda data: _varints(data).view(np.uint64), 0),
    "float": (FLOAT, _number("<f"), _packed("<f4"), 0.0),
    "double": (DOUBLE, _number("<d"), _packed("<f8"), 0.0),
    "text": (SIZED, lambda data: str(data, "utf-8"), None, ""),
    "bytes": (SIZED, bytes, None, b""),
    "view": (SIZED, lambda data: data, None, b""),
    "message": (SIZED, lambda data: data, None, None),
}


class ModelProto(Message): ...


class GraphProto(Message): ...


class NodeProto(Message): ...


class AttributeProto(Message): ...


class TensorProto(Message): ...


class SparseTensorProto(Message): ...


class ValueInfoProto(Message): ...


class TypeProto(Message): ...


class TensorTypeProto(Message): ...


class TensorShapeProto(Message): ...


class Dimension(Message): ...


class OperatorSetIdProto(Message): ...


class FunctionProto(Message): ...


class StringStringEntryProto(Message): ...


# for each field: number name:kind
_LAYOUTS: dict[type[Message], str] = {
    ModelProto: "1 ir_version:int 8 opset_import:OperatorSetIdProto* 7 graph:GraphProto "
    "25 functions:FunctionProto*",
    OperatorSetIdProto: "1 domain:text 2 version:int",
    GraphProto: "1 node:NodeProto* 2 name:text 5 initializer:TensorProto* "
    "15 sparse_initializer:SparseTensorProto* 11 input:ValueInfoProto* 12 output:ValueInfoProto* "
    "13 value_info:ValueInfoProto*",
    NodeProto: "1 input:text* 2 output:text* 3 name:text 4 op_type:text 7 domain:text 8 overload:text "
    "5 attribute:AttributeProto*",
    AttributeProto: "1 name:text 21 ref_attr_name:text 20 type:int 2 f:float 3 i:int 4 s:bytes "
    "5 t:TensorProto 6 g:GraphProto 14 tp:TypeProto 7 floats:float* 8 ints:int* 9 strings:bytes* "
    "10 tensors:TensorProto* 11 graphs:GraphProto*",
    TensorProto: "1 dims:int* 2 data_type:int 4 float_data:float* 5 int32_data:int* 6 string_data:bytes* "
    "7 int64_data:int* 8 name:text 9 raw_data:view 10 double_data:double* 11 uint64_data:uint* "
    "13 external_data:StringStringEntryProto* 14 data_location:int",
    SparseTensorProto: "1 values:TensorProto 2 indices:TensorProto 3 dims:int*",
    ValueInfoProto: "1 name:text 2 type:TypeProto",
    # of other types, readers only check that the field exists
    TypeProto: "1 tensor_type:TensorTypeProto? 4 sequence_type:view? 5 map_type:view? 9 optional_type:view? "
    "8 sparse_tensor_type:view? 7 opaque_type:view?",
    TensorTypeProto: "1 elem_type:int 2 shape:TensorShapeProto",
    TensorShapeProto: "1 dim:Dimension*",
    Dimension: "1 dim_value:int? 2 dim_param:text?",
    FunctionProto: "1 name:text 4 input:text* 5 output:text* 6 attribute:text* 7 node:NodeProto* "
    "11 attribute_proto:AttributeProto* 9 opset_import:OperatorSetIdProto* 10 domain:text 13 overload:text",
    StringStringEntryProto: "1 key:text 2 value:text",
}


def _laid_out(layouts: dict[type[Message], str]) -> None:
    kinds = {kind.__name__: kind for kind in layouts}
    for kind, layout in layouts.items():
        words = layout.split()
        kind._fields = {int(n): _Field(text, kinds) for n, text in zip(words[::2], words[1::2], strict=True)}
        for field in kind._fields.values():
            setattr(kind, field.name, field.empty)


_laid_out(_LAYOUTS)
