"""Tools of the GPU rules: threads of a block, and loops bound to a grid.

bind_flat("C", axes, threads)       C's spatial loops as one loop, cut into blocks of this many threads

These tools are for cards. If the threads of a block run one after the other on a core (`Target.on_cores`),
`generate` uses the CPU's rules, and their parallel loop becomes blocks.
"""

from __future__ import annotations

from math import prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.bind import Bind
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Size, Stage
from autotensor.schedule.step import Step
from schedules.kit.shared_steps import fused

BLOCK = 256  # threads of a block, unless another number is better
LEAST_BLOCK = 32


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """
    >>> powers_of_two(4, 20)
    (4, 8, 16)
    """
    return tuple(1 << n for n in range(31) if low <= 1 << n <= high)


def bind_flat(stage: str, axes: tuple[str, ...], threads: Size) -> tuple[list[Step], str]:
    """Fuses loops and cuts the result into blocks. Returns the steps and the name of the loop over
    threads."""
    steps, name = fused(stage, axes)
    steps += [
        SplitStep(stage, name, (threads,)),
        Bind(stage, f"{name}.0", "blockIdx.x"),
        Bind(stage, f"{name}.1", "threadIdx.x"),
    ]
    return steps, f"{name}.1"


def block_hole(stage: Stage, target: Target) -> Hole:
    """The hole for the number of threads of a block, for loops without reuse."""
    points = prod(a.extent for a in stage.op.axes)
    most = max(1, min(points, target.max_threads_per_block))
    options = powers_of_two(min(LEAST_BLOCK, most), most) or (most,)
    wanted = min(BLOCK, max(options))
    # every multiprocessor should have a block before blocks get large
    wanted = min(wanted, max(LEAST_BLOCK, points // target.num_cores))
    default = max((o for o in options if o <= wanted), default=options[0])
    return Hole(f"{stage.name}/threads", tuple((o,) for o in options), (default,))
