"""Windows over bytes that no dot instruction fits: summed in float32, where that is exact.

A depthwise convolution of bytes is a widening, a product and an addition for each term; in float32 one
instruction multiplies and adds. Time with integers over that with floats, one core of Zen 4 (2026-11): 3x3
1.0 to 1.08, 5x5 and 7x7 1.07 to 1.15. So floats come first, integers second.
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
    else:  # the sums' reader converts them
        yield Extension((step, Inline(stage.name)), done=(stage.name,))
    yield Extension(onward=True)
