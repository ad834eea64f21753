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
    """Fuses neighbouring loops. Returns the steps and the new loop's name."""
    steps: list[Step] = []
    name = axes[0]
    for axis in axes[1:]:
        steps.append(FuseStep(stage, name, axis))
        name = fuse_name(name, axis)
    return steps, name


def in_vectors(stage: str, *loops: str) -> list[Step]:
    """Vectorizes the last loop, and unrolls the loops around it."""
    *around, last = loops
    return [*(Unroll(stage, loop) for loop in around), Vectorize(stage, last)]


def names_in(host: StageOp, op: StageOp) -> dict[str, str]:
    """For each axis of `op`, the host's axis at the same position; both have the same number of axes."""
    return {a.name: b.name for a, b in zip(op.axes, host.axes, strict=True)}


def host_and_anchor(after: Stage | None, stage: str) -> tuple[str, str, list[Step]]:
    """The stage whose loops make the tiles, the stage that accumulates inside of them, and the steps that
    make it.

    after: a later stage whose loops can make the tiles; without it, they are the stage's own loops.
    """
    if after is not None:
        return after.name, stage, []
    return stage, f"{stage}.local", [CacheWrite(stage, "local")]
