"""In a window over few channels, columns and channels are summed along one axis.

    C[y, x, o] = Σ_{p, q, c} (X[y·s + p, x·s + q, c] - z) * (W[o, c, p, q] - v)           of 3 channels

        ──▶   X.lines[y, i]     = X[y, i / 3, i % 3]           a line of memory, unchanged
              W.lines[o, p, r]  = W[o, r % 3, p, r / 3]        then v, up to a whole group
              C[y, x, o]        = Σ_{p, r} (X.lines[y·s + p, 3·s·x + r] - z) * (W.lines[o, p, r] - v)

A dot instruction adds groups of four terms. Three channels do not fill a group, but nine neighbours of a line
fill two groups and a part of a third. The terms after these nine are products with v - v = 0. Sums of
integers are the same in any order. In bfloat16, groups have two terms, and a product of an infinite number
and zero is NaN.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Cmp, Const, Expr, Load, Op, Select, Var, compare, const
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp
from autotensor.te.stage import IterDef
from autotensor.te.tensor import AxisKind
from schedules.algorithms.narrow_products import Factor, factors

NAME = "joined_window"
GROUPS = {1: 4, 2: 2}  # bytes of an element → terms that an instruction adds
MOST = 16  # channels; with more, groups of channels alone leave few channels over (chosen, 2026-11)


def joined_window(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The three stages; None unless the stage is a window over few channels that are innermost in the
    data."""
    op = stage.op
    found = factors(op)
    axes = None if found is None else _axes(op, found[0].load)
    if found is None or axes is None:
        return None
    (x, w), (column, channel) = found, axes
    depth = column.extent * channel.extent
    group = GROUPS[x.load.dtype.bytes]
    whole = ceil(depth / group) * group
    together = (column.var, channel.var)
    walked = [w.load.indices.count(v) for v in together]
    if walked != [1, 1] or (whole > depth and not isinstance(w.zero, Const)):
        return None
    names = set(state.names)
    r = IterDef(fresh("r", {a.name for a in op.all_axes}), whole, AxisKind.REDUCE)
    lines = _lines(x.load.buffer, whole - depth, names)
    panel = _panel(w, together, depth, whole, names)
    *above, row, _ = x.load.indices
    begin = substitute(row, {column.var: const(0)}) * channel.extent
    data = Load(lines.buffers[0], (*above, begin + r.var))
    weight = Load(panel.buffers[0], (*(i for i in w.load.indices if i not in together), r.var))
    body = Binary(Op.MUL, Factor(data, x.zero).value, Factor(weight, w.zero).value)
    summed = (*(a for a in op.reduce_axes if a not in axes), r)
    return lines, panel, replace(op, reduce_axes=summed, bodies=(body,))


def _axes(op: StageOp, data: Load) -> tuple[IterDef, IterDef] | None:
    """The axes of a window's columns and of its channels. The result is None if they are not next to each
    other in the data, in whole lines, or if groups of channels alone are possible."""
    if len(data.indices) < 2 or any(a.runtime is not None for a in op.all_axes):
        return None
    *above, row, last = data.indices
    places, walked = affine(row), free_vars(row)
    channel = next((a for a in op.reduce_axes if a.var is last), None)
    columns = [a for a in op.reduce_axes if a.var in walked]
    if channel is None or places is None or len(columns) != 1 or columns[0].extent == 1:
        return None
    few = channel.extent % GROUPS[data.dtype.bytes] and channel.extent <= MOST
    in_lines = channel.extent == data.buffer.shape[-1] and places.coefficient(columns[0].var) == 1
    apart = columns[0] is not channel and not any({columns[0].var, last} & free_vars(i) for i in above)
    return (columns[0], channel) if few and in_lines and apart else None


def _lines(data: Buffer, behind: int, names: set[str]) -> StageOp:
    """The data with columns and channels as one axis, and `behind` zeros after each line."""
    *above, columns, channels = data.shape
    axes = tuple(IterDef(f"d{n}", extent) for n, extent in enumerate((*above, columns * channels + behind)))
    *outer, i = (a.var for a in axes)
    value: Expr = Load(data, (*outer, i // channels, i % channels))
    if behind:
        value = Select(compare(Cmp.LT, i, const(columns * channels)), value, const(0, data.dtype))
    return _stage(f"{data.name}.lines", axes, value, names)


def _panel(w: Factor, together: tuple[Var, Var], depth: int, whole: int, names: set[str]) -> StageOp:
    """The weights with columns and channels as the last axis, filled up with their zero point."""
    old, channels = w.load.buffer, w.load.buffer.shape[w.load.indices.index(together[1])]
    kept = [n for n, i in enumerate(w.load.indices) if i not in together]
    extents = (*(old.shape[n] for n in kept), whole)
    axes = tuple(IterDef(f"d{n}", extent) for n, extent in enumerate(extents))
    *outer, r = (a.var for a in axes)
    place: dict[int, Expr] = dict(zip(kept, outer, strict=True))
    for v, digit in zip(together, (r // channels, r % channels), strict=True):
        place[w.load.indices.index(v)] = digit
    value: Expr = Load(old, tuple(place[n] for n in range(len(old.shape))))
    if whole > depth:
        assert isinstance(w.zero, Const)
        value = Select(compare(Cmp.LT, r, const(depth)), value, const(w.zero.value, old.dtype))
    return _stage(f"{old.name}.lines", axes, value, names)


def _stage(name: str, axes: tuple[IterDef, ...], value: Expr, names: set[str]) -> StageOp:
    buffer = Buffer(fresh(name, names), tuple(a.extent for a in axes), value.dtype)
    names.add(buffer.name)
    return StageOp(buffer.name, axes, (), (value,), None, (buffer,))


ALGORITHMS.add(NAME, Algorithm(NAME, joined_window))
