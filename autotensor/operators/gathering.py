"""Reads at indices that are data.

    take[i, k, …]         = x[i, indices[k], …]         slices along one axis; NumPy's take
    gather_elements[i, j] = x[i, index[i, j]]           along one axis; NumPy's take_along_axis
    gather_nd[b, n, …]    = x[b, index[b, n, 0], index[b, n, 1], …]

Negative indices count from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import axis_of, require, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def wrapped(k: Any, extent: int) -> Any:
    """The index k; a negative one is counted from the end."""
    return te.select(k < 0, k + extent, k) if k.dtype.kind == "int" else k


@operator(
    "take",
    kind=Kind.INJECTIVE,
    reference=lambda x, indices, axis=0: np.take(x, indices, axis),
    cases=(
        Case(((7, 5), (3, 4)), dtypes=("float32", "int64"), low=-7, high=7),
        Case(((2, 9), (17,)), {"axis": 1}, dtypes=("float32", "int32"), low=0, high=9),
        Case(((5, 3), ()), dtypes=("float32", "int64"), low=0, high=5),
    ),
)
def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Slices of x along the axis, by index (axis 0: an embedding); negative indices count from the end."""
    at = axis_of("take", axis, x.ndim)
    require(indices.dtype.is_int, f"take: indices are {indices.dtype}, expected integers.")
    rank = indices.ndim

    def body(*i: Expr) -> Expr:
        return x[(*i[:at], wrapped(indices[i[at : at + rank]], x.shape[at]), *i[at + rank :])]

    return stage((*x.shape[:at], *indices.shape, *x.shape[at + 1 :]), body, "take")


def _elements_reference(x: Array, index: Array, axis: int = 0) -> Array:
    cut = tuple(slice(n) if a != axis % x.ndim else slice(None) for a, n in enumerate(index.shape))
    places = np.where(index < 0, index + x.shape[axis], index)
    return np.asarray(np.take_along_axis(x[cut], places, axis))


@operator(
    "gather_elements",
    kind=Kind.INJECTIVE,
    reference=_elements_reference,
    cases=(
        Case(((7, 5), (3, 5)), dtypes=("float32", "int64"), low=-7, high=7),
        Case(((3, 9, 2), (3, 17, 2)), {"axis": 1}, dtypes=("float32", "int32"), low=0, high=9),
        Case(((5, 6), (2, 3)), {"axis": -1}, dtypes=("float32", "int64"), low=-6, high=6),
    ),
)
def gather_elements(x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    """x read at index[…] along the axis; index has as many axes as x, and no larger extent on other axes."""
    at = axis_of("gather_elements", axis, x.ndim)
    fits = index.ndim == x.ndim and all(
        m <= n for a, (m, n) in enumerate(zip(index.shape, x.shape, strict=True)) if a != at
    )
    require(fits, f"gather_elements: index of shape {index.shape} does not fit x of shape {x.shape}.")
    require(index.dtype.is_int, f"gather_elements: index is {index.dtype}, expected integers.")

    def body(*i: Expr) -> Expr:
        return x[(*i[:at], wrapped(index[i], x.shape[at]), *i[at + 1 :])]

    return stage(index.shape, body, "gather_elements")


def _nd_reference(x: Array, index: Array, batch: int = 0) -> Array:
    flat, places = x.reshape(-1, *x.shape[batch:]), index.reshape(-1, *index.shape[batch:])
    rows = [f[tuple(np.moveaxis(p, -1, 0))] for f, p in zip(flat, places, strict=True)]
    shape = (*index.shape[:-1], *x.shape[batch + index.shape[-1] :])
    return np.asarray(rows, x.dtype).reshape(shape)


@operator(
    "gather_nd",
    kind=Kind.INJECTIVE,
    reference=_nd_reference,
    cases=(
        Case(((7, 5), (3, 2)), dtypes=("float32", "int64"), low=-5, high=5),
        Case(((7, 5, 3), (2, 4, 1)), dtypes=("float32", "int64"), low=-7, high=7),
        Case(((2, 3, 4), (2, 1)), {"batch": 1}, dtypes=("float32", "int32"), low=0, high=3),
        Case(((7, 5), (2,)), dtypes=("float32", "int64"), low=-5, high=5),
    ),
)
def gather_nd(x: Tensor, index: Tensor, batch: int = 0) -> Tensor:
    """Parts of x at the indices in the last axis of `index`; the first `batch` axes are shared."""
    depth = index.shape[-1] if index.ndim else 0
    fits = index.ndim > batch and batch + depth <= x.ndim and index.shape[:batch] == x.shape[:batch]
    require(
        fits, f"gather_nd: index of shape {index.shape} does not fit x of shape {x.shape} with batch={batch}."
    )
    require(index.dtype.is_int, f"gather_nd: index is {index.dtype}, expected integers.")
    outer = index.ndim - 1

    def body(*i: Expr) -> Expr:
        places = [wrapped(index[(*i[:outer], te.const(d))], x.shape[batch + d]) for d in range(depth)]
        return x[(*i[:batch], *places, *i[outer:])]

    return stage((*index.shape[:-1], *x.shape[batch + depth :]), body, "gather_nd")
