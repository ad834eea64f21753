"""Steps that many rules share: neighbouring loops as one loop, tiles, and the stage that sums inside a tile.

fused("C", ("i", "j", "k"))     Fuse(i, j), Fuse((i*j), k)      and the name of the loop
in_vectors("C", "i", "j.0", "j.1")      Unroll(i), Unroll(j.0), Vectorize(j.1)
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.schedule.axis import fuse_name
from autotensor.schedule.primitives.cache import CacheWrite
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.mark import Unroll, Vectorize
from autotensor.schedule.state import Stage
from autotensor.schedule.step import Step
from autotensor.te.dag import StageOp


def fused(stage: str, axes: Sequence[str]) -> tuple[list[Step], str]:
    """Neighbouring loops as one: the steps and its name."""
    steps: list[Step] = []
    name = axes[0]
    for axis in axes[1:]:
        steps.append(FuseStep(stage, name, axis))
        name = fuse_name(name, axis)
    return steps, name


def in_vectors(stage: str, *loops: str) -> list[Step]:
    """Puts the last loop in vectors, and writes out the loops around it."""
    *around, last = loops
    return [*(Unroll(stage, loop) for loop in around), Vectorize(stage, last)]


def names_in(host: StageOp, op: StageOp) -> dict[str, str]:
    """The axis of the host at the place of each axis of `op`, which has as many."""
    return {a.name: b.name for a, b in zip(op.axes, host.axes, strict=True)}


def host_and_anchor(after: Stage | None, stage: str) -> tuple[str, str, list[Step]]:
    """The stage whose loops carry the tiles, the one that accumulates inside, and steps to make it.

    after: the stage behind whose loops can carry them; without one they are the stage's own.
    """
    if after is not None:
        return after.name, stage, []
    return stage, f"{stage}.local", [CacheWrite(stage, "local")]
