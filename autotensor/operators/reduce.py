"""Reductions over chosen axes: sum, mean, max, min, prod, argmax, argmin.

`axis` is an int, a tuple or None (all axes); `keepdims` leaves extents of 1. Sums and products of integers
are int64 (uint64 for unsigned integers), means of integers are float32, and positions are int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import DType, dtype_of, int64, uint64
from autotensor.ir.expr import Expr
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import (
    as_float,
    axes_of,
    interleave,
    kept,
    reduced,
    require,
    size,
    stage,
)
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]
Axes = int | tuple[int, ...] | None


def _wide(t: DType) -> DType:
    """The type of a sum."""
    return t if t.is_float else uint64 if t.kind == "uint" else int64


def _reduced_shape(x: Tensor, over: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if a in over else n for a, n in enumerate(x.shape))
    return tuple(n for a, n in enumerate(x.shape) if a not in over)


def _reduce(op: str, reducer: Any, x: Tensor, axis: Axes, keepdims: bool, dtype: DType) -> Tensor:
    """One stage; with keepdims, its axes of extent 1 are not read."""
    over = axes_of(op, axis, x.ndim)
    ks = [te.reduce_axis(x.shape[a], f"k{n}") for n, a in enumerate(over)]

    def body(*i: Expr) -> Any:
        element = x[interleave(over, ks, kept(i, over) if keepdims else i)]
        return reduced(reducer, te.cast(dtype, element), ks)

    return stage(_reduced_shape(x, over, keepdims), body, op)


def _cases(*more: Case) -> tuple[Case, ...]:
    return (
        Case(((7, 17),)),
        Case(((7, 17),), {"axis": -1}),
        Case(((3, 5, 33),), {"axis": 1, "keepdims": True}),
        Case(((3, 1, 5, 7),), {"axis": (1, 3)}),
        Case(((1,),), {"axis": 0}),
        Case(((2, 3),), {"axis": (0, 1), "keepdims": True}),
        Case(((2, 3),), {"axis": ()}),
        Case(((4, 7),), {"axis": 1}, dtypes=("int32",), low=-3, high=4),
        *more,
    )


SUM_CASES = _cases(
    Case(((4, 7),), {"axis": 0}, dtypes=("uint8",), low=0, high=200),
    Case(((4, 7),), {"axis": 1, "dtype": "int32"}, dtypes=("uint8",), low=0, high=200),
)


@operator("sum", kind=Kind.REDUCTION, cases=SUM_CASES, reference=lambda x, **a: np.sum(x, **_attrs(a)))
def sum_(x: Tensor, axis: Axes = None, keepdims: bool = False, dtype: str = "") -> Tensor:
    """dtype: the type of the additions and of the result."""
    return _reduce("sum", te.sum, x, axis, keepdims, dtype_of(dtype) if dtype else _wide(x.dtype))


@operator("prod", kind=Kind.REDUCTION, cases=_cases(), reference=lambda x, **a: np.prod(x, **_attrs(a)))
def prod(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return _reduce("prod", te.prod, x, axis, keepdims, _wide(x.dtype))


@operator("max", kind=Kind.REDUCTION, cases=_cases(), reference=lambda x, **a: np.max(x, **_attrs(a)))
def max_(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    _not_empty("max", x, axis)
    return _reduce("max", te.max, x, axis, keepdims, x.dtype)


@operator("min", kind=Kind.REDUCTION, cases=_cases(), reference=lambda x, **a: np.min(x, **_attrs(a)))
def min_(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    _not_empty("min", x, axis)
    return _reduce("min", te.min, x, axis, keepdims, x.dtype)


def _mean_reference(x: Array, **attrs: Any) -> Array:
    return np.asarray(np.mean(x, **_attrs(attrs), dtype=x.dtype if x.dtype.kind == "f" else np.float32))


@operator("mean", kind=Kind.REDUCTION, cases=_cases(), reference=_mean_reference)
def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The stages: a sum, and then the division by the number of elements."""
    _not_empty("mean", x, axis)
    count = size([x.shape[a] for a in axes_of("mean", axis, x.ndim)])
    total = _reduce("mean", te.sum, x, axis, keepdims, as_float(x.dtype))
    return stage(total.shape, lambda *i: total[i] / count, "mean")


def _attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    """NumPy's arguments: axes as a tuple instead of a list, and no dtype for an empty name."""
    axis = attrs.get("axis")
    given = {k: v for k, v in attrs.items() if k != "dtype" or v}
    return {**given, "axis": tuple(axis) if isinstance(axis, list) else axis}


def _not_empty(op: str, x: Tensor, axis: Axes) -> None:
    over = axes_of(op, axis, x.ndim)
    require(
        all(x.shape[a] > 0 for a in over),
        f"{op}: x of shape {x.shape} has no elements along axis {axis}; {op} of nothing is undefined.",
    )


# -- positions -----------------------------------------------------------------------------------------------


def _best(name: str, better: Callable[[Expr, Expr], Expr], worst: Callable[[DType], Expr]) -> Any:
    """A reducer of (position, value) pairs: the better value wins; of equal values, the first position wins.

    NaN is better than any number and equal to NaN, as in NumPy: max returns it, and argmax its position.
    """

    def combine(x: Any, y: Any) -> tuple[Expr, Expr]:
        wins, same = better(x[1], y[1]), x[1].equal(y[1])
        if x[1].dtype.is_float:  # if y is NaN, x never wins here; if x is NaN, the second line decides
            number = y[1].equal(y[1])
            wins, same = ~(better(y[1], x[1]) | same) & number, same | ~x[1].equal(x[1])
        first = wins | (same & (x[0] < y[0]))
        return te.select(first, x[0], y[0]), te.select(first, x[1], y[1])

    return te.comm_reducer(combine, lambda i, v: (te.max_value(i), worst(v)), name=name)


argmax_pair = _best("argmax", lambda a, b: a > b, te.min_value)
argmin_pair = _best("argmin", lambda a, b: a < b, te.max_value)

ARG_CASES = (
    Case(((7, 17),)),
    Case(((7, 17),), {"axis": -1}),
    Case(((3, 5, 33),), {"axis": 1, "keepdims": True}),
    Case(((1,),), {"axis": 0}),
    Case(((2, 3),), {"keepdims": True}),
    Case(((5, 33),), {"axis": 1}, dtypes=("int32",), low=-2, high=3),  # ties
)


def _arg(op: str, reducer: Any, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    _not_empty(op, x, axis)
    require(x.ndim > 0, f"{op}: x is a scalar; it has no axis.")
    over = axes_of(op, axis, x.ndim)
    ks = [te.reduce_axis(x.shape[a], f"k{n}") for n, a in enumerate(over)]
    flat: Any = ks[0].var
    for k in ks[1:]:
        flat = flat * k.extent + k

    def body(*i: Expr) -> Any:
        return reducer((flat, x[interleave(over, ks, kept(i, over) if keepdims else i)]), axis=ks)

    at, _ = te.compute(_reduced_shape(x, over, keepdims), body, name=op)
    result: Tensor = at
    return result


@operator("argmax", kind=Kind.REDUCTION, cases=ARG_CASES, reference=lambda x, **a: np.argmax(x, **a))
def argmax(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first position of the greatest element along an axis, or in the flattened x."""
    return _arg("argmax", argmax_pair, x, axis, keepdims)


@operator("argmin", kind=Kind.REDUCTION, cases=ARG_CASES, reference=lambda x, **a: np.argmin(x, **a))
def argmin(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first position of the least element along an axis, or in the flattened x."""
    return _arg("argmin", argmin_pair, x, axis, keepdims)
