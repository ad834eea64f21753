"""ONNX files: parsed; tensors in other files are read only if that is safe.

    load("model.onnx") ──▶ Loaded(proto, arrays of initializers on demand)

Nothing in a file is executed. A file with further tensors must be in the model's own directory, and complete;
sizes are checked before memory is allocated.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import numpy_helper

from autotensor.base.errors import InputError
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.element_types import Array, checked_array, type_name
from autotensor.frontends.onnx.errors import Malformed

MAX_BYTES = 1 << 31  # of one tensor, and of one file: protobuf's limit
MOST_AXES = 64  # of a tensor; NumPy's own limit
_STANDARD = ("", "ai.onnx")
FOUR_BITS = {"INT4": np.int8, "UINT4": np.uint8}  # two in a byte, and the type that holds one in a byte


@dataclass(frozen=True)
class Loaded:
    """A parsed model and the directory of its files."""

    proto: onnx.ModelProto
    directory: Path | None = None
    name: str = "model"

    @property
    def opsets(self) -> dict[str, int]:
        """Version by domain; the standard domain is ""."""
        return {plain_domain(i.domain): int(i.version) for i in self.proto.opset_import}

    def array(self, tensor: onnx.TensorProto, in_bytes: bool = False) -> Array:
        """The values of a tensor of this model. Raises Malformed or Unsupported naming it.

        in_bytes: whole numbers of 4 bits are read, too, as bytes.
        """
        where = f"tensor {tensor.name or '(unnamed)'!r}"
        values = _array(tensor, self.directory, where)
        if in_bytes and (kind := type_name(tensor.data_type)) in FOUR_BITS:
            return values.astype(FOUR_BITS[kind])
        return checked_array(values, where)


def plain_domain(domain: str) -> str:
    return "" if domain in _STANDARD else domain


def load(source: str | Path | bytes | onnx.ModelProto | Loaded) -> Loaded:
    """A model from a file, its bytes, or a ModelProto; a loaded one is returned unchanged.

    Raises InputError if it cannot be read, Malformed if it is not a model, Unsupported for unknown opsets.
    """
    if isinstance(source, Loaded):
        return source
    if isinstance(source, onnx.ModelProto):
        return _checked(Loaded(source, None, _name(source, "model")))
    if isinstance(source, (bytes, bytearray, memoryview)):
        proto = _parsed(bytes(source), "the given bytes")
        return _checked(Loaded(proto, None, _name(proto, "model")))
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(
            f"a model is a path, bytes or an onnx.ModelProto; this is a {type(source).__name__}.",
            fix="onnx.helper.make_model makes one of a graph.",
        )
    path = Path(source)
    if not path.is_file():
        raise InputError(f"there is no model file {str(path)!r}.")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"{path} has {path.stat().st_size} bytes; a model file has at most {MAX_BYTES}.",
            fix="Keep its tensors in files next to it (external data).",
        )
    return _checked(Loaded(_parsed(path.read_bytes(), str(path)), path.resolve().parent, path.stem))


def _name(proto: onnx.ModelProto, default: str) -> str:
    kept = "".join(c if c.isalnum() or c in "_-" else "_" for c in proto.graph.name)
    return kept[:60] or default


def _parsed(data: bytes, where: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise Malformed(f"{where}: this is not an ONNX model ({error}).") from error
    if (field := _not_text(proto)) is not None:
        raise Malformed(f"{where}: this is not an ONNX model (a field {field!r} is not text).")
    return proto


def _not_text(root: Message) -> str | None:
    """The name of a text field that is not UTF-8, which protobuf returns as bytes; None if there is none."""
    stack = [root]
    while stack:
        for field, value in stack.pop().ListFields():
            if field.type == FieldDescriptor.TYPE_STRING:
                if isinstance(value, bytes) or (
                    not isinstance(value, str) and any(isinstance(v, bytes) for v in value)
                ):
                    return str(field.name)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                stack += [value] if isinstance(value, Message) else value
    return None


def _checked(model: Loaded) -> Loaded:
    if not model.proto.HasField("graph"):
        raise Malformed(f"model {model.name!r} holds no graph.", fix="Is the file an ONNX model?")
    graph = model.proto.graph
    if not graph.output:
        raise Malformed(f"model {model.name!r} has no outputs.")
    if twice := [n for n, times in Counter(v.name for v in graph.input).items() if times > 1]:
        raise Malformed(f"model {model.name!r} has several inputs that are called {twice[0]!r}.")
    if not model.proto.opset_import:
        raise Malformed(f"model {model.name!r} does not say which opset it uses.")
    version = model.opsets.get("")
    newest = onnx.defs.onnx_opset_version()
    if version is not None and not 1 <= version <= newest:
        raise Unsupported(
            f"model {model.name!r} uses opset {version}; the installed package onnx reads 1 to {newest}.",
            fix="Update onnx, or change the model's opset with onnx.version_converter.",
        )
    return model


# -- tensors ---------------------------------------------------------------------------------------------


def _array(tensor: onnx.TensorProto, directory: Path | None, where: str) -> Array:
    dims = [int(d) for d in tensor.dims]
    if len(dims) > MOST_AXES:
        raise Malformed(f"{where} has {len(dims)} axes; at most {MOST_AXES} are supported.")
    if any(d < 0 for d in dims):
        raise Malformed(f"{where} has the shape {dims}.")
    if type_name(tensor.data_type) == "STRING":
        raise Unsupported(f"{where} holds strings, which are not supported.")
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(
            f"{where} has element type {type_name(tensor.data_type)}, which does not exist."
        ) from error
    if math.prod(dims) * dtype.itemsize > MAX_BYTES:
        raise Malformed(f"{where} of shape {dims} is larger than {MAX_BYTES} bytes.")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, dims, dtype, directory, where)
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError) as error:
        raise Malformed(f"{where} of shape {dims} cannot be read: {error}.") from error


def _external(
    tensor: onnx.TensorProto, dims: Sequence[int], dtype: np.dtype[Any], directory: Path | None, where: str
) -> Array:
    entries = {e.key: e.value for e in tensor.external_data}
    path = _beside(entries.get("location", ""), directory, where)
    is_packed = type_name(tensor.data_type) in FOUR_BITS
    wanted = (math.prod(dims) + 1) // 2 if is_packed else math.prod(dims) * dtype.itemsize
    offset = _number(entries.get("offset", "0"), where)
    length = _number(entries["length"], where) if "length" in entries else wanted
    size = path.stat().st_size
    if length != wanted or offset + length > size:
        raise Malformed(
            f"{where} of shape {list(dims)} needs {wanted} bytes; the model points at {length} bytes from "
            f"{offset} in {path.name!r}, which has {size}."
        )
    if wanted == 0:
        return np.zeros(dims, dtype)
    if is_packed:
        packed = onnx.TensorProto(data_type=tensor.data_type, dims=dims)
        packed.raw_data = np.fromfile(path, np.uint8, wanted, offset=offset).tobytes()
        return np.asarray(numpy_helper.to_array(packed))
    little = dtype.newbyteorder("<") if dtype.kind in "iuf" else dtype
    values = np.memmap(path, dtype=little, mode="r", offset=offset, shape=tuple(dims))
    return np.array(values, dtype=dtype)  # a copy, because the file may change while it is mapped


def _beside(location: str, directory: Path | None, where: str) -> Path:
    """The file in the model's directory. Raises Malformed if it does not exist or is elsewhere."""
    if directory is None:
        raise InputError(
            f"{where} is kept in another file, and a model given as bytes has no directory.",
            fix="Give the path of the model.",
        )
    relative = Path(location)
    if not location or relative.is_absolute() or ".." in relative.parts:
        raise Malformed(f"{where} points at {location!r}, outside the model's directory.")
    try:
        path = (directory / relative).resolve()
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, circular links, a zero in the name
        why = error.strerror if isinstance(error, OSError) else error  # str(error) repeats a long name
        raise Malformed(f"{where} points at {location[:80]!r}, which is not a file ({why}).") from error
    if not path.is_relative_to(directory):  # a symbolic link out of it
        raise Malformed(f"{where} points at {location!r}, outside the model's directory.")
    if not is_file:
        raise Malformed(f"{where} is kept in {location!r}, which is not next to the model.")
    return path


def _number(text: str, where: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise Malformed(f"{where}: {text!r} is not a position in a file.")
    return int(text)
