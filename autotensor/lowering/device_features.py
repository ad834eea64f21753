"""Features of a device beyond plain threads that lowering may use: exchanges in a warp, asynchronous copies.

Only CUDA has both; a state is lowered for any other target as if there were neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.base.target import Target
from autotensor.schedule.extents import Extents
from autotensor.schedule.state import Stage, State

FIRST_WITH_COPIES = 80  # compute capability 8.0


@dataclass(frozen=True, slots=True)
class Device:
    """The abilities of a target's threads."""

    warp: int = 1  # lanes that exchange values without memory
    copies: bool = False  # from global to shared memory, asynchronous


PLAIN = Device()


def device_of(target: Target | None) -> Device:
    if target is None or target.kind != "cuda":
        return PLAIN
    return Device(target.warp_size, target.capability >= FIRST_WITH_COPIES)


def block_of(state: State, root: Stage, extents: Extents) -> dict[str, int]:
    """Extents of the axes of threads of the block that computes a stage, with all that is attached to it."""
    found: dict[str, int] = {}
    waiting = [root]
    while waiting:
        stage = waiting.pop()
        waiting.extend(state.attached(stage.name))
        for leaf in stage.leaves:
            if leaf.thread.startswith("threadIdx"):
                found[leaf.thread] = max(found.get(leaf.thread, 1), int(extents[stage.name, leaf.name]))
    return found
