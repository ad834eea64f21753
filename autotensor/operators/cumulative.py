"""Results from all earlier elements along one axis: running sums and products, and sorted positions.

    cumsum[i]        = sum_{k <= i} x[k]                 k < i if exclusive; from the end if reverse
    rank[i]          = how many elements come before x[i] in sorted order (equal elements by position)
    top_positions[n] = the i with rank[i] == n

As written, each element looks at the whole line. Schedules for processors make one pass for sums and
products, and sort for positions (`scan`, `sort`, `solve` in schedule/primitives). On a GPU, each element does
look at the whole line: O(n²) along the axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import axis_of, require, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def _cumulative_reference(function: Any) -> Any:
    def reference(x: Array, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Array:
        line = np.flip(x, axis) if reverse else x
        if exclusive:
            first = np.full_like(np.take(line, [0], axis), function.identity)
            line = np.concatenate([first, np.delete(line, -1, axis)], axis)
        y = function.accumulate(line, axis, dtype=x.dtype)
        return np.asarray(np.flip(y, axis) if reverse else y)

    return reference


CASES = (
    Case(((7, 17),), {"axis": 1}),
    Case(((3, 5, 2),), {"axis": 1, "exclusive": True}),
    Case(((9,),), {"reverse": True}),
    Case(((4, 6),), {"axis": -1, "exclusive": True, "reverse": True}, dtypes=("int32",), low=-3, high=4),
)


def _cumulative(name: str, reducer: Any, function: Any) -> None:
    @operator(name, kind=Kind.REDUCTION, reference=_cumulative_reference(function), cases=CASES)
    def compute(x: Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
        at = axis_of(name, axis, x.ndim)
        k = te.reduce_axis(x.shape[at], "k")
        neutral = te.const(function.identity, x.dtype)

        def body(*i: Any) -> Any:
            here = i[at]
            near = k.var >= here if reverse else k.var <= here
            far = k.var > here if reverse else k.var < here
            element = x[(*i[:at], k.var, *i[at + 1 :])]
            return reducer(te.select(far if exclusive else near, element, neutral), axis=k)

        return stage(x.shape, body, name, tuple(f"i{n}" for n in range(x.ndim)))


_cumulative("cumsum", te.sum, np.add)
_cumulative("cumprod", te.prod, np.multiply)


def _top_reference(x: Array, count: int, axis: int = -1, largest: bool = True) -> Array:
    """Positions in NumPy's order (NaN last) or in reverse order, in which equal elements keep their order."""
    if x.dtype.kind == "V":  # a sort of bfloat16 puts NaN anywhere
        x = x.astype(np.float32)
    line = np.flip(x, axis) if largest else x
    order = np.argsort(line, axis=axis, kind="stable")
    order = x.shape[axis] - 1 - np.flip(order, axis) if largest else order
    return np.asarray(np.take(order, np.arange(count), axis)).astype(np.int64)


def _greater(a: Any, b: Any) -> Any:
    """a > b, where NaN is greater than every number."""
    return ~(a <= b) & b.equal(b) if a.dtype.is_float else a > b


def _same(a: Any, b: Any) -> Any:
    """a == b, where NaN equals itself."""
    return a.equal(b) | ~(a.equal(a) | b.equal(b)) if a.dtype.is_float else a.equal(b)


@operator(
    "top_positions",
    kind=Kind.OPAQUE,
    reference=_top_reference,
    cases=(
        Case(((7, 17),), {"count": 5}),
        Case(((3, 9, 2),), {"count": 9, "axis": 1, "largest": False}),
        Case(((33,),), {"count": 4}, dtypes=("int32",), low=-3, high=3),  # ties
        Case(((5, 3),), {"count": 1, "axis": 0}),
    ),
)
def top_positions(x: Tensor, count: int, axis: int = -1, largest: bool = True) -> Tensor:
    """The positions of the `count` largest (smallest) elements along the axis, best first; int64.

    NaN is greater than every number and equal to NaN, as in NumPy's and torch's sort. Equal elements are
    ordered by position.
    """
    at = axis_of("top_positions", axis, x.ndim)
    extent = x.shape[at]
    require(
        0 <= count <= extent,
        f"top_positions: count={count} of the {extent} elements along axis {axis} of x {x.shape}.",
    )
    k = te.reduce_axis(extent, "k")
    names = tuple(f"i{n}" for n in range(x.ndim))

    def before(*i: Any) -> Any:
        mine, other = x[i], x[(*i[:at], k.var, *i[at + 1 :])]
        first = te.any(
            _greater(other, mine) if largest else _greater(mine, other),
            te.all(_same(other, mine), k.var < i[at]),
        )
        return te.sum(te.select(first, te.const(1, "int64"), te.const(0, "int64")), axis=k)

    rank = stage(x.shape, before, "rank", names)
    p = te.reduce_axis(extent, "p")

    def body(*i: Any) -> Any:
        found = rank[(*i[:at], p.var, *i[at + 1 :])].equal(i[at])
        return te.sum(te.select(found, p.var, te.const(0, "int64")), axis=p)

    return stage((*x.shape[:at], count, *x.shape[at + 1 :]), body, "top_positions", names)
