"""storage, storage_align, swizzle: the order of elements in the private buffer of an attached stage."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TypeVar

from autotensor.base.errors import ScheduleError
from autotensor.ir.func import Scope
from autotensor.schedule.state import At, Stage, State
from autotensor.schedule.step import AxisName, StageName, quoted, step

T = TypeVar("T")

LINE_BYTES = 128  # a line of shared memory has each of the banks once


@step
class Storage:
    """Stores the values of an attached stage in another order of dimensions, with unused elements between
    rows.

        A.local:C[i0, i1]     ──Storage("A.local:C", ("i1", "i0"), 4)──▶     float[n1][n0 + 4]

    axes: all spatial axes of the stage; the last one is contiguous in memory. pad: number of unused elements
    after each row. The stage's meaning and its loops do not change, only the buffer of its box.
    Raises ScheduleError unless the stage is computed inside another one, every axis is named exactly once,
    and the last one is not aligned.
    Source: both `storage_align` of TVM and `reorder_storage` of Halide.
    """

    stage: StageName
    axes: tuple[AxisName, ...]
    pad: int

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if not isinstance(stage.place, At):
            raise ScheduleError(
                f"storage: stage {stage.name!r} is not computed inside another; its buffer is not private.",
                fix="Use compute_at first, or layout for a whole tensor.",
            )
        own = tuple(a.name for a in stage.op.axes)
        if sorted(self.axes) != sorted(own):
            raise ScheduleError(
                f"storage: {quoted(self.axes) or 'no axis'} must name each axis of stage {stage.name!r} "
                f"once: {', '.join(own)}."
            )
        if self.pad < 0:
            raise ScheduleError(f"storage: pad of stage {stage.name!r} is {self.pad}; it must be at least 0.")
        if stage.align is not None and stage.align[0] == self.axes[-1]:
            raise ScheduleError(
                f"storage: axis {self.axes[-1]!r} of stage {stage.name!r} is aligned; another must be last.",
                fix="Use storage before storage_align.",
            )
        return state.with_stage(replace(stage, storage=(self.axes, self.pad)))

    def call(self) -> str:
        return f's["{self.stage}"].storage({quoted(self.axes)}, pad={self.pad})'


@step
class StorageAlign:
    """Sets the distance in memory between neighbours along one axis of an attached stage's buffer.

        A.shared:C[i0, i1], 32 × 32   ──StorageAlign("A.shared:C", "i0", 32, 1)──▶   float[32][33]

    The distance becomes the next larger one that is `offset` modulo `factor`. The elements in between are
    unused.
    Raises ScheduleError unless the stage is computed inside another one and other axes are inside this axis.
    Lowering raises when no number of whole rows gives this distance.
    Source: `storage_align` of TVM.
    """

    stage: StageName
    axis: AxisName
    factor: int
    offset: int

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if not isinstance(stage.place, At):
            raise ScheduleError(
                f"storage_align: stage {stage.name!r} is not computed inside another; its buffer is not "
                "private.",
                fix="Use compute_at first, or layout for a whole tensor.",
            )
        order = in_storage_order(stage, tuple(a.name for a in stage.op.axes))
        if self.axis not in order[:-1]:
            raise ScheduleError(
                f"storage_align: {self.axis!r} is not an axis of stage {stage.name!r} with others inside it; "
                f"{', '.join(order[:-1]) or 'none'} can be aligned."
            )
        if self.factor < 1 or not 0 <= self.offset < self.factor:
            raise ScheduleError(
                f"storage_align: factor {self.factor} and offset {self.offset} of stage {stage.name!r} do "
                "not fit: factor is at least 1, offset at least 0 and less than factor."
            )
        return state.with_stage(replace(stage, align=(self.axis, self.factor, self.offset)))

    def call(self) -> str:
        return f's["{self.stage}"].storage_align("{self.axis}", {self.factor}, {self.offset})'


@step
class Swizzle:
    """Permutes chunks of the rows of a stage in shared memory, so that reads of a column use all banks once.

        line r:  0 1 2 3 4 5 6 7     ──Swizzle("A.shared:C", 4)──▶     line 1:  1 0 3 2 5 4 7 6
                                                                       line 2:  2 3 0 1 6 7 4 5

    Chunk c of line r is stored at position c xor r (modulo the number of chunks of a line). chunk: number of
    elements that stay together, a power of two: as many as one access moves. A line has 128 bytes, or is a
    row if a row is a longer power of two. The stage's meaning and its loops do not change, and no element is
    unused.
    Raises ScheduleError unless the stage is attached and in shared memory. Lowering raises when its box is
    not a multiple of two chunks.
    Source: `Swizzle` of CUTLASS (Thakkar et al.); the xor layouts of Triton.
    """

    stage: StageName
    chunk: int

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if not isinstance(stage.place, At) or stage.scope is not Scope.SHARED:
            raise ScheduleError(
                f"swizzle: stage {stage.name!r} is not attached to a loop and kept in shared memory.",
                fix='Use cache_read(…, "shared") and compute_at first.',
            )
        if self.chunk < 1 or self.chunk & (self.chunk - 1):
            raise ScheduleError(
                f"swizzle: chunks of {self.chunk} elements of stage {stage.name!r}; a power of two is needed."
            )
        return state.with_stage(replace(stage, swizzle=self.chunk))

    def call(self) -> str:
        return f's["{self.stage}"].swizzle({self.chunk})'


def swizzle_of(stage: Stage, shape: tuple[int, ...], element_bytes: int) -> tuple[int, ...]:
    """(chunk, line) of a stage's buffer with this shape; () if the buffer is not swizzled."""
    chunk = stage.swizzle
    if not chunk or stage.scope is not Scope.SHARED:
        return ()
    row, size = shape[-1] if shape else 1, prod(shape)
    line = max(LINE_BYTES // element_bytes, row if row & (row - 1) == 0 else 0)
    while line > chunk and size % line:
        line //= 2
    if line < 2 * chunk:
        raise ScheduleError(
            f"swizzle: the box of stage {stage.name!r}, {' × '.join(map(str, shape)) or '1'}, is not a "
            f"multiple of two chunks of {chunk} elements.",
            fix="Attach it where its box is a power of two, take smaller chunks, or use storage_align.",
        )
    return (chunk, line)


def stored(stage: Stage, box: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the private buffer for one box of the stage."""
    shape = in_storage_order(stage, box)
    if stage.storage is not None and box:
        shape = (*shape[:-1], shape[-1] + stage.storage[1])
    return shape if stage.align is None else _aligned(stage, shape)


def _aligned(stage: Stage, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with one longer dimension, so that the next outer dimension has the requested stride."""
    assert stage.align is not None
    axis, factor, offset = stage.align
    at = in_storage_order(stage, tuple(a.name for a in stage.op.axes)).index(axis) + 1
    inside = prod(shape[at + 1 :])
    for more in range(factor):
        if (shape[at] + more) * inside % factor == offset:
            return (*shape[:at], shape[at] + more, *shape[at + 1 :])
    raise ScheduleError(
        f"storage_align: no number of rows of {inside} elements is {offset} modulo {factor}, as axis "
        f"{axis!r} of stage {stage.name!r} should be apart.",
        fix="Align an axis further in.",
    )


def in_storage_order(stage: Stage, per_axis: tuple[T, ...]) -> tuple[T, ...]:
    """A tuple with one item per axis of the stage, reordered for the stage's private buffer."""
    if stage.storage is None:
        return per_axis
    named = dict(zip((a.name for a in stage.op.axes), per_axis, strict=True))
    return tuple(named[a] for a in stage.storage[0])
