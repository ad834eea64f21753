"""The region of every stage and input, in each dimension, that a tile of a pipeline's last stage needs.

    out[64 rows] ──▶ by[64 rows] ──▶ bx[66 rows] ──▶ in[66 rows]

The regions are for a tile in the middle; tiles at the borders need less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from autotensor.ir.bounds import Interval, bounds
from autotensor.ir.expr import Expr
from autotensor.ir.visit import free_vars
from autotensor.schedule.extents import access
from autotensor.te.dag import StageOp

Side = tuple[int, int]  # the first and the last index
Box = tuple[Side, ...]
FAR = 1 << 40


def regions(last: StageOp, tile: Mapping[str, int], order: Sequence[StageOp]) -> dict[str, Box]:
    """For each buffer, the box that one tile needs.

    tile: the tile's extents by the last stage's axes; an axis without an extent is whole. order: all stages
    up to the last one, producers first.
    """
    own = tuple(_middle(a.extent, tile.get(a.name, a.extent)) for a in last.axes)
    return _needed(last, own, order, {})


def windows(
    last: StageOp, tile: Mapping[str, int], order: Sequence[StageOp], axis: str, rows: int
) -> dict[str, Box]:
    """For each buffer, the box that one step of a tile needs. A step has `rows` rows along an axis. The rows
    that earlier steps have computed are kept, so only the new rows of a stage read other stages.

        out[4 rows] ──▶ by[4 rows] ──▶ bx[6 rows], of which 4 are new ──▶ in[4 rows]
    """
    own = tuple(_middle(a.extent, rows if a.name == axis else tile.get(a.name, a.extent)) for a in last.axes)
    next_one = tuple(
        (low + rows, high + rows) if a.name == axis else (low, high)
        for a, (low, high) in zip(last.axes, own, strict=True)
    )
    now, then = _needed(last, own, order, {}), _needed(last, next_one, order, {})
    new = {
        name: tuple(b[1] - a[1] for a, b in zip(box, then[name], strict=True)) for name, box in now.items()
    }
    return _needed(last, own, order, new)


def _needed(
    last: StageOp, own: Box, order: Sequence[StageOp], new: Mapping[str, tuple[int, ...]]
) -> dict[str, Box]:
    """For each buffer, the box that a box of the last stage needs. new: the extent that is computed at the
    end of each dimension of a box, because the rest is kept; 0: the whole dimension."""
    found: dict[str, Box] = {b.name: own for b in last.buffers}
    for op in reversed(order):
        wanted = [found[b.name] for b in op.buffers if b.name in found]
        if not wanted:
            continue
        here = reduce(_joined, wanted)
        found.update((b.name, here) for b in op.buffers)  # all results of a stage are computed together
        name = op.buffers[0].name
        if op is not last and name in new:
            here = tuple(
                (max(low, high - n + 1), high) if n > 0 else (low, high)
                for (low, high), n in zip(here, new[name], strict=True)
            )
        ranges = {a.name: side for a, side in zip(op.axes, here, strict=True)}
        ranges.update({a.name: (0, a.extent - 1) for a in op.reduce_axes})
        for load in op.loads():
            sides = zip(load.indices, load.buffer.shape, strict=True)
            box = tuple(_side(i, n, ranges) for i, n in sides)
            found[load.buffer.name] = _joined(found.get(load.buffer.name, box), box)
    return found


def extents_of(box: Box) -> tuple[int, ...]:
    return tuple(high - low + 1 for low, high in box)


def _middle(extent: int, size: int) -> Side:
    size = min(size, extent)
    first = (extent - size) // 2 // size * size
    return first, first + size - 1


def _side(index: Expr, extent: int, ranges: Mapping[str, Side]) -> Side:
    """The range of a dimension that an index covers."""
    form = access(index)
    if form is not None and not form.div and form.steps.keys() <= ranges.keys():
        ends = [(k * ranges[a][0], k * ranges[a][1]) for a, k in form.steps.items()]
        low = form.constant + sum(min(e) for e in ends)
        high = form.constant + sum(max(e) for e in ends)
        if form.mod:
            low, high = _remainders(low, high, form.mod)
    else:
        known = {v: Interval(*ranges[v.name]) for v in free_vars(index) if v.name in ranges}
        found = bounds(known).of(index)
        low = -FAR if found.lo is None else found.lo
        high = FAR if found.hi is None else found.hi
    return max(0, min(low, extent - 1)), max(0, min(high, extent - 1))


def _remainders(low: int, high: int, c: int) -> Side:
    """The remainders by c of an index. All boxes of a stage have the same extents. So if any tile goes around
    the end, like one of (i + 1) % c, every box has all remainders."""
    size = high - low + 1
    return (low % c, low % c + size - 1) if low % size == 0 and c % size == 0 else (0, c - 1)


def _joined(a: Box, b: Box) -> Box:
    return tuple((min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b, strict=True))
