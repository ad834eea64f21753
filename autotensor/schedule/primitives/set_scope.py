"""set_scope: the memory in which the values of an attached stage are kept."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.primitives.cache import scope_of
from autotensor.schedule.state import State
from autotensor.schedule.step import StageName, Word, step


@step
class SetScope:
    """Keeps the values of a stage in the shared memory of its block, or in each thread's own memory.

        B at (C, i.0)     ──SetScope("B", "shared")──▶     all threads of the block compute B and read it

    This has an effect only while the stage is computed inside another stage's loop. At root, a stage is in
    global memory.
    Raises ScheduleError for an unknown scope or an output.
    Source: `set_scope` of TVM.
    """

    stage: StageName
    scope: Word

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        scope = scope_of("set_scope", self.scope)
        if state.is_output(stage):
            raise ScheduleError(
                f"set_scope: stage {stage.name!r} is an output and stays in global memory.",
                fix="Use cache_write to compute it near by.",
            )
        return state.with_stage(replace(stage, scope=scope))

    def call(self) -> str:
        return f's["{self.stage}"].set_scope("{self.scope}")'
