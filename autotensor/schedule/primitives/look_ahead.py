"""look_ahead: a recurrence reads the state of a step that is further back."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.state import Stage, State
from autotensor.schedule.step import StageName, step
from autotensor.te.look_ahead import joined


@step
class LookAhead:
    """Joins the steps of a scan, so that neighbouring steps do not wait for one another.

        for t: y[t] = a*y[t-1] + x[t]     ──LookAhead("y", 4)──▶     for t: y[t] = x[t] + … + a**4*y[t-4]

    Afterwards the loop over steps may be split by at most `steps`, and the inner part vectorized. Sums are
    added in another order, so they round differently. Inline the intermediate values of a step before this.
    Raises ScheduleError if a step is neither a sum of coefficient × earlier step nor a minimum or maximum, or
    if loops have been changed.
    """

    stage: StageName
    steps: int

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if not stage.carries:
            raise ScheduleError(f"look_ahead: stage {stage.name!r} carries no state.")
        if stage.relations or stage.leaves != Stage.of(stage.op).leaves or state.attached(stage.name):
            raise ScheduleError(
                f"look_ahead: loops of stage {stage.name!r} are changed, or others are computed there.",
                fix="Inline what a step computes, and look ahead first.",
            )
        op = joined(stage.op, state.dag.carried, self.steps)
        if op is None:
            raise ScheduleError(
                f"look_ahead: steps of stage {stage.name!r} cannot be joined {self.steps} at a time.",
                fix="A step is a sum of coefficients × steps before, or the extreme of one and another.",
            )
        return state.with_stage(replace(stage, op=op))

    def call(self) -> str:
        return f's["{self.stage}"].look_ahead({self.steps})'
