"""The schedule that always works: outer loops are parallel, and everything else is unchanged."""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.state import Stage, State
from schedules.kit.stage_analysis import untouched
from schedules.registry import Extension


def fallback(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if target.kind != "llvm" or not untouched(stage) or not stage.op.axes:
        return (Extension(done=(stage.name,)),)
    return (Extension((Parallel(stage.name, stage.op.axes[0].name),), done=(stage.name,)),)
