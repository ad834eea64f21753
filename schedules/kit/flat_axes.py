"""Axes that lie behind one another in memory, walked as one."""

from __future__ import annotations

from autotensor.schedule.axis import fuse_name
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.step import Step
from autotensor.te.dag import IterDef, StageOp
from schedules.kit.stage_analysis import reads


def fused_axes(name: str, op: StageOp, axes: tuple[IterDef, ...]) -> tuple[list[Step], str, int]:
    """The trailing axes that lie behind one another in memory fused into one: steps, its name, its extent.

    Axes that do not lie so stay outside. Without axes: no steps, no name, extent 1.
    """
    if not axes:
        return [], "", 1
    steps: list[Step] = []
    fused, extent = axes[-1].name, axes[-1].extent
    for axis in reversed(axes[:-1]):
        if not all(_continues(r.strides, axis.name, axes[-1].name, extent) for r in reads(op)):
            break
        steps.append(FuseStep(name, axis.name, fused))
        fused, extent = fuse_name(axis.name, fused), extent * axis.extent
    return steps, fused, extent


def _continues(strides: dict[str, int], outer: str, inner: str, extent: int) -> bool:
    """Whether one step of the outer axis is `extent` steps of the inner one."""
    return strides.get(outer, 0) == strides.get(inner, 0) * extent
