"""Helpers for the converters of every front end: values in another type, in 32 bits, and parts of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant


def as_type(x: Any, dtype: DType | str) -> GraphNode:
    """A node of that type from a node or a number."""
    wanted = dtype_of(dtype)
    if isinstance(x, GraphNode):
        return x if x.dtype == wanted else ops.cast(x, dtype=str(wanted))
    return constant(np.asarray(x).astype(wanted.numpy))


def widened(compute: Callable[..., GraphNode], x: GraphNode, *others: GraphNode | None) -> GraphNode:
    """The result of `compute` for the operands. If 16-bit floats are among them, it is computed in 32 bits
    and rounded once to the type of x."""
    operands = (x, *others)
    if not any(v is not None and v.dtype.is_half for v in operands):
        return compute(*operands)
    wide = (as_type(v, "float32") if v is not None and v.dtype.is_half else v for v in operands)
    return as_type(compute(*wide), x.dtype)


def cut(x: GraphNode, axis: int, begin: int, end: int) -> GraphNode:
    """Elements begin … end - 1 of one axis."""
    return ops.slice(x, begin=(begin,), end=(end,), axes=(axis % x.ndim,))


def row(x: GraphNode, axis: int, n: int) -> GraphNode:
    """Element n of one axis; the result lacks this axis."""
    return ops.reshape(cut(x, axis, n, n + 1), shape=(*x.shape[:axis], *x.shape[axis + 1 :]))


def pieces(x: GraphNode, axis: int, sizes: Iterable[int]) -> list[GraphNode]:
    """x, cut along one axis into parts of these sizes."""
    found, start = [], 0
    for n in sizes:
        found.append(cut(x, axis, start, start + n))
        start += n
    return found
