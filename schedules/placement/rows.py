"""Several rows of a stencil are computed together, so that elements that they share are loaded once."""

from __future__ import annotations

from collections import Counter

from autotensor.base.target import Target
from autotensor.ir.func import Buffer
from autotensor.schedule.sketch import Hole
from autotensor.te.dag import StageOp
from schedules.cpu import LINE, PAGE, cpu_of
from schedules.kit.tiles import nearest, singles
from schedules.placement.reads import Index, Points, Reads, Sum, shares_rows

ROWS = (1, 2, 4)  # numbers of rows that are unrolled
# rows whose distance differs from whole pages by at most these bytes count as whole pages apart (chosen,
# 2026-11)
NEAR = 2 * LINE


def rows_hole(op: StageOp, seen: Reads, target: Target, whole: bool = True) -> Hole:
    """The hole for the number of rows of a stage that are unrolled.

    seen: the points that an evaluation reads, from `points_read`. whole: the stage is stored as a whole, and
    its operands are loaded. Otherwise the stage is in a small array, or its operands may still be inlined, so
    that computing them again costs more.
    """
    options = tuple(n for n in ROWS if n <= op.axes[-2].extent)
    cpu = cpu_of(target)

    def fits(rows: int) -> bool:
        held = _held(op, seen, rows) <= cpu.stencil_held * cpu.vector_registers
        return rows == 1 or (held and _in_one_set(op, seen, rows) < cpu.stencil_ways * cpu.ways)

    most = nearest(tuple(filter(fits, options)), cpu.stencil_rows)
    row = _row_bytes(op.buffers[0])
    ragged = whole and row % LINE != 0
    least = cpu.stencil_paged if min(row % PAGE, -row % PAGE) <= NEAR else cpu.stencil_ragged
    saved = _loads(op, seen, 1) - _loads(op, seen, most) / most
    return Hole(f"{op.name}/rows", singles(options), (1 if ragged and saved < least else most,))


def rows_together(op: StageOp, seen: Reads, target: Target, whole: bool) -> int:
    """The number of rows that are computed together without measuring; 1 if neighbouring rows read nothing in
    common. seen, whole: as for `rows_hole`."""
    return rows_hole(op, seen, target, whole).default[0] if shares_rows(op, seen) else 1


def distinct(points: Points, op: StageOp, rows: int) -> int:
    """The number of different points of this many neighbouring rows of a stage."""
    if rows == 1:
        return len(points)
    row = op.axes[-2].name
    return len({tuple(_moved(i, row, n) for i in p) for p in points for n in range(rows)})


def _held(op: StageOp, seen: Reads, rows: int) -> int:
    """The number of values that several of these rows load. Registers hold them, or they are loaded again.
    The result is 0 if some of them are inlined, because computing these again costs more."""
    if set(seen) - {b.name for b in op.reads()}:
        return 0
    row = op.axes[-2].name
    readers = Counter(
        (name, *(_moved(i, row, n) for i in p))
        for name, points in seen.items()
        for p in points
        for n in range(rows)
    )
    return sum(count > 1 for count in readers.values())


def _in_one_set(op: StageOp, seen: Reads, rows: int) -> int:
    """The lines in one set of the nearest cache for rows that are whole pages apart, including the written
    rows."""
    row, far = op.axes[-2].name, [b.name for b in op.reads() if _rows_are_pages(b)]
    read = {
        (name, *(_moved(i, row, n) for i in p[:-1]))
        for name in far for p in seen.get(name, ()) for n in range(rows)
    }  # fmt: skip
    return len(read) + (rows if _rows_are_pages(op.buffers[0]) else 0)


def _rows_are_pages(b: Buffer) -> bool:
    return len(b.shape) > 1 and _row_bytes(b) % PAGE == 0


def _row_bytes(b: Buffer) -> int:
    return next((n for n in reversed(b.shape) if n > 1), 1) * b.dtype.bytes


def _loads(op: StageOp, seen: Reads, rows: int) -> int:
    return sum(distinct(points, op, rows) for points in seen.values())


def _moved(index: Index, row: str, by: int) -> object:
    if isinstance(index, Sum):
        return Sum(index.steps, index.constant + by * index.step(row))
    return index, by


__all__ = ["distinct", "rows_hole", "rows_together"]
