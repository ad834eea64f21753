"""Tensors that depend on no other tensor: they become constants of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.frontends.torch.element_types import Ints, to_array
from autotensor.frontends.torch.families.complex import Complex
from autotensor.frontends.torch.registry import converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant


def _full(shape: Ints, value: Any, dtype: str) -> Any:
    """One number, broadcast to the shape, because a large constant would cost memory and reads."""
    if isinstance(value, GraphNode):  # a number that is computed in each call
        return ops.broadcast_to(as_type(value, dtype), shape=tuple(shape))
    number = constant(np.asarray(value).astype(dtype_of(dtype).numpy))
    return ops.broadcast_to(number, shape=tuple(shape)) if tuple(shape) else number


def _type_of(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


@converts("aten.full.default")
def full(size: Ints, value: Any, *, dtype: str | None = None, **_: Any) -> Any:
    return _full(size, value, dtype or _type_of(value))


@converts("aten.full_like.default")
def full_like(x: GraphNode, value: Any, *, dtype: str | None = None, **_: Any) -> Any:
    return _full(x.shape, value, dtype or str(x.dtype))


@converts("aten.new_full.default")
def new_full(x: GraphNode, size: Ints, value: Any, *, dtype: str | None = None, **_: Any) -> Any:
    return _full(size, value, dtype or str(x.dtype))


def _filled(number: int, plain: Sequence[str], like: str, new: Sequence[str]) -> None:
    """Registers converters for tensors filled with one number, in three forms: with a given shape, with the
    shape and type of a tensor, or with a given shape and the type of a tensor."""

    @converts(*(f"aten.{name}" for name in plain))
    def of_shape(size: Ints, *_: Any, dtype: str | None = None, **__: Any) -> Any:
        return _full(size, number, dtype or "float32")

    @converts(f"aten.{like}.default")
    def of_tensor(x: GraphNode, *, dtype: str | None = None, **_: Any) -> Any:
        return _full(x.shape, number, dtype or str(x.dtype))

    @converts(*(f"aten.{name}.default" for name in new))
    def of_both(x: GraphNode, size: Ints, *_: Any, dtype: str | None = None, **__: Any) -> Any:
        return _full(size, number, dtype or str(x.dtype))


_filled(0, ("zeros.default",), "zeros_like", ("new_zeros",))
_filled(1, ("ones.default",), "ones_like", ("new_ones",))
# The contents of `empty` are unspecified, so zeros are correct.
_EMPTY = ("empty.memory_format", "empty_permuted.default", "empty_strided.default")
_filled(0, _EMPTY, "empty_like", ("new_empty", "new_empty_strided"))


@converts("aten.scalar_tensor.default")
def scalar_tensor(value: Any, *, dtype: str | None = None, **_: Any) -> Any:
    return _full((), value, dtype or _type_of(value))


@converts("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(*bounds: Any, dtype: str | None = None, **_: Any) -> Any:
    found = dtype or ("int64" if all(isinstance(b, int) for b in bounds) else "float32")
    return constant(np.arange(*bounds).astype(dtype_of(found).numpy))


@converts("prims.iota.default")
def iota(length: int, *, start: int, step: int, dtype: str, **_: Any) -> Any:
    return constant((start + step * np.arange(length)).astype(dtype_of(dtype).numpy))


@converts("aten.fill.Scalar", "aten.fill.Tensor")
def fill(x: GraphNode, value: Any) -> Any:
    one = as_type(value, x.dtype)
    return ops.broadcast_to(one, shape=x.shape) if x.shape else one


def _indices(name: str) -> None:
    @converts(f"aten.{name}.default")
    def convert(rows: int, columns: int, offset: int = 0, *, dtype: str | None = None, **_: Any) -> Any:
        return constant(np.stack(getattr(np, name)(rows, offset, columns)).astype(dtype or "int64"))


_indices("tril_indices")
_indices("triu_indices")


@converts("aten.linspace.default")
def linspace(start: float, end: float, steps: int, *, dtype: str | None = None, **_: Any) -> Any:
    return constant(np.linspace(start, end, steps).astype(dtype_of(dtype or "float32").numpy))


@converts("aten.tril.default")
def tril(x: GraphNode, diagonal: int = 0) -> Any:
    return _triangle(x, np.tri(x.shape[-2], x.shape[-1], diagonal, dtype=bool))


@converts("aten.triu.default")
def triu(x: GraphNode, diagonal: int = 0) -> Any:
    return _triangle(x, ~np.tri(x.shape[-2], x.shape[-1], diagonal - 1, dtype=bool))


def _triangle(x: GraphNode, seen: np.ndarray[Any, Any]) -> Any:
    return ops.where(constant(seen), x, constant(0, dtype=x.dtype))


def from_tensor(tensor: Any, name: str = "") -> GraphNode | Complex:
    """A torch tensor as a constant."""
    if tensor.is_complex():
        parts = tensor.detach().resolve_conj()
        return Complex(constant(to_array(parts.real), name), constant(to_array(parts.imag), f"{name}.imag"))
    return constant(to_array(tensor), name)
