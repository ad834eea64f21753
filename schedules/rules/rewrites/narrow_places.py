"""Reductions that remember places in 64 bits next to narrower values (arg-max): places of 32 bits.

Vectors then have twice the lanes, and the stage that widens the results is an epilogue as any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from schedules.algorithms.narrow.places import NAME
from schedules.kit.stage_analysis import at_point, undecided
from schedules.registry import Extension
from schedules.rules.rewrites.axis_last import lies_across


def narrow_places(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if not undecided(state, stage):
        return
    if len(stage.op.buffers) < 2 or ALGORITHMS.get(NAME).stages(state, stage) is None:
        return
    narrow = Extension((UseAlgorithm(stage.name, NAME),), again=(stage.name,))
    onward = Extension(onward=True)
    # Where a result is turned, narrow places come last: where the stage that widens is computed with the
    # reduction, both have the lanes of the wide results (3 times as slow).
    across = lies_across(state, stage, target) or _is_turned(state, stage)
    yield from (onward, narrow) if across else (narrow, onward)


def _is_turned(state: State, stage: Stage) -> bool:
    """Whether somebody reads the results at other places than his own."""
    return any(
        load.buffer in stage.op.buffers and not at_point(load.indices, reader.op.axes)
        for reader in state.consumers(stage)
        for load in reader.op.loads()
    )
