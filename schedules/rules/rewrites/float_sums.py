"""Windows over bytes to which no dot instruction applies are summed in float32 if this is exact.

In integers, a depthwise convolution of bytes takes a widening, a product and an addition for each term. In
float32, one instruction multiplies and adds. On one core of Zen 4, the time with integers divided by the time
with floats is 1.0 to 1.08 for 3x3, and 1.07 to 1.15 for 5x5 and 7x7 (2026-11). So floats come first, and
integers second.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.state import Stage, State
from schedules.algorithms.float_sums import NAME
from schedules.kit.stage_analysis import epilogue, lanes_of, undecided
from schedules.registry import Extension
from schedules.rules.tiles.windows import find_window


def float_sums(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm" or not undecided(state, stage) or not stage.op.reduce_axes:
        return
    if find_window(state, stage.op, lanes_of(stage.op, target)) is None:
        return
    if ALGORITHMS.get(NAME).stages(state, stage) is None:
        return
    step = UseAlgorithm(stage.name, NAME)
    after = step.apply(state)
    if epilogue(after, after.stage(stage.name)) is None:
        yield Extension((step,), again=(stage.name,))
    else:  # the reader of the sums converts them
        yield Extension((step, Inline(stage.name)), done=(stage.name,))
    yield Extension(onward=True)
