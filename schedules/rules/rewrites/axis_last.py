"""Reductions whose result lies across their operands.

If no tile fits, they are computed along the operands, and the result is transposed. If a tile fits, an
operand is packed, or its panels are transposed (`tile_cpu`).
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from schedules.algorithms.axis_last import NAME, axis_along_memory
from schedules.kit.operand_roles import assign_roles
from schedules.kit.stage_analysis import lanes_of, read_by_choice, undecided
from schedules.kit.tiles import column_lanes
from schedules.registry import Extension


def axis_last(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if not lies_across(state, stage, target):
        return
    yield Extension((UseAlgorithm(stage.name, NAME),), again=(stage.name,))
    yield Extension(onward=True)


def lies_across(state: State, stage: Stage, target: Target) -> bool:
    """Whether a stage's result lies across its operands, and no tile of a product fits it."""
    op = stage.op
    if target.kind != "llvm" or not undecided(state, stage):
        return False
    if read_by_choice(state, stage):
        return False
    axis = axis_along_memory(op)
    if axis is None or axis.extent < lanes_of(op, target):
        return False
    return assign_roles(state, op, column_lanes(op, target), target) is None
