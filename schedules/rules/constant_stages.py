"""Stages that depend only on constants run once, when the weights are bound. They are not scheduled."""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.state import Stage, State
from schedules.kit.stage_analysis import is_constant
from schedules.registry import Extension


def constants(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    return (Extension(done=(stage.name,)),) if is_constant(state, stage) else ()
