"""Stages that depend on constants only run once, when the weights arrive: left as they are."""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.state import Stage, State
from schedules.kit.stage_analysis import is_constant
from schedules.registry import Extension


def constants(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    return (Extension(done=(stage.name,)),) if is_constant(state, stage) else ()
