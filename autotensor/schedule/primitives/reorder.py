"""reorder: exchanges loops."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.state import State
from autotensor.schedule.step import AxisName, StageName, quoted, step


@step
class Reorder:
    """Puts the named loops into the given order, at the positions that they occupy. Other loops stay in
    place.

        for i: for j: for k: S      ──Reorder("C", ("k", "i"))──▶     for k: for j: for i: S

    Raises ScheduleError for an unknown or repeated axis.
    """

    stage: StageName
    axes: tuple[AxisName, ...]

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        named = [stage.leaf(a) for a in self.axes]
        if len(set(self.axes)) != len(self.axes):
            raise ScheduleError(
                f"reorder: an axis of stage {stage.name!r} is named twice: {', '.join(self.axes)}."
            )
        places = sorted(stage.position(a) for a in self.axes)
        leaves = list(stage.leaves)
        for place, axis in zip(places, named, strict=True):
            leaves[place] = axis
        return state.with_stage(replace(stage, leaves=tuple(leaves)))

    def call(self) -> str:
        return f's["{self.stage}"].reorder({quoted(self.axes)})'
