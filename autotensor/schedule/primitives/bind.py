"""bind: a loop's iterations become blocks of a grid, threads of a block, or virtual threads."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.axis import Mark
from autotensor.schedule.state import At, State
from autotensor.schedule.step import AxisName, StageName, Word, step
from autotensor.te.tensor import AxisKind
from autotensor.te.thread import ALL_AXES, BLOCK_AXES, VTHREAD


@step
class Bind:
    """Gives the iterations of a loop to an axis of the GPU's threads.

        for i.0 in 0..16:             ──Bind("C", "i.0", "blockIdx.x")──▶  16 blocks of 64 threads:
          for i.1 in 0..64: C[…] = …    Bind("C", "i.1", "threadIdx.x")      C[blockIdx.x*64 + threadIdx.x]

    thread: blockIdx.x … blockIdx.z, threadIdx.x … threadIdx.z, or vthread. All iterations of a vthread loop
    run on the same thread, side by side, and work that they share is done once:

        for v in vthread(2): S(v); T(v)     ──▶     S(0); S(1); T(0); T(1)

    A reduction loop bound to threadIdx becomes a cross-thread reduction: every thread computes the sum of its
    part, and the sums are joined in shared memory. Loops of one kernel that are bound to the same axis run on
    the same threads. If one of these loops is shorter, the threads beyond its extent are idle.
    Raises ScheduleError for an unknown thread axis, a marked loop, an axis that another loop of the stage is
    bound to, a reduction over blocks or virtual threads, or a blockIdx loop of an attached stage.
    Source: `bind` of TVM (Chen et al., OSDI 2018); virtual threads: section 4.4 of that paper.
    """

    stage: StageName
    axis: AxisName
    thread: Word

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        axis = stage.leaf(self.axis)
        where = f"axis {axis.name!r} of stage {stage.name!r}"
        if self.thread not in ALL_AXES:
            raise ScheduleError(
                f"bind: thread axis {self.thread!r} is unknown.", fix=f"Known: {', '.join(ALL_AXES)}."
            )
        if axis.mark is not Mark.SERIAL:
            raise ScheduleError(f"bind: {where} is already {axis.mark.value}.", fix="Bind a plain loop.")
        taken = [a.name for a in stage.leaves if a.thread == self.thread]
        if taken and self.thread != VTHREAD:
            raise ScheduleError(
                f"bind: axis {taken[0]!r} of stage {stage.name!r} is bound to {self.thread} already.",
                fix="Fuse the two axes first, or use another thread axis.",
            )
        if axis.kind is AxisKind.REDUCE and not self.thread.startswith("threadIdx"):
            raise ScheduleError(
                f"bind: {where} is a reduction; {self.thread} cannot join partial results.",
                fix="Bind it to threadIdx, or make it spatial with rfactor.",
            )
        if self.thread in BLOCK_AXES and isinstance(stage.place, At):
            raise ScheduleError(
                f"bind: stage {stage.name!r} is computed inside {stage.place.stage!r}, within one block.",
                fix=f"Bind {self.thread} in the stage at root.",
            )
        bound = replace(axis, mark=Mark.BOUND, thread=self.thread)
        return state.with_stage(stage.replacing(axis.name, bound))

    def call(self) -> str:
        return f's["{self.stage}"].bind("{self.axis}", te.thread_axis("{self.thread}"))'
