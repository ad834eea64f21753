"""Computes sums of products as matrix products, so that exact references of whole models are affordable.

    C[n,h,w,o] = Σ_{i,r,s} pad(X)[n,h+r,w+s,i] · W[o,i,r,s]

            factors by the axes that they depend on           matrix product
    X-part  n h w · i r s   ──▶ [n h w, i r s] ─┐
    W-part  · · · o i r s   ──▶ [i r s, o]     ─┴▶ [n h w, o]

Every factor is evaluated over its own axes only, by the same expression evaluator as everything else. Only
the multiplying and adding is left to NumPy's matrix product. NumPy adds in another order, so this module is
for float64 only: in float64, the difference is far below the errors that tests look for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from autotensor.ir.expr import Binary, Cast, Const, Expr, Op, Select, Var, const
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.visit import walk
from autotensor.te.dag import IterDef, StageOp

Array = np.ndarray[Any, Any]
Box = tuple[tuple[int, int], ...]  # for each axis: its first index, and its last index plus 1
Grid = Mapping[Var, Array]
Evaluator = Callable[[Grid, Expr], Array]

FEW_POINTS = 1 << 16  # stages with at most this many points are computed point by point just as fast
LEAST_PRODUCT = 16  # rows × columns of a matrix product that is worth a call
# most points of a factor at a time: 32 MB in float64, and as much again for each of its index arrays
FACTOR_POINTS = 4 << 20


def contracted(stage: StageOp, value: Evaluator) -> Array | None:
    """The value, in float64, that a sum of products adds to its identity; None if the stage is not such a
    sum.

    value: computes an expression over a grid of axes; its result has extent 1 along the axes on which the
    expression does not depend. If a condition leaves out products, all factors must be finite; otherwise the
    result is None.
    """
    if not _is_sum(stage) or stage.points() <= FEW_POINTS:
        return None
    whole_shape = [a.extent for a in stage.axes]
    stage = _with_groups_apart(stage)
    parts, guards = _factors(stage.bodies[0])
    axes = stage.all_axes
    groups = _grouped(parts, axes=[a.var for a in axes], extents=[a.extent for a in axes])
    if groups is None or not _is_worth_it(stage, groups):
        return None
    out = np.zeros([a.extent for a in stage.axes])
    for box in _boxes([a.extent for a in axes], [g for g, _ in groups]):
        arrays = []
        grid = _grid(stage, box)
        for own, factors in groups:
            values = [value(grid, f) for f in factors]
            if guards and not all(np.isfinite(v).all() for v in values):
                return None
            shape = [stop - start if n in own else 1 for n, (start, stop) in enumerate(box)]
            whole = reduce(np.multiply, values) if len(values) > 1 else values[0]
            arrays.append(np.broadcast_to(whole, shape).astype(np.float64, copy=False))
        rank = len(stage.axes)
        unread = [n for n in range(rank, len(axes)) if not any(n in own for own, _ in groups)]
        times = prod(box[n][1] - box[n][0] for n in unread)
        out[tuple(slice(*b) for b in box[:rank])] += times * _product(arrays[0], arrays[1], rank)
    return out.reshape(whole_shape)


def _with_groups_apart(stage: StageOp) -> StageOp:
    """The stage; an axis is split if some factor uses only the axis's group, as in grouped convolutions.

    X[…, o // 8 * 4 + i] · W[o, i, …]     ──▶     X[…, g * 4 + i] · W[g * 8 + o, i, …]

    The elements stay in their order.
    """
    axes: list[IterDef] = []
    bodies = stage.bodies
    for axis in stage.axes:
        size = _group_size(axis, bodies)
        if not size:
            axes.append(axis)
            continue
        groups = IterDef(f"{axis.name}:group", axis.extent // size)  # no author's name holds a colon
        inside = IterDef(f"{axis.name}:inside", size)
        axes += [groups, inside]
        whole = groups.var * const(size, groups.var.dtype) + inside.var

        def of_group(node: Any, axis: IterDef = axis, group: Var = groups.var) -> Expr | None:
            match node:
                case Binary(Op.FLOORDIV, v, Const()) if v == axis.var:
                    return group
            return None

        bodies = tuple(substitute(transform(b, of_group), {axis.var: whole}) for b in bodies)
    return replace(stage, axes=tuple(axes), bodies=bodies)


def _group_size(axis: IterDef, bodies: Sequence[Expr]) -> int:
    """The one number by which the bodies divide the axis; 0 if there are several, or if a rest remains."""
    sizes = {
        node.b.value
        for body in bodies
        for node in walk(body)
        if isinstance(node, Binary)
        and node.op is Op.FLOORDIV
        and node.a == axis.var
        and isinstance(node.b, Const)
    }
    (size,) = sizes if len(sizes) == 1 else (0,)
    return int(size) if size > 0 and axis.extent % size == 0 else 0


def _is_sum(stage: StageOp) -> bool:
    """Whether the stage has one float result, the sum of its terms."""
    c = stage.combiner
    if c is None or len(stage.bodies) != 1 or not stage.buffers[0].dtype.is_float:
        return False
    match c.result:
        case (Binary(Op.ADD, a, b),):
            return {a, b} == {c.lhs[0], c.rhs[0]}
    return False


def _factors(e: Expr) -> tuple[list[Expr], bool]:
    """The factors of a term, and whether a condition leaves terms out.

    Conversions between floats are skipped: they round, and a float64 reference does not.
    """
    match e:
        case Cast(t, a) if t.is_float and a.dtype.is_float:
            return _factors(a)
        case Binary(Op.MUL, a, b) if e.dtype.is_float:
            (left, x), (right, y) = _factors(a), _factors(b)
            return [*left, *right], x or y
        case Select(cond, a, Const(0)) if e.dtype.is_float:
            inner, _ = _factors(a)
            if len(inner) > 1:  # Σ (c ? x·w : 0) = Σ (c ? x : 0)·w, if w is finite
                first = _nearest(cond, inner)
                rest = [f for n, f in enumerate(inner) if n != first]
                return [Select(cond, inner[first], Const(0.0, inner[first].dtype)), *rest], True
    return [e], False


def _nearest(cond: Expr, factors: Sequence[Expr]) -> int:
    """The factor that shares the most variables with the condition."""
    wanted = _vars(cond)
    return max(range(len(factors)), key=lambda n: len(wanted & _vars(factors[n])))


def _vars(e: Expr) -> set[Var]:
    return {node for node in walk(e) if isinstance(node, Var)}


Group = tuple[frozenset[int], list[Expr]]  # positions of axes, and the factors that depend on no other axes


def _grouped(factors: Sequence[Expr], axes: Sequence[Var], extents: Sequence[int]) -> list[Group] | None:
    """The factors in two groups, such that no group depends on all axes; None if that is not possible."""
    number = {v: n for n, v in enumerate(axes)}
    groups: list[Group] = []
    for f in factors:
        own = frozenset(number[v] for v in _vars(f) if v in number)
        groups.append((own, [f]))

    def points(own: frozenset[int]) -> int:
        return prod(extents[n] for n in own)

    while len(groups) > 2:  # join the two groups that together have the fewest points
        pairs = [(m, n) for n in range(len(groups)) for m in range(n)]
        a, b = min(pairs, key=lambda p: points(groups[p[0]][0] | groups[p[1]][0]))
        joined = (groups[a][0] | groups[b][0], groups[a][1] + groups[b][1])
        groups = [joined, *(g for n, g in enumerate(groups) if n not in (a, b))]
    everything = frozenset(n for n, extent in enumerate(extents) if extent > 1)
    if len(groups) < 2 or any(everything <= own for own, _ in groups):
        return None
    return groups


def _is_worth_it(stage: StageOp, groups: Sequence[Group]) -> bool:
    """Whether the matrix product has enough rows and columns to be worth a call."""
    rank, extents = len(stage.axes), [a.extent for a in stage.all_axes]
    only = [own - other for own, other in ((groups[0][0], groups[1][0]), (groups[1][0], groups[0][0]))]
    rows, columns = (prod(extents[n] for n in o if n < rank) for o in only)
    return rows * columns >= LEAST_PRODUCT


def _boxes(extents: Sequence[int], groups: Sequence[frozenset[int]]) -> Iterator[Box]:
    """Boxes that tile the space. In a box, no group of factors has more than FACTOR_POINTS points."""
    todo: list[Box] = [tuple((0, n) for n in extents)]
    while todo:
        box = todo.pop()
        sizes = [stop - start for start, stop in box]
        largest = max(groups, key=lambda g: prod(sizes[n] for n in g))
        if prod(sizes[n] for n in largest) <= FACTOR_POINTS:
            yield box
            continue
        cut = max(largest, key=lambda n: sizes[n])
        start, stop = box[cut]
        middle = (start + stop) // 2
        todo += [(*box[:cut], part, *box[cut + 1 :]) for part in ((middle, stop), (start, middle))]


def _grid(stage: StageOp, box: Box) -> dict[Var, Array]:
    rank = len(box)
    return {
        axis.var: np.arange(start, stop, dtype=np.int64).reshape([-1 if m == n else 1 for m in range(rank)])
        for n, (axis, (start, stop)) in enumerate(zip(stage.all_axes, box, strict=True))
    }


def _product(a: Array, b: Array, rank: int) -> Array:
    """Σ a·b over the axes from `rank` on. An array has extent 1 along an axis on which it does not depend.

    A: [batch, rows, k] and B: [batch, k, columns], whatever the order of the axes.
    """
    inner = range(rank, a.ndim)
    alone_a = tuple(n for n in inner if a.shape[n] > 1 and b.shape[n] == 1)
    alone_b = tuple(n for n in inner if b.shape[n] > 1 and a.shape[n] == 1)
    a, b = a.sum(axis=alone_a, keepdims=True), b.sum(axis=alone_b, keepdims=True)
    both = [n for n in range(rank) if a.shape[n] > 1 and b.shape[n] > 1]
    rows = [n for n in range(rank) if n not in both and b.shape[n] == 1]  # also where both have extent 1
    columns = [n for n in range(rank) if n not in both and n not in rows]
    order = (*both, *rows, *columns)
    left = a.transpose(*both, *rows, *inner, *columns)
    right = b.transpose(*both, *inner, *columns, *rows)

    def size(x: Array, axes: Sequence[int]) -> int:
        return prod(x.shape[n] for n in axes)

    batch, depth = size(a, both), size(a, inner)
    made = left.reshape(batch, size(a, rows), depth) @ right.reshape(batch, depth, size(b, columns))
    shape = [max(a.shape[n], b.shape[n]) for n in order]
    back = sorted(range(rank), key=lambda n: order[n])
    return made.reshape(shape).transpose(back)


__all__ = ["contracted"]
