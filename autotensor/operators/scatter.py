"""Scatter-add: what `take` took, put back and added up.

    y[v, …] = sum of updates[t, …] over all t with indices[t] == v

Te has no stores to computed places, so every row asks every index whether it is meant: rows × indices
comparisons, each of an index with a loop variable. The additions are those of the definition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.common import axis_of, is_int, require, stage
from autotensor.operators.operator import Case, Kind, operator
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def _scatter_reference(indices: Array, updates: Array, extent: int, axis: int = 0) -> Array:
    rank = updates.ndim - indices.ndim + 1
    at = axis % rank
    inner = range(at, at + indices.ndim)
    first = np.moveaxis(updates, list(inner), list(range(indices.ndim)))
    rest = first.shape[indices.ndim :]
    y = np.zeros((extent, *rest), updates.dtype)
    np.add.at(y, indices.reshape(-1), first.reshape(-1, *rest))
    return np.moveaxis(y, 0, at)


@operator(
    "scatter_add",
    kind=Kind.REDUCTION,
    reference=_scatter_reference,
    cases=(
        Case(((3, 4), (3, 4, 5)), {"extent": 7}, dtypes=("int64", "float32"), low=-7, high=7),
        Case(((17,), (2, 17)), {"extent": 9, "axis": 1}, dtypes=("int32", "float32"), low=0, high=9),
        Case(((), (3,)), {"extent": 5}, dtypes=("int64", "float32"), low=0, high=5),
    ),
)
def scatter_add(indices: Tensor, updates: Tensor, extent: int, axis: int = 0) -> Tensor:
    """updates: x.shape with the indices' axes in place of `axis` ──▶ `extent` slices along the axis.

    The adjoint of `take`: negative indices count from the end.
    """
    rank = updates.ndim - indices.ndim + 1
    require(indices.dtype.is_int, f"scatter_add: indices are {indices.dtype}, expected integers.")
    require(is_int(extent) and extent >= 1, f"scatter_add: extent={extent!r} must be an integer >= 1.")
    require(rank >= 1, f"scatter_add: updates {updates.shape} have fewer axes than indices {indices.shape}.")
    at = axis_of("scatter_add", axis, rank)
    own = updates.shape[at : at + indices.ndim]
    require(
        own == indices.shape,
        f"scatter_add: indices are {indices.shape}, updates {updates.shape} have {own} at axis {axis}.",
    )
    ks = [te.reduce_axis(n, f"k{d}") for d, n in enumerate(indices.shape)]
    signed = indices.dtype.kind == "int"

    def body(*i: Expr) -> Any:
        k = indices[tuple(ks)]
        place = te.select(k < 0, k + extent, k) if signed else k
        update = updates[(*i[:at], *ks, *i[at + 1 :])]
        value = te.select(te.cast("int64", place).equal(i[at]), update, te.const(0, updates.dtype))
        return te.sum(value, axis=ks) if ks else value

    shape = (*updates.shape[:at], extent, *updates.shape[at + indices.ndim :])
    return stage(shape, body, "scatter_add")
