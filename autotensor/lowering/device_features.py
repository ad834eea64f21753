"""Features of a device beyond plain threads that lowering may use: exchanges in a warp, asynchronous copies.

Only CUDA has both; for any other target, a state is lowered without them.
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
    """Extents of the thread axes of the block that computes a stage and everything attached to the stage."""
    found: dict[str, int] = {}
    waiting = [root]
    while waiting:
        stage = waiting.pop()
        waiting.extend(state.attached(stage.name))
        for leaf in stage.leaves:
            if leaf.thread.startswith("threadIdx"):
                found[leaf.thread] = max(found.get(leaf.thread, 1), int(extents[stage.name, leaf.name]))
    return found
