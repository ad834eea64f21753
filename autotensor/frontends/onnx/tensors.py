"""Tensors of ONNX files: reads their numbers from the file itself or from another file in its directory.

A file with further tensors must be complete and in the model's own directory. Sizes are checked before memory
is allocated.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autotensor.base.errors import InputError
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.element_types import Array, element_type, type_name
from autotensor.frontends.onnx.errors import Malformed
from autotensor.frontends.onnx.messages import TensorProto

MAX_BYTES = 1 << 31  # the limit for one tensor and for one file: protobuf's own
MOST_AXES = 64  # most axes of a tensor: NumPy's own limit
# types with two numbers in a byte → the type that holds one number in a byte
FOUR_BITS = {"INT4": np.int8, "UINT4": np.uint8}
EXTERNAL = 1  # value of data_location for numbers in another file
# the fields for numbers that a tensor does not keep as bytes; other types use int32_data
_FIELDS = {"FLOAT": "float_data", "DOUBLE": "double_data", "INT64": "int64_data"}
_FIELDS |= {"UINT32": "uint64_data", "UINT64": "uint64_data"}


def array_of(tensor: TensorProto, directory: Path | None, in_bytes: bool = False) -> Array:
    """A copy of a tensor's values, read-only. Raises Malformed or Unsupported, with the tensor's name.

    in_bytes: whole numbers of 4 bits are read too, as bytes.
    """
    where = f"tensor {tensor.name or '(unnamed)'!r}"
    dims = [int(d) for d in tensor.dims]
    if len(dims) > MOST_AXES:
        raise Malformed(f"{where} has {len(dims)} axes; at most {MOST_AXES} are supported.")
    if any(d < 0 for d in dims):
        raise Malformed(f"{where} has the shape {dims}.")
    kind, count = type_name(tensor.data_type), math.prod(dims)
    if kind == "STRING":
        raise Unsupported(f"{where} holds strings, which are not supported.")
    if kind == "UNDEFINED" or not kind.isidentifier():
        raise Malformed(f"{where} has element type {kind}, which does not exist.")
    is_packed = in_bytes and kind in FOUR_BITS
    dtype = np.dtype(FOUR_BITS[kind]) if is_packed else element_type(tensor.data_type, where).numpy
    size = (count + 1) // 2 if is_packed else count * dtype.itemsize
    if size > MAX_BYTES:
        raise Malformed(f"{where} of shape {dims} is larger than {MAX_BYTES} bytes.")
    if tensor.data_location == EXTERNAL:
        entries = {e.key: e.value for e in tensor.external_data}
        data = _external(entries, size, dims, directory, where)
    elif tensor.HasField("raw_data"):
        data = np.frombuffer(tensor.raw_data, np.uint8)
    else:
        data = _bytes(tensor, _FIELDS.get(kind, "int32_data"), np.dtype(np.uint8) if is_packed else dtype)
    if data.size != size:
        raise Malformed(f"{where} of shape {dims} cannot be read: it has {data.size} bytes, not {size}.")
    if is_packed:
        data = _unpacked(data, kind == "INT4")[:count]
    values = np.empty(dims, dtype)
    values.reshape(-1).view(np.uint8)[:] = data if dtype.itemsize == 1 else _native(data, dtype)
    values.flags.writeable = False
    return values


def _native(data: Array, dtype: np.dtype[np.generic]) -> Array:
    """The bytes of numbers in this machine's order. In files the least significant byte comes first."""
    return data if sys.byteorder == "little" else data.reshape(-1, dtype.itemsize)[:, ::-1].reshape(-1)


def _bytes(tensor: TensorProto, field: str, dtype: np.dtype[np.generic]) -> Array:
    """The numbers in one of a tensor's fields, as bytes of their type, the least significant first."""
    numbers = np.asarray(getattr(tensor, field))
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        dtype = np.dtype(np.uint16)  # the field holds the bits of floats
    wide = numbers if numbers.dtype.kind == "f" else numbers.astype(np.int64)
    return _native(wide.astype(dtype).view(np.uint8), dtype)


def _unpacked(data: Array, is_signed: bool) -> Array:
    """Whole numbers of 4 bits, each in its own byte. In the file, the first of two is in the lower bits."""
    numbers = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)
    return (numbers ^ 8) - 8 if is_signed else numbers  # the arithmetic is in bytes, which wrap around


def _external(
    entries: Mapping[str, str], wanted: int, dims: Sequence[int], directory: Path | None, where: str
) -> Array:
    """A tensor's bytes from another file."""
    path = _beside(entries.get("location", ""), directory, where)
    offset = _number(entries.get("offset", "0"), where)
    length = _number(entries["length"], where) if "length" in entries else wanted
    size = path.stat().st_size
    if length != wanted or offset + length > size:
        raise Malformed(
            f"{where} of shape {list(dims)} needs {wanted} bytes; the model points at {length} bytes from "
            f"{offset} in {path.name!r}, which has {size}."
        )
    return np.memmap(path, np.uint8, "r", offset, (wanted,)) if wanted else np.zeros(0, np.uint8)


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
    # a name that is too long, circular links, a zero byte in the name
    except (OSError, RuntimeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error  # str(error) repeats a long name
        raise Malformed(f"{where} points at {location[:80]!r}, which is not a file ({why}).") from error
    if not path.is_relative_to(directory):  # a symbolic link out of the directory
        raise Malformed(f"{where} points at {location!r}, outside the model's directory.")
    if path.is_symlink():  # from Python 3.13 on, resolve accepts circular links
        raise Malformed(f"{where} points at {location[:80]!r}, which is not a file (links in a circle).")
    if not is_file:
        raise Malformed(f"{where} is kept in {location!r}, which is not next to the model.")
    return path


def _number(text: str, where: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise Malformed(f"{where}: {text!r} is not a position in a file.")
    return int(text)
