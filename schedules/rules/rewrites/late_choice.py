"""Sums under a condition that is the same for all terms: the condition is always tested after the sum.

It is then tested once instead of for every term, whatever the loops are. So there is nothing to decide.
"""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from schedules.algorithms.late_choice import NAME
from schedules.algorithms.late_choice import late_choice as expand
from schedules.kit.stage_analysis import undecided
from schedules.registry import Extension


def late_choice(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if not undecided(state, stage):
        return ()
    if expand(state, stage) is None:
        return ()
    return (Extension((UseAlgorithm(stage.name, NAME),), again=(stage.name,)),)
