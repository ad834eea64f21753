"""Writes at indices that are data. Each element of the result looks for the updates that go to it.

    last[i, j] = max_k (index[k, j] == i ? k : least)              scatter_elements along axis 0, replaces
    out[i, j]  = last[i, j] < 0 ? x[i, j] : updates[last[i, j], j]

    out[i, j]  = x[i, j] + sum_k (index[k, j] == i ? updates[k, j] : 0)       adds; likewise max, min, mul

    y[v, …]    = sum_t (indices[t] == v ? updates[t, …] : 0)                  scatter_add, the adjoint of take

If several updates go to one element, the last one wins. Te has no stores to computed indices, so every
element looks at all indices of its line. Schedules for processors turn this into one pass over the indices
(`solve` in schedule/primitives), because a condition `index == i` says where a term goes. On a GPU, every
element looks at all indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.gathering import wrapped
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import axis_of, is_int, require, size, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]

JOIN: dict[str, tuple[Any, Callable[[Any, Any], Any], Callable[[Any], Any], Any]] = {
    # reducer, how its result joins x, the neutral element, NumPy's function
    "add": (te.sum, lambda a, b: a + b, lambda t: te.const(0, t), np.add),
    "mul": (te.prod, lambda a, b: a * b, lambda t: te.const(1, t), np.multiply),
    "max": (te.max, te.maximum, te.min_value, np.maximum),
    "min": (te.min, te.minimum, te.max_value, np.minimum),
}


def _scatter(
    op: str,
    x: Tensor,
    reduction: str,
    count: int,
    hits: Callable[[Any, Sequence[Any]], Any],
    update: Callable[[Any, Sequence[Any]], Any],
) -> Tensor:
    """count: how many updates an element looks at; hits(k, i): whether update k goes to element i."""
    require(
        reduction == "none" or reduction in JOIN,
        f"{op}: reduction={reduction!r} is unknown.",
        f"Known: none, {', '.join(JOIN)}.",
    )
    if count == 0 or 0 in x.shape:
        return stage(x.shape, lambda *i: x[i], op)
    k = te.reduce_axis(count, "k")
    if reduction == "none":
        number = "int32" if count < 1 << 31 else "int64"  # takes half the bytes
        last = stage(
            x.shape,
            lambda *i: te.max(
                te.select(hits(k.var, i), te.cast(number, k.var), te.min_value(number)), axis=k
            ),
            "last",
            _names(x.ndim),
        )
        return stage(
            x.shape,
            lambda *i: te.select(last[i] < 0, x[i], update(te.cast("int64", te.maximum(last[i], 0)), i)),
            op,
            _names(x.ndim),
        )
    reducer, join, neutral, _ = JOIN[reduction]
    found = stage(
        x.shape,
        lambda *i: reducer(te.select(hits(k.var, i), update(k.var, i), neutral(x.dtype)), axis=k),
        "updates",
        _names(x.ndim),
    )
    return stage(x.shape, lambda *i: join(x[i], found[i]), op, _names(x.ndim))


def _names(rank: int) -> tuple[str, ...]:
    return tuple(f"i{n}" for n in range(rank))


def _apply(out: Array, place: Any, value: Any, reduction: str) -> None:
    out[place] = value if reduction == "none" else JOIN[reduction][3](out[place], value)


def _elements_reference(
    x: Array, index: Array, updates: Array, axis: int = 0, reduction: str = "none"
) -> Array:
    out = x.copy()
    for at in np.ndindex(*index.shape):
        place = list(at)
        place[axis] = int(index[at])
        _apply(out, tuple(place), updates[at], reduction)
    return out


@operator(
    "scatter_elements",
    kind=Kind.OPAQUE,
    reference=_elements_reference,
    cases=(
        Case(((7, 5), (3, 5), (3, 5)), dtypes=("float32", "int64", "float32"), low=-7, high=7),
        Case(((3, 9), (2, 4), (2, 4)), {"axis": 1}, dtypes=("float32", "int32", "float32"), low=0, high=9),
        *(
            Case(
                ((5, 4), (3, 4), (3, 4)),
                {"reduction": r},
                dtypes=("float32", "int64", "float32"),
                low=-5,
                high=5,
            )
            for r in JOIN
        ),
    ),
)
def scatter_elements(
    x: Tensor, index: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """x with updates[…] written at index[…] along the axis."""
    at = axis_of("scatter_elements", axis, x.ndim)
    fits = index.shape == updates.shape and index.ndim == x.ndim
    fits = fits and all(m <= n for a, (m, n) in enumerate(zip(index.shape, x.shape, strict=True)) if a != at)
    require(
        fits,
        f"scatter_elements: index {index.shape} and updates {updates.shape} do not fit x of shape {x.shape}.",
    )
    require(index.dtype.is_int, f"scatter_elements: index is {index.dtype}, expected integers.")
    smaller = [a for a in range(x.ndim) if a != at and index.shape[a] < x.shape[a]]

    def held(k: Any, i: Sequence[Any]) -> tuple[Any, ...]:
        inside = [te.minimum(v, index.shape[a] - 1) if a in smaller else v for a, v in enumerate(i)]
        return (*inside[:at], k, *inside[at + 1 :])

    def hits(k: Any, i: Sequence[Any]) -> Any:
        place = te.cast("int64", wrapped(index[held(k, i)], x.shape[at]))
        return te.all(place.equal(i[at]), *(i[a] < index.shape[a] for a in smaller))

    count = index.shape[at] if size(index.shape) else 0
    return _scatter("scatter_elements", x, reduction, count, hits, lambda k, i: updates[held(k, i)])


def _nd_reference(x: Array, index: Array, updates: Array, reduction: str = "none") -> Array:
    out = x.copy()
    for at in np.ndindex(*index.shape[:-1]):
        _apply(out, tuple(int(v) for v in index[at]), updates[at], reduction)
    return out


@operator(
    "scatter_nd",
    kind=Kind.OPAQUE,
    reference=_nd_reference,
    cases=(
        Case(((7, 5), (3, 1), (3, 5)), dtypes=("float32", "int64", "float32"), low=-7, high=7),
        Case(((4, 4, 3), (2, 3, 2), (2, 3, 3)), dtypes=("float32", "int64", "float32"), low=0, high=4),
        *(
            Case(
                ((5, 4), (6, 2), (6,)),
                {"reduction": r},
                dtypes=("float32", "int64", "float32"),
                low=-4,
                high=4,
            )
            for r in JOIN
        ),
    ),
)
def scatter_nd(x: Tensor, index: Tensor, updates: Tensor, reduction: str = "none") -> Tensor:
    """x with parts written at the indices in the last axis of `index`."""
    depth = index.shape[-1] if index.ndim else 0
    fits = index.ndim >= 1 and depth <= x.ndim
    require(
        fits and updates.shape == (*index.shape[:-1], *x.shape[depth:]),
        f"scatter_nd: index {index.shape} and updates {updates.shape} do not fit x of shape {x.shape}.",
    )
    require(index.dtype.is_int, f"scatter_nd: index is {index.dtype}, expected integers.")
    lead = index.shape[:-1]

    def spread(k: Any) -> tuple[Any, ...]:
        """The indices of update `number` along the axes `lead`."""
        out: list[Any] = []
        below = size(lead)
        for n in lead:
            below //= n
            place = k if below == 1 else k // below
            out.append(place if n == size(lead) // max(below, 1) else place % n)
        return tuple(out)

    def hits(k: Any, i: Sequence[Any]) -> Any:
        at = spread(k)
        places = [te.cast("int64", wrapped(index[(*at, te.const(d))], x.shape[d])) for d in range(depth)]
        return te.all(*(p.equal(v) for p, v in zip(places, i, strict=False)))

    return _scatter(
        "scatter_nd", x, reduction, size(lead), hits, lambda k, i: updates[(*spread(k), *i[depth:])]
    )


def _add_reference(indices: Array, updates: Array, extent: int, axis: int = 0) -> Array:
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
    reference=_add_reference,
    cases=(
        Case(((3, 4), (3, 4, 5)), {"extent": 7}, dtypes=("int64", "float32"), low=-7, high=7),
        Case(((17,), (2, 17)), {"extent": 9, "axis": 1}, dtypes=("int32", "float32"), low=0, high=9),
        Case(((), (3,)), {"extent": 5}, dtypes=("int64", "float32"), low=0, high=5),
    ),
)
def scatter_add(indices: Tensor, updates: Tensor, extent: int, axis: int = 0) -> Tensor:
    """updates: x.shape with the indices' axes in place of `axis` ──▶ `extent` slices along the axis.

    This is the adjoint of `take`: it adds up the slices at their old indices. Negative indices count from the
    end.
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

    def body(*i: Expr) -> Any:
        k = indices[tuple(ks)]
        place = wrapped(k, extent)
        update = updates[(*i[:at], *ks, *i[at + 1 :])]
        value = te.select(te.cast("int64", place).equal(i[at]), update, te.const(0, updates.dtype))
        return te.sum(value, axis=ks) if ks else value

    shape = (*updates.shape[:at], extent, *updates.shape[at + indices.ndim :])
    return stage(shape, body, "scatter_add")
