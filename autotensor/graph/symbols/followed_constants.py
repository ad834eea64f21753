"""Constants that differ between extents are written as formulas of indices; their numbers follow the extents.

    take(table, [5, 6, 7])    at past = 5, length = 3      ──▶    take(table, positions())
    take(table, [2, 3])       at past = 2, length = 2             positions: i ──▶ i + 5;  i ──▶ i + 2

Front ends write positions, masks, and the places of a roll or of a mirrored border as constants. If a
constant is the beginning of the constant at the greatest extents, it stays, and all kernels read the latter
(`generalise.py`). For other constants, the formulas of `FORMS` are tried. `generalise.py` finds how the
numbers of a formula follow the symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import DType, dtype_of, float32, float64, int64
from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.function import TeFunction
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.constants import is_grown
from autotensor.graph.symbols.graph_families import Choice
from autotensor.graph.symbols.samples import Samples
from autotensor.graph.symbols.side_by_side import Alike, is_beginning, numbers_of, side_by_side
from autotensor.graph.tables import windows
from autotensor.ir.expr import const

CLOSE = 2e-6  # constants of front ends are rounded to float32, as are their steps
Arrays = Sequence[Array]  # the same value in each graph


@dataclass(frozen=True, slots=True)
class Form:
    """One way to compute arrays: the numbers by which they differ, and the element at some indices."""

    numbers: Callable[[Array], tuple[Any, ...] | None]  # None: the array has another form
    element: Callable[..., Any]  # of the numbers and the indices


def with_formulas(graphs: Sequence[Graph]) -> list[Graph]:
    """The graphs with formulas in place of constants that differ; unchanged if their operators differ.

    A value that depends on constants only is computed now. If it differs and has no formula, it is computed
    from formulas when the model runs. A table that is a formula of its numbers (`graph/tables.py`) is
    computed then, too.
    """
    alike = side_by_side(graphs)
    if alike is None:
        return list(graphs)
    known = _constant_values(alike)
    told = _told(known)
    parts = _parts_of_others(known, told)
    made: dict[Alike, Alike] = {}
    for nodes in alike:
        arrays = known.get(nodes)
        name = f"positions_{len(made)}"  # so that formulas that are equal at some extents are not merged
        followed = None
        if arrays is not None and nodes not in told:
            followed = _formulas(arrays, name) if nodes in parts else _followed(arrays, name)
        if followed is None and isinstance(nodes[0], Apply):
            read = _inputs(nodes)
            inputs = [made[x] for x in read]
            if arrays is not None:
                named = ((x, f"{name}_{k}") for k, x in enumerate(read))
                inputs = [_number(known[x], n) or made[x] for x, n in named]
            given = zip(*inputs, strict=True) if inputs else [()] * len(nodes)
            followed = tuple(n.given(x) for n, x in zip(_applied(nodes), given, strict=True))
        made[nodes] = followed or nodes
    outputs = [made[x] for x in zip(*(g.outputs for g in graphs), strict=True)]
    return [g.with_outputs(x) for g, x in zip(graphs, zip(*outputs, strict=True), strict=True)]


def _told(known: Mapping[Alike, Arrays]) -> set[Alike]:
    """Values whose formulas are known, so that none is guessed from their elements.

    They are tables that are te functions of numbers that differ, and all values that are computed from such
    tables or from other values without a form.
    """
    told: set[Alike] = set()
    formless: set[Alike] = set()
    for nodes, arrays in known.items():
        if isinstance(nodes[0], Apply):
            read = _inputs(nodes)
            if _is_table(nodes, known) or any(x in told or x in formless for x in read):
                told.add(nodes)
        if nodes not in told and not _is_followed(arrays):
            formless.add(nodes)
    return told


def _is_table(nodes: Alike, known: Mapping[Alike, Arrays]) -> bool:
    read = _inputs(nodes)
    if not isinstance(nodes[0], Apply) or not isinstance(nodes[0].op, TeFunction):
        return False
    if nodes[0].shape == (1,):
        return False
    differs = any(not is_beginning(a, known[x][0]) for x in read for a in known[x])
    return differs and all(known[x][0].size == 1 for x in read)


def _parts_of_others(known: Mapping[Alike, Arrays], told: Collection[Alike]) -> set[Alike]:
    """Values from which values without a formula are made: the rows and columns of a grid, for example.

    If these were constants, the values made from them would be constants, too. So formulas replace those that
    differ between the samples.
    """
    parts: set[Alike] = set()
    for nodes, arrays in reversed(list(known.items())):
        if isinstance(nodes[0], Apply) and (nodes in parts or nodes in told or not _is_followed(arrays)):
            inputs = (x for x in _inputs(nodes) if x in known)
            parts.update(x for x in inputs if len({a.shape for a in known[x]}) > 1)
    return parts


def _is_followed(arrays: Arrays) -> bool:
    return _is_kept(arrays) or _form(arrays) is not None


def _is_kept(arrays: Arrays) -> bool:
    """Whether the arrays may stay constants, because `generalise.py` finds how they follow the symbols."""
    if all(is_beginning(a, arrays[0]) for a in arrays):
        return True
    return arrays[0].size == 1 and all(map(_is_extent_or_inverse, arrays))


def _is_extent_or_inverse(array: Array) -> bool:
    """Whether a number is whole, or 1 divided by a whole number; other numbers do not follow extents."""
    x = array.item()
    if array.dtype.kind != "f" or not np.isfinite(x):
        return array.dtype.kind != "c"
    return x.is_integer() or bool(array.dtype.type(1 / round(1 / x)) == x if round(1 / x) else False)


def unforeseen(samples: Samples, choice: Choice, alike: Sequence[Alike]) -> GraphNode | None:
    """The first value of constants at a choice that does not follow from its values at the samples.

    alike: the nodes of the graphs at the samples, and of the graph at the choice, which is the last.
    """
    known = _constant_values(alike)
    told = _told(known)
    for nodes, (*seen, found) in known.items():
        if nodes in told or all(a is found for a in seen):  # as weights are
            continue
        follows = _foretold(samples, choice, seen, nodes[-1])
        if follows is not None and not _is_same(found, follows):
            return nodes[-1]
    return None


def _is_same(found: Array, follows: Array) -> bool:
    """Whether arrays are equal. Numbers that are not whole may differ by rounding."""
    if _is_whole(follows):
        return np.array_equal(found, follows)
    return np.allclose(found, follows, rtol=1e-3, atol=CLOSE, equal_nan=True)


def _foretold(samples: Samples, choice: Choice, seen: Arrays, like: GraphNode) -> Array | None:
    """The array that the samples predict at a choice; None if none, and its kernels are then refused."""
    whole = seen[0]
    if all(is_beginning(a, whole) for a in seen):
        fits = all(n <= m for n, m in zip(like.shape, whole.shape, strict=True))
        return whole[tuple(map(slice, like.shape))] if fits else None
    if whole.size == 1:
        number = samples.value([a.item() for a in seen], choice)
        return None if number is None else np.full(like.shape, number, whole.dtype)
    form, found = _form(seen) or (None, [])
    numbers = tuple(samples.value(column, choice) for column in zip(*found, strict=True))
    if form is None or None in numbers:
        return None
    return evaluate_node(_node(np.empty(like.shape, whole.dtype), form, numbers, "foretold"), [])


def _constant_values(alike: Sequence[Alike]) -> dict[Alike, Arrays]:
    """The values in each graph that depend on constants only, and are not much larger than the constants."""
    known: dict[Alike, Arrays] = {}
    for nodes in alike:
        arrays = [n.array for n in nodes if isinstance(n, Constant)]
        if not arrays and isinstance(nodes[0], Apply):
            inputs = [known[x] for x in _inputs(nodes) if x in known]
            if inputs and len(inputs) == len(nodes[0].inputs) and not any(map(is_grown, _applied(nodes))):
                arrays = _evaluated(_applied(nodes), inputs)
        if arrays:
            known[nodes] = arrays
    return known


def _evaluated(applied: Sequence[Apply], inputs: Sequence[Arrays]) -> list[Array]:
    shared = all(x is xs[0] for xs in inputs for x in xs)  # as weights are
    if shared and all(numbers_of(n) == numbers_of(applied[0]) for n in applied):
        return [evaluate_node(applied[0], [xs[0] for xs in inputs])] * len(applied)
    return [evaluate_node(n, list(x)) for n, x in zip(applied, zip(*inputs, strict=True), strict=True)]


def _applied(nodes: Alike) -> list[Apply]:
    return [n for n in nodes if isinstance(n, Apply)]


def _inputs(nodes: Alike) -> list[Alike]:
    return list(zip(*(n.inputs for n in _applied(nodes)), strict=True))


def _followed(arrays: Arrays, name: str) -> Alike | None:
    """Nodes with these values: constants if each is a number or the beginning of the first, or formulas."""
    return tuple(map(constant, arrays)) if _is_kept(arrays) else _formulas(arrays, name)


def _number(arrays: Arrays, name: str) -> Alike | None:
    """Formulas of numbers that differ, for nodes that are to be computed when the model runs."""
    if arrays[0].size > 1 or all(is_beginning(a, arrays[0]) for a in arrays):
        return None
    return _formulas(arrays, name) or tuple(
        _node(a, single, (a.item(), dtype_of(a.dtype)), name) for a in arrays
    )


def _formulas(arrays: Arrays, name: str) -> Alike | None:
    form, found = _form(arrays) or (None, [])
    if form is None:
        return None
    return tuple(_node(a, form, numbers, name) for a, numbers in zip(arrays, found, strict=True))


def _form(arrays: Arrays) -> tuple[Form, list[tuple[Any, ...]]] | None:
    """The first form that all arrays have, and the numbers of each array."""
    for form in FORMS:
        found = [numbers for a in arrays if (numbers := form.numbers(a)) is not None]
        if len(found) == len(arrays):
            return form, found
    return None


def _node(like: Array, form: Form, numbers: tuple[Any, ...], name: str) -> Apply:
    dtype = str(dtype_of(like.dtype))
    made = te.compute(like.shape, lambda *i: te.cast(dtype, form.element(numbers, *i)), name="positions")
    return apply(TeFunction.trace(lambda: made, (), name), ())


# -- forms -------------------------------------------------------------------------------------------------


def _affine(array: Array) -> tuple[int, ...] | None:
    if not _is_whole(array):
        return None
    first = int(array.flat[0])
    lines = [np.moveaxis(array, d, 0) for d in range(array.ndim)]
    steps = [int(x[1].flat[0]) - first if len(x) > 1 else 0 for x in lines]
    total = np.full(array.shape, first)
    grid: Any = np.indices(array.shape, sparse=True)
    for k, index in zip(steps, grid, strict=True):
        total = total + k * index
    return (first, *steps) if np.array_equal(array, total) else None


def _affine_at(numbers: tuple[int, ...], *indices: Any) -> Any:
    first, *steps = numbers
    total: Any = const(first, int64)
    for k, i in zip(steps, indices, strict=True):
        total = total + i * k if k else total
    return total


def _wrapped(array: Array) -> tuple[int, int] | None:
    if array.ndim != 1 or not _is_whole(array):
        return None
    first, count = int(array[0]), int(array.max()) + 1
    fits = count > 0 and np.array_equal(array, (first + np.arange(len(array))) % count)
    return (first, count) if fits else None


def _mirrored(array: Array) -> tuple[int, int] | None:
    if array.ndim != 1 or not _is_whole(array):
        return None
    before, last = int(array[0]), int(array.max())
    fits = np.array_equal(array, last - np.abs(last - np.abs(np.arange(len(array)) - before)))
    return (before, last) if fits else None


def _held(array: Array) -> tuple[int, int] | None:
    if array.ndim != 1 or not _is_whole(array):
        return None
    before, last = int((array == array[0]).sum()) - 1, int(array.max())
    fits = np.array_equal(array, np.clip(np.arange(len(array)) - before, 0, last))
    return (before, last) if fits else None


def _stretched(array: Array) -> tuple[int, int] | None:
    if array.ndim != 1 or not _is_whole(array):
        return None
    count, places = int(array.max()) + 1, len(array)
    fits = 0 < count <= places and np.array_equal(array, np.arange(places) * count // places)
    return (count, places) if fits else None


def _stretched_rounded(array: Array) -> tuple[int, int] | None:
    if array.ndim != 1 or not _is_whole(array):
        return None
    count, places = int(array.max()) + 1, len(array)
    if not 0 < count <= places:
        return None
    step = np.float32(count) / np.float32(places)
    at = np.minimum(np.floor(np.arange(places, dtype=np.float32) * step), count - 1)
    return (count, places) if np.array_equal(array, at) else None


def _stretched_rounded_at(numbers: tuple[int, int], i: Any) -> Any:
    # loads, because the quotient of two numbers is neither an extent nor one divided by an extent
    count, places = (te.compute((1,), lambda _, n=n: const(n, int64), name="count") for n in numbers)
    step = te.cast("float32", count[0]) / te.cast("float32", places[0])
    at = te.cast("int64", te.floor(te.cast("float32", i) * step))
    return te.minimum(at, count[0] - 1)


def _windows(array: Array) -> tuple[int, int] | None:
    if array.ndim != 2 or array.dtype.kind != "f" or min(array.shape) < 2:
        return None
    count, extent = array.shape
    return (count, extent) if np.array_equal(array, windows(extent, count).astype(array.dtype)) else None


def _windows_at(numbers: tuple[int, int], o: Any, i: Any) -> Any:
    count, extent = numbers
    first, last = o * extent // count, ((o + 1) * extent + (count - 1)) // count
    share = const(1.0, float32) / te.cast("float32", last - first)
    return te.if_then_else(te.all(i >= first, i < last), share, const(0.0, float32))


def _band(array: Array) -> tuple[int, Any, Any, DType] | None:
    if array.ndim < 2 or any(n != 1 for n in array.shape[:-2]):
        return None
    matrix = array.reshape(array.shape[-2:])
    low, high = matrix[-1, 0], matrix[0, -1]
    rows, columns = (np.arange(n) for n in matrix.shape)
    first = int((matrix[0] == low).sum())
    if low == high or not np.array_equal(matrix, np.where(columns - rows[:, None] < first, low, high)):
        return None
    return first, low.item(), high.item(), dtype_of(array.dtype)


def _band_at(numbers: tuple[int, Any, Any, DType], *indices: Any) -> Any:
    first, low, high, dtype = numbers
    return te.if_then_else(indices[-1] - indices[-2] < first, const(low, dtype), const(high, dtype))


def _between(array: Array) -> tuple[int, int, bool] | None:
    """The places, the elements, and whether the first and the last place are elements.

    If they are not, the centres of the places are spread evenly over the elements (as in torch).
    """
    if array.ndim != 2 or array.dtype.kind != "f" or min(array.shape) < 2:
        return None
    places, count = array.shape
    rows, columns = (np.arange(n, dtype=np.float64) for n in array.shape)
    centred = np.clip((rows + 0.5) * count / places - 0.5, 0.0, count - 1.0)
    at_ends = rows * (count - 1) / (places - 1)
    for ends, x in ((False, centred), (True, at_ends)):
        shares = np.maximum(1 - np.abs(x[:, None] - columns), 0)
        if np.allclose(array, shares, rtol=0, atol=CLOSE):
            return places, count, ends
    return None


def _between_at(numbers: tuple[int, int, bool], row: Any, column: Any) -> Any:
    places, count, ends = numbers
    i, j = te.cast("float64", row), te.cast("float64", column)
    n, m = (const(float(x), float64) for x in (count, places))
    one, last = const(1.0, float64), const(count - 1.0, float64)
    if ends:
        x = i * last / const(places - 1.0, float64)
    else:
        x = te.minimum(te.maximum((i + 0.5) * n / m - 0.5, 0.0), last)
    return te.maximum(one - _abs(x - j), const(0.0, float64))


def _abs(x: Any) -> Any:
    return te.maximum(x, 0 - x)


def _is_whole(array: Array) -> bool:
    """Whether an array has elements, and all are whole numbers."""
    if array.size == 0 or array.dtype.kind not in "iuf":
        return False
    return bool(np.isfinite(array).all() and (array % 1 == 0).all())


# a number that may be a quotient of two extents, as the scales of a resize are
single = Form(lambda array: (array.item(), dtype_of(array.dtype)), lambda numbers, *_: const(*numbers))
# first + Σ step * index: positions
affine = Form(_affine, _affine_at)
# (first + index) modulo a number: a roll, or repetitions
wrapped = Form(_wrapped, lambda numbers, i: (i + numbers[0]) % numbers[1])
# |index - before|, mirrored again at the end: a border of mirrored elements
mirrored = Form(_mirrored, lambda numbers, i: numbers[1] - _abs(numbers[1] - _abs(i - numbers[0])))
# index - before, but at least 0 and at most a number: a border of the outermost elements
held = Form(_held, lambda numbers, i: te.maximum(te.minimum(i - numbers[0], numbers[1]), 0))
# index * elements // places: an enlargement that repeats elements
stretched = Form(_stretched, lambda numbers, i: i * numbers[0] // numbers[1])
# the same, where the quotient of elements and places is rounded to float32 first, as in torch
stretched_rounded = Form(_stretched_rounded, _stretched_rounded_at)
# one value where column - row is less than a number, and another value elsewhere: a causal mask
band = Form(_band, _band_at)
# shares of the two elements next to each place: an enlargement with linear interpolation
between = Form(_between, _between_at)
# 1 / the window's elements inside a window, and 0 outside: means over windows of nearly one size
averages = Form(_windows, _windows_at)

FORMS = (affine, wrapped, mirrored, held, stretched, stretched_rounded, band, between, averages)

__all__ = ["FORMS", "Form", "unforeseen", "with_formulas"]
