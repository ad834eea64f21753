"""algorithm: compute a stage by an equivalent sub-DAG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.state import Stage, State
from autotensor.schedule.step import StageName, Step, Word, step
from autotensor.schedule.trace import Trace
from autotensor.te.dag import StageOp
from autotensor.te.scan import before_of


@step
class UseAlgorithm:
    """Replaces a stage by stages that compute the same in another way.

        conv[n,h,w,c] = Σ …     ──UseAlgorithm("conv", "winograd_f4")──▶     conv.U, conv.V, conv.M, …, conv

    This must be the first step that touches the stage. The names of the new stages begin with the stage's own
    name. The last new stage carries state if it reads `X.before`, where X is its own result. If the last
    stage also takes over the results of other stages, these are removed, and the readers of their results
    come after it.
    Raises ScheduleError for an unknown algorithm, a scheduled stage, or a stage that does not fit the
    algorithm.
    """

    stage: StageName
    algorithm: Word

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if self.algorithm not in ALGORITHMS:
            raise ScheduleError(
                f"algorithm: {self.algorithm!r} is unknown.", fix=f"Known: {', '.join(ALGORITHMS.names())}."
            )
        if stage.touched:
            raise ScheduleError(
                f"algorithm: stage {stage.name!r} has been scheduled already.",
                fix="Choose the algorithm first.",
            )
        made = ALGORITHMS.get(self.algorithm).stages(state, stage)
        if made is None:
            raise ScheduleError(f"algorithm: {self.algorithm!r} does not fit stage {stage.name!r}.")
        *before, last = made
        for op in before:
            state = state.inserting(Stage.of(op), before=stage.name)
        steps = tuple((b, c) for c in last.buffers for b in last.reads() if b.name == before_of(c.name))
        new = replace(Stage.of(last), place=stage.place, scope=stage.scope, carries=bool(steps))
        state = state.with_stage(new)
        state = replace(state, dag=state.dag.with_carried(steps))
        return state if last.buffers == stage.op.buffers else _taken_over(state, last)

    def call(self) -> str:
        return f's.algorithm("{self.stage}", "{self.algorithm}")'


def _taken_over(state: State, op: StageOp) -> State:
    """The state without the stages whose buffers `op` also writes. Readers of these come after `op`."""
    others = [s for s in state.stages if s.op is op or not set(s.op.buffers) <= set(op.buffers)]
    front, behind = [], []
    late = set(op.buffers)
    for s in others[: others.index(state.stage(op.name))]:
        if late.isdisjoint(s.op.reads()):
            front.append(s)
        else:
            behind.append(s)
            late.update(s.op.buffers)
    rest = others[len(front) + len(behind) :]
    return replace(state, stages=(*front, rest[0], *behind, *rest[1:]))


def algorithms_of(steps: Sequence[Step]) -> tuple[str, ...]:
    """The algorithms of the stages that are computed in another way than they are written."""
    return tuple(s.algorithm for s in steps if isinstance(s, UseAlgorithm))


def algorithm_tolerance(trace: Trace) -> float | None:
    """The error that a trace's algorithms allow; None if all of them are exact."""
    named = [ALGORITHMS.get(name).tolerance for name in algorithms_of(trace.steps)]
    return max((t for t in named if t is not None), default=None)
