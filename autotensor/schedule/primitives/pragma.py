"""pragma: a hint to the code generator."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.state import State
from autotensor.schedule.step import AxisName, StageName, Word, step

PRAGMAS = {  # key → the request to the code generator
    "auto_unroll_max_step": "largest number of statements that lowering may unroll a loop to",
    "skip_zeros": "1: terms of a reduction that a Select makes zero for all lanes are left out, not "
    "added; 2: in single lanes too",
    "skip_unread": "1: points of the stage that no Select of its readers lets through are not computed",
    "sum_apart": "1: what one iteration of a reduction loop adds is summed by itself first",
}
# keys of TVM's schedules that are not needed here
NEEDLESS = {"unroll_explicit": "Leave it out: loops are always unrolled in the code that LLVM gets."}
# other pragmas take any value
VALUES = {"skip_zeros": ("1", "2"), "skip_unread": ("1",), "sum_apart": ("1",)}


@step
class Pragma:
    """Attaches a hint to a loop. A hint never changes the results (except for infinities:
    nest/when/skipped_terms.py).

    Raises ScheduleError for an unknown axis, key or value.
    """

    stage: StageName
    axis: AxisName
    key: Word
    value: Word

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        axis = stage.leaf(self.axis)
        if self.key not in PRAGMAS:
            fix = NEEDLESS.get(self.key, f"Known: {', '.join(PRAGMAS)}.")
            raise ScheduleError(f"pragma: key {self.key!r} is unknown.", fix=fix)
        if not self.value.isdigit():
            raise ScheduleError(f"pragma: {self.key} is {self.value!r}; it must be a whole number.")
        if self.value not in (known := VALUES.get(self.key, (self.value,))):
            raise ScheduleError(
                f"pragma: {self.key} is {self.value}; it must be {' or '.join(known)}.",
                fix="Leave the pragma out where it is not needed.",
            )
        return state.with_stage(replace(stage, pragmas=(*stage.pragmas, (axis.name, self.key, self.value))))

    def call(self) -> str:
        return f's["{self.stage}"].pragma("{self.axis}", "{self.key}", "{self.value}")'
