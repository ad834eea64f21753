"""storage: how the private buffer of an attached stage is laid out."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from autotensor.base.errors import ScheduleError
from autotensor.schedule.state import At, Stage, State
from autotensor.schedule.step import quoted, step

T = TypeVar("T")


@step
class Storage:
    """Keep what a stage computes inside another one's loop in another order of dimensions, rows apart.

        A.local:C[i0, i1]     ──Storage("A.local:C", ("i1", "i0"), 4)──▶     float[n1][n0 + 4]

    axes: all spatial axes of the stage, the one along memory last. pad: elements left unused behind each
    row. The stage's meaning and its loops stay; only the buffer of its box is laid out so.
    Raises ScheduleError unless the stage is computed inside another and every axis is named once.
    Source: `storage_align` of TVM and `reorder_storage` of Halide, in one.
    """

    stage: str
    axes: tuple[str, ...]
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
                f"storage: {quoted(self.axes)} must name each axis of stage {stage.name!r} once: "
                f"{', '.join(own)}."
            )
        if self.pad < 0:
            raise ScheduleError(f"storage: pad of stage {stage.name!r} is {self.pad}; it must be at least 0.")
        return state.with_stage(replace(stage, storage=(self.axes, self.pad)))

    def call(self) -> str:
        return f's["{self.stage}"].storage({quoted(self.axes)}, pad={self.pad})'


def stored(stage: Stage, box: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the private buffer for a box of the stage."""
    if stage.storage is None or not box:
        return box
    shape = in_storage_order(stage, box)
    return (*shape[:-1], shape[-1] + stage.storage[1])


def in_storage_order(stage: Stage, per_axis: tuple[T, ...]) -> tuple[T, ...]:
    """Something per axis of the stage, in the order of its private buffer."""
    if stage.storage is None:
        return per_axis
    named = dict(zip((a.name for a in stage.op.axes), per_axis, strict=True))
    return tuple(named[a] for a in stage.storage[0])
