"""Function values that are the same along an axis, but that the loops would compute for each point of it.

They are always computed once for the whole axis, so there is nothing to decide.
"""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Root, Stage, State
from schedules.algorithms.invariants import NAME
from schedules.algorithms.invariants import invariants as expand
from schedules.kit.stage_analysis import is_constant, undecided
from schedules.registry import Extension


def invariants(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if not undecided(state, stage) or not isinstance(stage.place, Root) or is_constant(state, stage):
        return ()
    made = expand(state, stage)
    if made is None:
        return ()
    return (Extension((UseAlgorithm(stage.name, NAME),), again=tuple(s.name for s in made)),)
