"""Reductions that keep 64-bit indices next to narrower values (arg-max) get 32-bit indices.

Vectors then have twice as many lanes. The stage that widens the results is a normal epilogue.
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
    # If a result is transposed, narrow indices come last: if the widening stage is computed together with the
    # reduction, both have only the lanes of the wide results (3 times as slow).
    across = lies_across(state, stage, target) or _is_turned(state, stage)
    yield from (onward, narrow) if across else (narrow, onward)


def _is_turned(state: State, stage: Stage) -> bool:
    """Whether a reader reads the results at another position than its own."""
    return any(
        load.buffer in stage.op.buffers and not at_point(load.indices, reader.op.axes)
        for reader in state.consumers(stage)
        for load in reader.op.loads()
    )
