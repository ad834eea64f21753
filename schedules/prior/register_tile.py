"""The register tile of a stage, from its loop picture: rows, vectors, depth, loads, and crowded cache sets.

    for k: for rows, vectors (unrolled): for lanes (vectorized):     acc[row, vector] += a[row] * b[vector]

Each number is an array with one value for each candidate of a population.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import DOTS, DotInstruction
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import Access
from autotensor.schedule.formulas import Formula, elementwise
from autotensor.schedule.loop_picture import StagePicture
from autotensor.schedule.operands import Operand
from autotensor.te.tensor import AxisKind
from schedules.cpu import APART, LINE, PAGE

Floats = npt.NDArray[np.float64]

MOST_LINES = 1024  # most lines of a tile that are counted


@dataclass(frozen=True, slots=True)
class Tile:
    """The work of one pass through the innermost unrolled code."""

    rows: Floats  # vector accumulators (or stores) along the other axes
    vectors: Floats  # vector accumulators (or stores) along the vector's axis
    depth: Floats  # steps of the reduction
    loads: Floats  # different vectors, broadcast scalars, lanes of gathers
    lines: Floats  # lines of the broadcast operand, in the fullest set of L1
    chained: Floats  # 1 if a loop adds to the same accumulators in every step, otherwise 0

    @property
    def size(self) -> Floats:
        """Vectors that the tile writes or accumulates."""
        return self.rows * self.vectors


def full(x: Any, count: int) -> Floats:
    """An array with this value for each candidate."""
    if type(x) is Formula:
        return _real(x)
    return np.broadcast_to(np.asarray(x, dtype=np.float64), (count,)).astype(np.float64)


@elementwise
def _real(x: Any) -> Floats:
    return np.asarray(x, dtype=np.float64)


def added(numbers: Iterable[Floats]) -> Floats:
    """The sum of the arrays, added in order."""
    return reduce(np.add, numbers)


def tile_of(s: StagePicture, count: int, lanes: Floats) -> Tile:
    shape = shape_of(s, count)
    return Tile(*shape, _loads(s, count, lanes), _lines(s, count), _chained(s, count))


def shape_of(s: StagePicture, count: int) -> tuple[Floats, Floats, Floats]:
    """Rows, vectors and depth."""
    rows, vectors, depth = np.ones(count), np.ones(count), np.ones(count)
    own = s.levels[len(s.levels) - s.own :]
    along = {root(v.axis) for v in own if v.mark is Mark.VECTORIZED}
    for level in own:
        if level.mark is Mark.UNROLLED:
            if level.kind is AxisKind.REDUCE:
                depth = depth * full(level.extent, count)
            elif root(level.axis) in along:
                vectors = vectors * full(level.extent, count)
            else:
                rows = rows * full(level.extent, count)
    return rows, vectors, depth


def dot_of(s: StagePicture) -> DotInstruction | None:
    """The dot instruction of the stage's own loops."""
    named = (v.thread for v in s.levels[len(s.levels) - s.own :] if v.thread in DOTS)
    name = next(named, None)
    return None if name is None else DOTS.get(name)


def taken_at_once(s: StagePicture, count: int) -> tuple[Floats, Floats]:
    """The rows of one instruction that multiplies tiles, and its points in all loops except the loop over
    columns."""
    own = s.levels[len(s.levels) - s.own :]
    at = next(n for n, v in enumerate(own) if v.thread in DOTS)
    rows, points = np.ones(count), np.ones(count)
    for level in own[at + 1 :]:
        extent = full(level.trips, count)
        points = points * extent
        rows = rows if level.kind is AxisKind.REDUCE else rows * extent
    return rows, points


def root(axis: str) -> str:
    """The axis of which a loop is a part."""
    return axis.partition(".")[0]


def is_product(s: StagePicture) -> bool:
    """Whether the tile belongs to a matrix product in float32: vectors of one operand times scalars of one
    other operand."""
    reads = [o for o in s.operands if not o.write]
    kinds = sorted(o.vector for o in reads)
    single = all(o.buffer.dtype.kind == "float" and o.buffer.dtype.bits == 32 for o in s.operands)
    return s.is_reduction and s.flops_per_point == 2.0 and kinds == ["broadcast", "unit"] and single


def _chained(s: StagePicture, count: int) -> Floats:
    trips = np.ones(count)
    for level in s.levels[len(s.levels) - s.own :]:
        if level.kind is AxisKind.REDUCE and level.mark is not Mark.UNROLLED:
            trips = trips * full(level.trips, count)
    return np.where(s.is_reduction & (trips > 1.0), 1.0, 0.0)


def _loads(s: StagePicture, count: int, lanes: Floats) -> Floats:
    """Load instructions of a step: different vectors, or broadcast scalars; a gather costs one for each
    lane."""
    total = np.zeros(count)
    for operand, elements in zip(s.operands, s.fetched, strict=True):
        if not (operand.write and s.is_reduction):
            total = total + full(elements, count) * _each(operand.vector, lanes)
    return total


def _each(kind: str, lanes: Floats) -> Any:
    """The number of loads for one element of an operand."""
    return 1.0 / lanes if kind == "unit" else APART / lanes if kind == "apart" else 1.0


def _lines(s: StagePicture, count: int) -> Floats:
    """The lines of an operand that a tile needs repeatedly in one set of L1.

    Rows whose distance is a multiple of 4 KiB all compete for one set. A product needs its scalars in every
    step of the reduction; a window (vectors of inputs in unrolled reductions) needs its vectors once for each
    tap.
    """
    worst = np.ones(count)
    if not s.is_reduction:
        return worst
    unrolled = [v for v in s.levels[len(s.levels) - s.own :] if v.mark is Mark.UNROLLED]
    for operand in s.operands:
        if operand.write or operand.constant or operand.vector in ("strided", "apart"):
            continue
        moving = [(v, stride) for v in unrolled if (stride := stride_of(operand, root(v.axis))) >= LINE]
        if not moving:
            continue
        lines = elementwise(partial(_fullest, tuple(stride for _, stride in moving)))
        worst = np.maximum(worst, full(lines(*(v.extent for v, _ in moving)), count))
    return worst


def stride_of(operand: Operand, axis: str) -> int:
    """Bytes from one step of an axis to the next."""
    total = 0
    for dim, elements in zip(operand.dims, operand.buffer.row_major(), strict=True):
        if isinstance(dim, Access) and dim.is_sum:
            total += abs(dim.steps.get(axis, 0)) * elements
    return total * operand.buffer.dtype.bytes


def _fullest(strides: tuple[int, ...], *extents: Any) -> Floats:
    """The lines in the fullest set that a block of rows uses. extents: arrays over the candidates."""
    rows = np.stack(np.broadcast_arrays(*map(np.atleast_1d, extents)), axis=1)
    kinds, which = np.unique(rows, axis=0, return_inverse=True)
    found = [_lines_of_fullest(tuple(map(int, kind)), strides) for kind in kinds]
    return np.asarray(found, dtype=np.float64)[which.reshape(-1)]


@lru_cache(maxsize=1 << 16)
def _lines_of_fullest(extents: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The same as `_fullest`, for one block."""
    places = [0]
    for extent, stride in zip(extents, strides, strict=True):
        places = [p + n * stride for p in places for n in range(min(extent, MOST_LINES // len(places)))]
    return max(Counter(line % (PAGE // LINE) for line in {p // LINE for p in places}).values())


def ways(target: Target) -> float:
    """The number of lines in a set of L1."""
    return max(2.0, target.cache_bytes[0] / PAGE)
