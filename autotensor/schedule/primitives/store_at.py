"""store_at: storage at an outer loop, so that values of earlier iterations are kept."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.sliding_windows import check_storage_loop
from autotensor.schedule.state import At, State
from autotensor.schedule.step import AxisName, StageName, step


@step
class StoreAt:
    """Keeps a stage's values for later iterations of a loop. These then compute only the new values.

        for io:                        ──StoreAt("B", "C", "io")──▶     for io:
          for ii:                                                         B = ring of 2 rows
            B[0 … 1] = f(ii … ii+1)                                       for ii from -1:
            C[io*8+ii] = B[0] + B[1]                                        B[(ii+1) % 2] = f(ii+1)
                                                                            if ii >= 0: C = B[ii % 2] + …

    The loop must be directly outside the loop of `compute_at`. Extra iterations before the first one fill the
    ring. Any number of stages may slide along one loop and read one another, and several stages may read the
    same one.
    Raises ScheduleError unless the stage is computed at a plain loop directly inside this one, and the host
    is at root. Lowering raises for GPUs, and if a vector runs along the region that is read. It also raises
    if this region moves backwards, by unequal steps, along several axes, or not at all.
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
