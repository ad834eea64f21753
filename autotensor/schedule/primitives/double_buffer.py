"""double_buffer: the copy for the next turn is loaded while this turn computes."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.ir.func import Scope
from autotensor.schedule.state import At, State
from autotensor.schedule.step import StageName, step

MOST = 4  # most turns: more have never been faster, and shared memory is small


@step
class DoubleBuffer:
    """Computes a stage some turns before the loop reads it; shared memory keeps the boxes of these turns.

        for k:              ──DoubleBuffer("S", 2)──▶     S[0] = f(0)
          S = f(k)                                        for k:
          C += S                                            if k + 1 < n: S[(k + 1) % 2] = f(k + 1)
                                                            C += S[k % 2]

    turns: the number of boxes that are kept, 2 to 4. A box is the part of the stage that one turn reads. The
    stage is computed turns - 1 turns ahead. Then the loop that it is attached to needs one barrier per turn
    instead of two, and loads run in the meantime.
    Raises ScheduleError unless the stage is attached and in shared memory. Lowering raises when the loop is
    marked or otherwise not plain, or when the stage reads another stage that is computed in the same turn.
    Source: `double_buffer` of TVM; software pipelining (Lam, PLDI 1988).
    """

    stage: StageName
    turns: int

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if not isinstance(stage.place, At) or stage.scope is not Scope.SHARED:
            raise ScheduleError(
                f"double_buffer: stage {stage.name!r} is not attached to a loop and kept in shared memory.",
                fix='Use cache_read(…, "shared") and compute_at first.',
            )
        if not 2 <= self.turns <= MOST:
            raise ScheduleError(
                f"double_buffer: {self.turns} boxes of stage {stage.name!r} cannot be kept; 2 to {MOST} can."
            )
        return state.with_stage(replace(stage, turns=self.turns))

    def call(self) -> str:
        return f's["{self.stage}"].double_buffer({self.turns})'
