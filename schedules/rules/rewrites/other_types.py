"""Reductions of whole numbers in other types, if the results are the same: their vectors have more lanes, or
fewer operations.

    places        64-bit indices next to narrower values (arg-max) get 32 bits
    float sums    windows over bytes to which no dot instruction applies are summed in float32
    narrow sums   sums that fit into a narrower type are computed in that type

The stage that widens or converts the results is a normal epilogue. In integers, a depthwise convolution of
bytes takes a widening, a product and an addition for each term; in float32, one instruction multiplies and
adds. On one core of Zen 4, the time with integers divided by the time with floats is 1.0 to 1.08 for 3x3, and
1.07 to 1.15 for 5x5 and 7x7 (2026-11).
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.state import Stage, State
from schedules.algorithms.float_sums import NAME as FLOAT_SUMS
from schedules.algorithms.narrow.places import NAME as PLACES
from schedules.algorithms.narrow.sums import NAME as NARROW_SUMS
from schedules.kit.stage_analysis import at_point, epilogue, lanes_of, undecided
from schedules.registry import Extension, in_turn
from schedules.rules.tiles.windows import find_window


def other_types(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if undecided(state, stage) and stage.op.is_reduction:
        yield from in_turn((_places, _float_sums, _narrow_sums), state, stage, target)


def _fits(algorithm: str, state: State, stage: Stage) -> bool:
    return ALGORITHMS.get(algorithm).stages(state, stage) is not None


def _places(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if len(stage.op.buffers) < 2 or not _fits(PLACES, state, stage):
        return
    narrow = Extension((UseAlgorithm(stage.name, PLACES),), again=(stage.name,))
    onward = Extension(onward=True)
    # If a result is transposed, narrow indices come last: if the widening stage is computed together with the
    # reduction, both have only the lanes of the wide results (3 times as slow).
    yield from (onward, narrow) if _is_turned(state, stage) else (narrow, onward)


def _is_turned(state: State, stage: Stage) -> bool:
    """Whether a reader reads the results at another position than its own."""
    return any(
        load.buffer in stage.op.buffers and not at_point(load.indices, reader.op.axes)
        for reader in state.consumers(stage)
        for load in reader.op.loads()
    )


def _float_sums(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm" or find_window(state, stage.op, lanes_of(stage.op, target)) is None:
        return
    if not _fits(FLOAT_SUMS, state, stage):
        return
    step = UseAlgorithm(stage.name, FLOAT_SUMS)
    after = step.apply(state)
    if epilogue(after, after.stage(stage.name)) is None:
        yield Extension((step,), again=(stage.name,))
    else:  # the reader of the sums converts them
        yield Extension((step, Inline(stage.name)), done=(stage.name,))
    yield Extension(onward=True)


def _narrow_sums(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if _fits(NARROW_SUMS, state, stage):
        again = (stage.name, f"{stage.name}.narrow")
        yield Extension((UseAlgorithm(stage.name, NARROW_SUMS),), again=again)
        yield Extension(onward=True)
