"""Marks: how a loop runs (vectorize, unroll, parallel)."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.axis import Mark
from autotensor.schedule.state import Root, State
from autotensor.schedule.step import AxisName, StageName, step
from autotensor.te.tensor import AxisKind


def _marked(state: State, verb: str, stage_name: str, axis_name: str, mark: Mark, *, spatial: bool) -> State:
    stage = state.stage(stage_name)
    axis = stage.leaf(axis_name)
    if axis.mark is not Mark.SERIAL:
        raise ScheduleError(
            f"{verb}: axis {axis.name!r} of stage {stage.name!r} is already {axis.mark.value}."
        )
    if spatial and axis.kind is AxisKind.REDUCE:
        raise ScheduleError(
            f"{verb}: axis {axis.name!r} of stage {stage.name!r} is a reduction; "
            "its iterations depend on one another.",
            fix=f"Make it spatial with rfactor, or {verb} another axis.",
        )
    return state.with_stage(stage.replacing(axis.name, replace(axis, mark=mark)))


@step
class Vectorize:
    """Runs all iterations at once, in vector registers.

        for i in 0..16: C[i] = A[i]     ──Vectorize("C", "i")──▶     C[0:16] = A[0:16]

    Loops inside the vectorized loop stay loops, over vectors. For a reduction loop, each lane has a sum of
    its own. After the loop the lanes are joined, one half with the other, until one is left:

        for k.1 in 0..16: for k.0: C += A[k.0*16 + k.1]     ──▶     L[0:16] = 0
                                                                    for k.0: L[0:16] += A[k.0*16 : +16]
                                                                    L[0:8] += L[8:16]; …; C += L[0]

    Raises ScheduleError for a marked axis. Lowering raises when another stage is computed inside the loop.
    """

    stage: StageName
    axis: AxisName

    def apply(self, state: State) -> State:
        return _marked(state, "vectorize", self.stage, self.axis, Mark.VECTORIZED, spatial=False)

    def call(self) -> str:
        return f's["{self.stage}"].vectorize("{self.axis}")'


@step
class Unroll:
    """Writes the iterations out one after another.

    for i in 0..2: S(i)     ──Unroll("C", "i")──▶     S(0); S(1)
    """

    stage: StageName
    axis: AxisName

    def apply(self, state: State) -> State:
        return _marked(state, "unroll", self.stage, self.axis, Mark.UNROLLED, spatial=False)

    def call(self) -> str:
        return f's["{self.stage}"].unroll("{self.axis}")'


@step
class Parallel:
    """Divides the iterations among the threads of the call.

        for i in 0..64: S(i)     ──Parallel("C", "i")──▶     parallel for i in 0..64: S(i)

    In the end, the axis must be the outermost loop of a stage computed at root (checked when lowering). Each
    stage may have one.
    Raises ScheduleError for a reduction, a marked axis, or an attached stage.
    """

    stage: StageName
    axis: AxisName

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if not isinstance(stage.place, Root):
            raise ScheduleError(
                f"parallel: stage {stage.name!r} is computed inside another stage.",
                fix="Parallelise that stage's outer loop.",
            )
        if others := [a.name for a in stage.leaves if a.mark is Mark.PARALLEL]:
            raise ScheduleError(
                f"parallel: axis {others[0]!r} of stage {stage.name!r} is parallel already.",
                fix="Fuse the two axes first.",
            )
        return _marked(state, "parallel", self.stage, self.axis, Mark.PARALLEL, spatial=True)

    def call(self) -> str:
        return f's["{self.stage}"].parallel("{self.axis}")'
