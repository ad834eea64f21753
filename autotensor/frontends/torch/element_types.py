"""Conversion of types and arrays from and to torch, and torch's rules for mixed types.

A tensor that is already row-major shares its memory with the array. NumPy has no bfloat16, so bfloat16
numbers are passed as bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from autotensor.base.dtype import DType, dtype_of, promote
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.values import as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import Array, GraphNode

Ints = Sequence[int]

_NAMES = {
    getattr(torch, name): name
    for name in (
        *("bool", "float16", "bfloat16", "float32", "float64"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
}


def dtype_name(dtype: torch.dtype) -> str:
    """autotensor's name of a torch type. Raises Unsupported for complex and quantised types."""
    if dtype not in _NAMES:
        raise Unsupported(
            f"tensors of {dtype} are not supported.", fix=f"Known: {', '.join(_NAMES.values())}."
        )
    return _NAMES[dtype]


def to_array(tensor: torch.Tensor) -> Array:
    """The tensor's elements as a row-major array: the same memory if it is row-major on the CPU already.

    Raises Unsupported for tensors that are not plain memory.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise Unsupported(f"tensors of layout {tensor.layout} are not supported.", fix="Use .to_dense().")
    name = dtype_name(tensor.dtype)
    if tensor.device.type == "meta" or isinstance(tensor, FakeTensor):
        raise Unsupported("a tensor on the meta device, or of a FakeTensorMode, has no values.")
    plain = tensor.detach().resolve_neg().to("cpu").contiguous()
    if tensor.dtype is torch.bfloat16:
        bits: Array = plain.view(torch.int16).numpy().view(dtype_of(name).numpy)
        return bits
    array: Array = plain.numpy()
    return array


def to_tensor(array: Array) -> torch.Tensor:
    """The array as a tensor on the same memory."""
    if array.dtype == dtype_of("bfloat16").numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def per_axis(value: Ints, axes: int) -> tuple[int, ...]:
    """One number for each axis; torch may give a single number for all."""
    return tuple(value) * axes if len(value) == 1 else tuple(value)


# -- mixed types -----------------------------------------------------------------------------------------


def common(*operands: Any) -> DType:
    """The type in which torch combines tensors and numbers.

    First, the tensors with axes decide. A tensor without axes, and then a number, changes the result only if
    it is of a higher kind (bool < integer < float).
    """
    best: DType | None = None
    for group in _by_rank(operands):
        found = None
        for t in group:
            found = t if found is None else promote(found, t)
        if found is not None and (best is None or _kind(found) > _kind(best)):
            best = found
    assert best is not None, "no operands"
    return best


def _by_rank(operands: tuple[Any, ...]) -> tuple[list[DType], list[DType], list[DType]]:
    nodes = [x for x in operands if isinstance(x, GraphNode)]
    numbers = [_number_type(x) for x in operands if not isinstance(x, GraphNode)]
    return [x.dtype for x in nodes if x.shape], [x.dtype for x in nodes if not x.shape], numbers


def _number_type(x: Any) -> DType:
    return dtype_of("bool" if isinstance(x, bool) else "int64" if isinstance(x, int) else "float32")


def _kind(t: DType) -> int:
    return 0 if t.is_bool else 1 if t.is_int else 2


def alike(*operands: Any) -> tuple[GraphNode, ...]:
    """All operands in their common type."""
    dtype = common(*operands)
    return tuple(as_type(x, dtype) for x in operands)


# -- tensors without axes --------------------------------------------------------------------------------


def with_axes(convert: Callable[..., Any]) -> Callable[..., Any]:
    """Extends a converter to tensors without axes, for which torch allows axis 0. They become vectors of one
    element. The result also has one element, and the importer removes its axis."""

    @functools.wraps(convert)
    def wide(x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.shape:
            return convert(x, *args, **kwargs)
        return convert(_vector(x), *map(_vector, args), **{k: _vector(v) for k, v in kwargs.items()})

    return wide


def _vector(x: Any) -> Any:
    return ops.reshape(x, shape=(1,)) if isinstance(x, GraphNode) and not x.shape else x
