"""fuse: makes one loop of two adjacent loops."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.axis import Axis, Mark, fuse_name
from autotensor.schedule.state import Fuse, State
from autotensor.schedule.step import AxisName, StageName, step


@step
class FuseStep:
    """Fuses a loop with the loop directly inside it.

        for i in 0..4:                              ──Fuse("C", "i", "j")──▶    for (i*j) in 0..32:
          for j in 0..8: S(i, j)                                                  S((i*j) // 8, (i*j) % 8)

    Raises ScheduleError if the loops are not adjacent in this order, differ in kind, have marks, or host
    stages.
    """

    stage: StageName
    outer: AxisName
    inner: AxisName

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        a, b = stage.leaf(self.outer), stage.leaf(self.inner)
        if stage.position(b.name) != stage.position(a.name) + 1:
            raise ScheduleError(
                f"fuse: axis {b.name!r} of stage {stage.name!r} is not directly inside {a.name!r}.",
                fix="Reorder first; the order is " + ", ".join(x.name for x in stage.leaves) + ".",
            )
        if a.kind is not b.kind:
            raise ScheduleError(
                f"fuse: axes {a.name!r} ({a.kind.value}) and {b.name!r} ({b.kind.value}) of "
                f"stage {stage.name!r} differ in kind.",
                fix="Fuse loops of one kind.",
            )
        for axis in (a, b):
            if axis.mark is not Mark.SERIAL:
                raise ScheduleError(
                    f"fuse: axis {axis.name!r} of stage {stage.name!r} is already {axis.mark.value}.",
                    fix="Fuse before marking it.",
                )
            if inside := state.attached(stage.name, axis.name):
                raise ScheduleError(
                    f"fuse: stage {inside[0].name!r} is computed at axis {axis.name!r} of "
                    f"stage {stage.name!r}.",
                    fix="Fuse before compute_at.",
                )
        name = fuse_name(a.name, b.name)
        at = stage.position(a.name)
        leaves = (*stage.leaves[:at], Axis(name, a.kind), *stage.leaves[at + 2 :])
        relations = (*stage.relations, Fuse(a.name, b.name, name))
        return state.with_stage(replace(stage, leaves=leaves, relations=relations))

    def call(self) -> str:
        return f's["{self.stage}"].fuse("{self.outer}", "{self.inner}")'
