"""Reductions that remember places in 64 bits next to narrower values (arg-max): places of 32 bits.

Vectors then have twice the lanes, and the stage that widens the results is an epilogue as any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Root, Stage, State
from schedules.algorithms.narrow_places import NAME
from schedules.kit.stage_analysis import untouched
from schedules.registry import Extension


def narrow_places(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if not untouched(stage) or not isinstance(stage.place, Root) or state.attached(stage.name):
        return
    if len(stage.op.buffers) < 2 or ALGORITHMS.get(NAME).stages(state, stage) is None:
        return
    yield Extension((UseAlgorithm(stage.name, NAME),), again=(stage.name,))
    yield Extension(onward=True)
