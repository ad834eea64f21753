"""Conversion between ONNX's element types and autotensor's."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.base.errors import TensorError
from autotensor.frontends.errors import Unsupported

Array = np.ndarray[Any, np.dtype[Any]]

_STANDARD = (  # by ONNX's number
    *(
        "UNDEFINED",
        "FLOAT",
        "UINT8",
        "INT8",
        "UINT16",
        "INT16",
        "INT32",
        "INT64",
        "STRING",
        "BOOL",
        "FLOAT16",
    ),
    *("DOUBLE", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ"),
    *("FLOAT8E5M2", "FLOAT8E5M2FNUZ", "UINT4", "INT4", "FLOAT4E2M1", "FLOAT8E8M0", "UINT2", "INT2"),
    *("FLOAT6E2M3", "FLOAT6E3M2"),
)
_OURS = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT16": "float16",
    "BFLOAT16": "bfloat16",
    "BOOL": "bool",
    **{f"{u}INT{n}": f"{u.lower()}int{n}" for u in ("", "U") for n in (8, 16, 32, 64)},
}


def element_type(number: int, where: str) -> DType:
    """The type with this number in ONNX. Raises Unsupported for types that autotensor lacks, such as
    strings."""
    name = type_name(number)
    if name not in _OURS:
        raise Unsupported(
            f"{where}: element type {name} is not supported.", fix=f"Known: {', '.join(_OURS)}."
        )
    return dtype_of(_OURS[name])


def type_name(number: int) -> str:
    return _STANDARD[number] if 0 <= number < len(_STANDARD) else f"number {number}"


def onnx_number(dtype: DType) -> int:
    """ONNX's number of an autotensor type."""
    names = {ours: name for name, ours in _OURS.items()}
    return _STANDARD.index(names[str(dtype)])


def onnx_name(dtype: DType) -> str:
    """ONNX's spelling of a tensor of this type, in its schemas.

    >>> onnx_name(dtype_of("float32"))
    'tensor(float)'
    """
    short = {"float32": "float", "float64": "double"}
    return f"tensor({short.get(str(dtype), str(dtype))})"


def checked_array(array: Array, where: str) -> Array:
    """The array, if autotensor has its type. Raises Unsupported otherwise."""
    try:
        dtype_of(array.dtype)
    except TensorError as error:
        raise Unsupported(f"{where}: {error.what}", fix=error.fix) from error
    return array
