"""Where a stage is computed: inside a consumer's loop, at root, or not at all (inlined)."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.ir.visit import MOST_NESTED
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import is_within
from autotensor.schedule.inlining import inline_into
from autotensor.schedule.state import At, Inlined, Root, Stage, State, nested
from autotensor.schedule.step import AxisName, StageName, step
from autotensor.te.thread import BLOCK_AXES


@step
class ComputeAt:
    """Computes a stage inside a loop of a consumer. Each iteration computes only the part that it needs.

        for i: B[i] = f(i)                ──ComputeAt("B", "C", "i.0")──▶     for i.0:
        for i.0: for i.1: C = B[i]+B[i+1]                                       for i in box: B = …
                                                                               for i.1: C = …

    The box is derived from the consumer's access functions, and the stage's own extents become those of the
    box.
    Raises ScheduleError when the stage is an output, is read outside that loop, or the loop is vectorized.
    """

    stage: StageName
    host: StageName
    axis: AxisName

    def apply(self, state: State) -> State:
        stage, host = state.stage(self.stage), state.stage(self.host)
        axis = host.leaf(self.axis)
        if state.is_output(stage):
            raise ScheduleError(
                f"compute_at: stage {stage.name!r} is an output; it is computed whole.",
                fix="Leave it out of the arguments, or compute it at root.",
            )
        if isinstance(stage.place, Inlined):
            raise ScheduleError(f"compute_at: stage {stage.name!r} is inlined and computed nowhere.")
        if stage.carries:
            raise ScheduleError(f"compute_at: stage {stage.name!r} carries state; it is computed by itself.")
        if isinstance(host.place, Inlined):
            raise ScheduleError(
                f"compute_at: stage {host.name!r} is inlined and has no loops.", fix="Attach it to a reader."
            )
        if axis.mark is Mark.VECTORIZED:
            raise ScheduleError(
                f"compute_at: axis {axis.name!r} of stage {host.name!r} is vectorized.",
                fix="Attach it further out.",
            )
        if any(a.mark is Mark.PARALLEL for a in stage.leaves):
            raise ScheduleError(
                f"compute_at: stage {stage.name!r} has a parallel loop.",
                fix="Attach it before parallel, or not at all.",
            )
        if blocks := [a for a in stage.leaves if a.thread in BLOCK_AXES]:
            raise ScheduleError(
                f"compute_at: axis {blocks[0].name!r} of stage {stage.name!r} is bound to "
                f"{blocks[0].thread}, and inside {host.name!r} there is one block only.",
                fix="Attach it instead of binding it to blocks.",
            )
        placed = state.with_stage(replace(stage, place=At(host.name, axis.name)))
        _check_cycle(placed, placed.stage(stage.name))
        readers = state.consumers(stage)
        if not readers:
            raise ScheduleError(f"compute_at: nothing reads {stage.name!r}.")
        at = host.position(axis.name)
        for reader in readers:
            if reader.name != host.name and not is_within(placed, reader, host.name, at):
                raise ScheduleError(
                    f"compute_at: {stage.name!r} is also read by {reader.name!r}, which is outside loop "
                    f"{axis.name!r} of {host.name!r}.",
                    fix=_ways(state, stage, reader),
                )
        return placed

    def call(self) -> str:
        return f's["{self.stage}"].compute_at(s["{self.host}"], "{self.axis}")'


def _ways(state: State, stage: Stage, reader: Stage) -> str:
    """Advice for a stage that is to be computed at a loop, and has a reader outside this loop."""
    first = "" if state.is_output(reader) else f"Attach {reader.name!r} there first, or "
    return f"{first}{'compute' if first else 'Compute'} {stage.name!r} at root."


def _check_cycle(state: State, stage: Stage) -> None:
    place, seen = stage.place, {stage.name}
    while isinstance(place, At):
        if place.stage in seen:
            raise ScheduleError(f"compute_at: stage {stage.name!r} would be computed inside itself.")
        seen.add(place.stage)
        place = state.stage(place.stage).place


@step
class ComputeRoot:
    """Computes a stage at root again; this undoes compute_at."""

    stage: StageName

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if isinstance(stage.place, Inlined):
            raise ScheduleError(
                f"compute_root: stage {stage.name!r} is inlined already.", fix="Leave the inline step out."
            )
        return state.with_stage(replace(stage, place=Root()))

    def call(self) -> str:
        return f's["{self.stage}"].compute_root()'


@step
class Inline:
    """Replaces every read of a stage by the stage's expression.

        B[i] = A[i] * 2;  C[i] = B[i] + 1     ──Inline("B")──▶     C[i] = A[i] * 2 + 1

    Raises ScheduleError when the stage is an output or a reduction, or hosts another stage, and when a
    reader's expression would have too many levels.
    """

    stage: StageName

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if state.is_output(stage):
            raise ScheduleError(
                f"compute_inline: stage {stage.name!r} is an output; it must be computed.",
                fix="Leave it out of the arguments, or inline its producers into it.",
            )
        if stage.carries:
            raise ScheduleError(
                f"compute_inline: stage {stage.name!r} carries state; it is computed by itself."
            )
        if stage.op.is_reduction:
            raise ScheduleError(
                f"compute_inline: stage {stage.name!r} is a reduction and has no expression to inline.",
                fix="Use compute_at.",
            )
        if inside := state.attached(stage.name):
            raise ScheduleError(
                f"compute_inline: stage {inside[0].name!r} is computed inside {stage.name!r}.",
                fix=f"Inline {stage.name!r} first, or move {inside[0].name!r} with compute_root.",
            )
        readers = state.consumers(stage)
        for reader in readers:
            if (levels := nested(reader.op, stage.op)) > MOST_NESTED:
                raise ScheduleError(
                    f"compute_inline: stage {stage.name!r} would make the expression of {reader.name!r} "
                    f"{levels} levels deep; at most {MOST_NESTED} fit.",
                    fix="Leave it at root, or attach it with compute_at.",
                )
        for reader in readers:
            state = state.with_stage(replace(reader, op=inline_into(reader.op, stage.op)))
        return state.with_stage(replace(stage, place=Inlined()))

    def call(self) -> str:
        return f's["{self.stage}"].compute_inline()'
