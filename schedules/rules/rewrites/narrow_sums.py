"""Sums of integers that fit into a narrower type are computed in it, because its vectors have more lanes.

The stage that widens the results is a normal epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from schedules.algorithms.narrow.sums import NAME
from schedules.kit.stage_analysis import undecided
from schedules.registry import Extension


def narrow_sums(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if not undecided(state, stage):
        return
    if ALGORITHMS.get(NAME).stages(state, stage) is None:
        return
    yield Extension((UseAlgorithm(stage.name, NAME),), again=(stage.name, f"{stage.name}.narrow"))
    yield Extension(onward=True)
