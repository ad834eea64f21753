"""Copies of a tensor near its consumer: cache_read, cache_write."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.ir.expr import Load
from autotensor.ir.func import Scope
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Inlined, Root, Stage, State, redirect
from autotensor.schedule.step import StageName, Word, quoted, step
from autotensor.te.stage import StageOp, axes_over, buffer_over

SCOPES = {"global": Scope.GLOBAL, "shared": Scope.SHARED, "local": Scope.LOCAL}


def scope_of(verb: str, name: str) -> Scope:
    if name not in SCOPES:
        raise ScheduleError(f"{verb}: scope {name!r} is unknown.", fix=f"Known: {', '.join(SCOPES)}.")
    return SCOPES[name]


@step
class CacheRead:
    """Gives some readers of a tensor a copy of their own, which compute_at can then place.

        C[i] = f(A[i])     ──CacheRead("A", "local", ("C",))──▶    A.local:C[i] = A[i]; C[i] = f(A.local:C[i])

    tensor: an input, or the result of a stage. readers: names of stages; () means all readers.
    Raises ScheduleError for an unknown tensor or scope, or a reader that does not read the tensor.
    """

    tensor: StageName
    scope: Word
    readers: tuple[StageName, ...]

    def apply(self, state: State) -> State:
        scope = scope_of("cache_read", self.scope)
        buffer = state.buffer(self.tensor)
        reading = state.readers(buffer)
        chosen = [state.stage(r) for r in self.readers] if self.readers else list(reading)
        if made := [s for s in state.stages if buffer in s.op.buffers and isinstance(s.place, Inlined)]:
            raise ScheduleError(
                f"cache_read: stage {made[0].name!r} is inlined, so no stage reads it.",
                fix="Use cache_read first, then compute_inline: the copy computes the stage.",
            )
        for stage in chosen:
            if stage not in reading:
                raise ScheduleError(
                    f"cache_read: stage {stage.name!r} does not read {self.tensor!r}.",
                    fix=f"It is read by {', '.join(s.name for s in reading) or 'nobody'}.",
                )
        if not chosen:
            raise ScheduleError(f"cache_read: nothing reads {self.tensor!r}.")
        name = fresh(f"{self.tensor}.{self.scope}", set(state.names), f":{chosen[0].name}")
        axes = axes_over(buffer, "i")
        copy = buffer_over(axes, name, buffer.dtype)
        op = StageOp(name, axes, (), (Load(buffer, tuple(a.var for a in axes)),), None, (copy,))
        for stage in chosen:
            state = state.with_stage(replace(stage, op=redirect(stage.op, buffer, copy)))
        first = min(chosen, key=lambda s: state.names.index(s.name))
        return state.inserting(Stage.of(op, scope), before=first.name)

    def call(self) -> str:
        return f's.cache_read("{self.tensor}", "{self.scope}", [{quoted(self.readers)}])'


@step
class CacheWrite:
    """Computes a stage into a buffer of its own and copies that out. Loops of the copy can then host the
    stage.

        C[i] = Σ_k …        ──CacheWrite("C", "local")──▶     C.local[i] = Σ_k …;  C[i] = C.local[i]

    Raises ScheduleError when the stage's loops have already been changed, or the stage has several outputs.
    """

    stage: StageName
    scope: Word

    def apply(self, state: State) -> State:
        scope = scope_of("cache_write", self.scope)
        stage = state.stage(self.stage)
        if stage.touched or not isinstance(stage.place, Root):
            raise ScheduleError(
                f"cache_write: stage {stage.name!r} has been scheduled already.",
                fix="Make cache_write its first step.",
            )
        name = fresh(f"{stage.name}.{self.scope}", set(state.names))
        op = stage.op
        near = tuple(
            buffer_over(op.axes, name if n == 0 else f"{name}_v{n}", b.dtype)
            for n, b in enumerate(op.buffers)
        )
        index = tuple(a.var for a in op.axes)
        computing = replace(op, name=name, buffers=near)
        copying = StageOp(op.name, op.axes, (), tuple(Load(b, index) for b in near), None, op.buffers, op.tag)
        state = state.with_stage(Stage.of(copying))
        return state.inserting(Stage.of(computing, scope), before=stage.name)

    def call(self) -> str:
        return f's.cache_write("{self.stage}", "{self.scope}")'
