"""Constants that are other ones at other extents, written as formulas of indices whose numbers follow them.

    take(table, [5, 6, 7])    at past = 5, length = 3      ──▶    take(table, positions())
    take(table, [2, 3])       at past = 2, length = 2             positions: i ──▶ i + 5;  i ──▶ i + 2

Front ends write positions, masks, and the places of a roll or of a mirrored border as constants. A constant
that is the beginning of the one at the greatest extents stays (`generalise.py` lets all kernels read that).
For others, the formulas of `FORMS` are tried. `generalise.py` finds how their numbers follow the symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import dtype_of, float64, int64
from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.function import TeFunction
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.constants import is_grown
from autotensor.graph.symbols.side_by_side import Alike, is_beginning, side_by_side
from autotensor.ir.expr import const

CLOSE = 2e-6  # constants of front ends are rounded to float32, as are their steps
Arrays = Sequence[Array]  # the same value in each graph
Formula = Callable[..., Any]  # of the indices ──▶ the element there


def with_formulas(graphs: Sequence[Graph]) -> list[Graph]:
    """The graphs, with formulas in place of constants that differ; as they are if their operators differ.

    A value that depends on constants only is computed now. If it differs and has no formula, it is computed
    from formulas when the model runs.
    """
    alike = side_by_side(graphs)
    if alike is None:
        return list(graphs)
    known: dict[Alike, Arrays] = {}  # values that depend on constants only
    made: dict[Alike, Alike] = {}
    for nodes in alike:
        applied = [n for n in nodes if isinstance(n, Apply)]
        read = list(zip(*(n.inputs for n in applied), strict=True))
        arrays = _values(applied, [known.get(x) for x in read]) if applied else _given(nodes)
        if arrays is not None:
            known[nodes] = arrays
        name = f"positions_{len(made)}"  # formulas that are equal at some extents stay apart
        followed = None if arrays is None else _followed(arrays, name)
        if followed is None and applied:
            inputs = [made[x] for x in read]
            if arrays is not None:
                named = ((x, f"{name}_{k}") for k, x in enumerate(read))
                inputs = [_number(known[x], n) or made[x] for x, n in named]
            given = zip(*inputs, strict=True) if inputs else [()] * len(applied)
            followed = tuple(n.given(x) for n, x in zip(applied, given, strict=True))
        made[nodes] = followed or nodes
    outputs = [made[x] for x in zip(*(g.outputs for g in graphs), strict=True)]
    return [g.with_outputs(x) for g, x in zip(graphs, zip(*outputs, strict=True), strict=True)]


def _given(nodes: Alike) -> Arrays | None:
    arrays = [n.array for n in nodes if isinstance(n, Constant)]
    return arrays if len(arrays) == len(nodes) else None


def _values(applied: Sequence[Apply], inputs: Sequence[Arrays | None]) -> Arrays | None:
    """The nodes' values; None if they depend on more than constants, or are much larger than these."""
    known = [x for x in inputs if x is not None]
    if not known or len(known) < len(inputs) or any(map(is_grown, applied)):
        return None
    return [evaluate_node(n, list(x)) for n, x in zip(applied, zip(*known, strict=True), strict=True)]


def _followed(arrays: Arrays, name: str) -> Alike | None:
    """Nodes with these values: constants if each is a number or the beginning of the first, or formulas."""
    if arrays[0].size == 1 or all(is_beginning(a, arrays[0]) for a in arrays):
        return tuple(map(constant, arrays))
    return _formulas(arrays, name)


def _number(arrays: Arrays, name: str) -> Alike | None:
    """Formulas of numbers that differ, for nodes that are to be computed when the model runs."""
    is_open = arrays[0].size == 1 and not is_beginning(arrays[-1], arrays[0])
    return _formulas(arrays, name) if is_open else None


def _formulas(arrays: Arrays, name: str) -> Alike | None:
    for form in FORMS:
        found = [form(a) for a in arrays]
        if all(f is not None for f in found):
            return tuple(_node(a, f, name) for a, f in zip(arrays, found, strict=True) if f is not None)
    return None


def _node(like: Array, formula: Formula, name: str) -> GraphNode:
    dtype = str(dtype_of(like.dtype))
    made = te.compute(like.shape, lambda *i: te.cast(dtype, formula(*i)), name="positions")
    return apply(TeFunction.trace(lambda: made, (), name), ())


# -- forms: each gives the formula of an array, or None ----------------------------------------------------


def affine(array: Array) -> Formula | None:
    """first + Σ step * index, as positions are."""
    if not _is_whole(array):
        return None
    first = int(array.flat[0])
    lines = [np.moveaxis(array, d, 0) for d in range(array.ndim)]
    steps = [int(x[1].flat[0]) - first if len(x) > 1 else 0 for x in lines]
    total = np.full(array.shape, first)
    grid: Any = np.indices(array.shape, sparse=True)
    for k, index in zip(steps, grid, strict=True):
        total = total + k * index
    if not np.array_equal(array, total):
        return None

    def at(*indices: Any) -> Any:
        total: Any = const(first, int64)
        for k, i in zip(steps, indices, strict=True):
            total = total + i * k if k else total
        return total

    return at


def wrapped(array: Array) -> Formula | None:
    """(first + index) modulo a number: a roll, or repetitions."""
    if array.ndim != 1 or not _is_whole(array):
        return None
    first, count = int(array[0]), int(array.max()) + 1
    fits = count > 0 and np.array_equal(array, (first + np.arange(len(array))) % count)
    return (lambda i: (i + first) % count) if fits else None


def mirrored(array: Array) -> Formula | None:
    """|index - before|, mirrored again at the end: a border of mirrored elements."""
    if array.ndim != 1 or not _is_whole(array):
        return None
    before, last = int(array[0]), int(array.max())
    if not np.array_equal(array, last - np.abs(last - np.abs(np.arange(len(array)) - before))):
        return None
    return lambda i: last - _abs(last - _abs(i - before))


def held(array: Array) -> Formula | None:
    """index - before, but at least 0 and at most a number: a border of the outermost elements."""
    if array.ndim != 1 or not _is_whole(array):
        return None
    before, last = int((array == array[0]).sum()) - 1, int(array.max())
    fits = np.array_equal(array, np.clip(np.arange(len(array)) - before, 0, last))
    return (lambda i: te.maximum(te.minimum(i - before, last), 0)) if fits else None


def band(array: Array) -> Formula | None:
    """One value where column - row is less than a number, and another value elsewhere: a causal mask."""
    if array.ndim < 2 or any(n != 1 for n in array.shape[:-2]):
        return None
    matrix = array.reshape(array.shape[-2:])
    low, high = matrix[-1, 0], matrix[0, -1]
    rows, columns = (np.arange(n) for n in matrix.shape)
    first = int((matrix[0] == low).sum())
    if low == high or not np.array_equal(matrix, np.where(columns - rows[:, None] < first, low, high)):
        return None
    one, other = (const(v.item(), dtype_of(array.dtype)) for v in (low, high))
    return lambda *i: te.if_then_else(i[-1] - i[-2] < first, one, other)


def between(array: Array) -> Formula | None:
    """Shares of the two elements next to each place between elements: an enlargement by straight lines.

    Rows are places: their centres are evenly spread over the elements' (as in torch), or the first and the
    last place are elements.
    """
    if array.ndim != 2 or array.dtype.kind != "f" or min(array.shape) < 2:
        return None
    places, count = array.shape
    rows, columns = (np.arange(n, dtype=np.float64) for n in array.shape)
    centred = np.clip((rows + 0.5) * count / places - 0.5, 0.0, count - 1.0)
    at_ends = rows * (count - 1) / (places - 1)
    fits = [
        np.allclose(array, np.maximum(1 - np.abs(x[:, None] - columns), 0), rtol=0, atol=CLOSE)
        for x in (centred, at_ends)
    ]
    if not any(fits):
        return None

    def share(row: Any, column: Any) -> Any:
        i, j = te.cast("float64", row), te.cast("float64", column)
        n, m = (const(float(x), float64) for x in (count, places))
        one = const(1.0, float64)
        if fits[0]:
            x = te.minimum(te.maximum((i + 0.5) * n / m - 0.5, 0.0), const(count - 1.0, float64))
        else:
            x = i * const(count - 1.0, float64) / const(places - 1.0, float64)
        return te.maximum(one - _abs(x - j), const(0.0, float64))

    return share


FORMS: tuple[Callable[[Array], Formula | None], ...] = (affine, wrapped, mirrored, held, band, between)


def _abs(x: Any) -> Any:
    return te.maximum(x, 0 - x)


def _is_whole(array: Array) -> bool:
    """Whether an array has elements, and all are whole numbers."""
    return array.size > 0 and array.dtype.kind in "iuf" and bool((array % 1 == 0).all())


__all__ = ["FORMS", "with_formulas"]
