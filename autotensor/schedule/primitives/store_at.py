"""store_at: storage at an outer loop, so that values of earlier iterations are kept."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.sliding_windows import check_storage_loop
from autotensor.schedule.state import At, State
from autotensor.schedule.step import AxisName, StageName, step


@step
class StoreAt:
    """Keep a stage's values for later iterations of a loop, which then compute only the new ones.

        for io:                        ──StoreAt("B", "C", "io")──▶     for io:
          for ii:                                                         B = ring of 2 rows
            B[0 … 1] = f(ii … ii+1)                                       for ii from -1:
            C[io*8+ii] = B[0] + B[1]                                        B[(ii+1) % 2] = f(ii+1)
                                                                            if ii >= 0: C = B[ii % 2] + …

    The loop must be the one right outside the loop of `compute_at`. Extra iterations before the first fill
    the ring. Any number of stages may slide along a loop and read one another, and any number may read one of
    them.
    Raises ScheduleError unless the stage is computed at a plain loop, right inside this one, of a stage at
    root. Lowering raises if the region that is read moves backwards, by unequal steps, along several axes or
    not at all, if a vector runs along it, and for GPUs.
    Source: `store_at` of Halide (Ragan-Kelley et al., PLDI 2013).
    """

    stage: StageName
    host: StageName
    axis: AxisName

    def apply(self, state: State) -> State:
        stage, place = state.stage(self.stage), state.stage(self.stage).place
        if not isinstance(place, At) or place.stage != self.host:
            raise ScheduleError(
                f"store_at: stage {stage.name!r} is not computed inside a loop of {self.host!r}.",
                fix="Use compute_at first.",
            )
        state.stage(self.host).leaf(self.axis)
        stored = replace(stage, place=replace(place, store=self.axis))
        check_storage_loop(state, stored)
        return state.with_stage(stored)

    def call(self) -> str:
        return f's["{self.stage}"].store_at(s["{self.host}"], "{self.axis}")'
