"""Makes one loop of contiguous axes. Axes of one element at the end of a result get no loop of their own."""

from __future__ import annotations

from autotensor.schedule.axis import fuse_name
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.step import Step
from autotensor.te.dag import IterDef, StageOp
from schedules.kit.shared_steps import fused
from schedules.kit.stage_analysis import reads


def fused_axes(name: str, op: StageOp, axes: tuple[IterDef, ...]) -> tuple[list[Step], str, int]:
    """The trailing axes that are contiguous in memory, fused into one loop: the steps, the loop's name and
    its extent.

    Other axes stay outside. Without axes, there are no steps, no name, and the extent is 1.
    """
    if not axes:
        return [], "", 1
    steps: list[Step] = []
    one, extent = axes[-1].name, axes[-1].extent
    for axis in reversed(axes[:-1]):
        if not all(_continues(r.strides, axis.name, axes[-1].name, extent) for r in reads(op)):
            break
        steps.append(FuseStep(name, axis.name, one))
        one, extent = fuse_name(axis.name, one), extent * axis.extent
    return steps, one, extent


def long_axes(op: StageOp) -> tuple[IterDef, ...]:
    """The axes of a stage up to the last axis with more than one element: x[n, 1] is stored like x[n]."""
    units = 0
    while units < len(op.axes) - 1 and op.axes[len(op.axes) - 1 - units].extent == 1:
        units += 1
    return op.axes[: len(op.axes) - units]


def long_loops(name: str, op: StageOp) -> tuple[list[Step], list[str]]:
    """The steps and names of a stage's loops. Axes of one element at the end are fused with the axis before
    them."""
    kept = long_axes(op)
    steps, last = fused(name, [a.name for a in op.axes[len(kept) - 1 :]])
    return steps, [*(a.name for a in kept[:-1]), last]


def _continues(strides: dict[str, int], outer: str, inner: str, extent: int) -> bool:
    """Whether one step along the outer axis is as far as `extent` steps along the inner axis."""
    return strides.get(outer, 0) == strides.get(inner, 0) * extent
