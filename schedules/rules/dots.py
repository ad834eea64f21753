"""Products of narrow types by dot instructions: register tiles whose steps are groups of the reduction.

    parallel over blocks, column tiles, row tiles          as in `tile_cpu`
      acc[rows, nv*columns] in registers
      for groups of the reduction: acc = dot(acc, a word of each row, nv vectors of a panel)

Panels hold the elements of a group side by side. An instruction that the processor's record says to be faster
than FMAs in float32 is the default; others are sketches for the search to try, as are the loops without.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.schedule.state import Stage, State
from schedules.kit.dot_uses import dot_uses
from schedules.kit.stage_analysis import untouched
from schedules.registry import Extension
from schedules.rules.tile_cpu import tiled


def dots(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm" or len(stage.op.buffers) != 1 or not untouched(stage):
        return
    uses = dot_uses(state, stage.op, target)
    if not uses:
        return
    for use in uses:
        if use.gain > 1.0:
            yield from tiled(state, stage, use.roles, target, use)
    yield Extension(onward=True)
    for use in uses:
        if use.gain <= 1.0:
            yield from tiled(state, stage, use.roles, target, use)
