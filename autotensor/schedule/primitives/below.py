"""below: another schedule for small run-time extents.

s.below(196, other)      n0 * n1 <  196: the loops of `other`
                         n0 * n1 >= 196: the loops of this schedule
"""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.state import State, Variant
from autotensor.schedule.step import StageName, Steps, step, steps_of


@step
class Below:
    """Computes the DAG by other steps if the product of its symbols is less than a number.

    If there are several such steps, the one with the least number that is greater than the product counts.
    Raises ScheduleError for a DAG without symbols, and for other steps that do not apply.
    """

    stage: StageName
    points: int
    steps: Steps

    def apply(self, state: State) -> State:
        state.stage(self.stage)
        if not state.dag.symbols():
            raise ScheduleError("below: the extents are numbers.", fix="Write one schedule for them.")
        other = State.initial(state.dag)
        for s in steps_of(self.steps):
            other = s.apply(other)
        if other.variants:
            raise ScheduleError("below: the other schedule has one for small extents, too.")
        return replace(state, variants=(*state.variants, Variant(self.points, other)))

    def call(self) -> str:
        try:
            lines = [line for s in steps_of(self.steps) for line in s.call().split("\n")]
        except ScheduleError:  # a message shows the step that is refused
            lines = [self.steps[:40]]
        head = f"# where the product of the symbols is below {self.points}:"
        return "\n".join([head, *(f"#   {line}" for line in lines)])
