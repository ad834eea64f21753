"""The ways to read a moving operand that is not packed beforehand, and the steps of a copy.

    direct      the operand is read in place: good for small operands, whose rows stay in the cache
    copied      for each column of tiles, a panel of the tile's width is copied, and all rows use the copy
    blocked     for few rows, a copy is not worth its time; the reduction is cut so that rows of the operand
                stream by, or stay in the cache until all rows of the result have used them

A panel that is read in place costs a page and the latency of a cache line for each step of the reduction, and
costs them again for every row of tiles.
"""

from __future__ import annotations

import enum
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.cache import CacheRead
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.primitives.storage import Storage
from autotensor.schedule.step import Step
from autotensor.te.dag import StageOp
from schedules.cpu import PAGE, cpu_of
from schedules.kit.operand_roles import Roles, dimension, distance
from schedules.kit.shared_steps import in_vectors
from schedules.kit.stage_analysis import Read, second_cache
from schedules.kit.tiles import best_tile, lines_per_set


class Supply(enum.Enum):
    """How a product reads its moving operand: see the module's picture."""

    DIRECT = "direct"
    COPIED = "copied"
    BLOCKED = "blocked"


def supply(op: StageOp, roles: Roles, target: Target) -> Supply:
    """The choice of a rule without measuring."""
    if not roles.direct:
        return Supply.DIRECT
    cpu, rows, tile = cpu_of(target), roles.outer * roles.inner, best_tile(roles, target)
    width = tile[3] * op.buffers[0].dtype.bytes
    far = [r for r in roles.direct if is_far(op, roles, r, target)]
    depth = prod(a.extent for a in op.reduce_axes)
    # a panel that does not fit into L2 would be read from beyond it for each tile of rows: 64 x 64 results of
    # 8192 steps are 1.3 x as fast in cuts (Zen 5, 2026-11)
    if not far and depth * width > second_cache(target) and tile[0] * tile[1] < rows < cpu.copy_rows:
        return Supply.BLOCKED
    if (far and rows >= cpu.copy_rows) or any(_crowded(op, r, roles, target) for r in roles.direct):
        return Supply.COPIED if can_be_copied(roles) else Supply.BLOCKED if far else Supply.DIRECT
    most = 2 * cpu.far * second_cache(target)
    return Supply.BLOCKED if far and max(_bytes_of_one(op, roles, r) for r in far) > most else Supply.DIRECT


def can_be_copied(roles: Roles) -> bool:
    """Whether panels of the direct operands can be copied. If an operand is also read in another way (in a
    covariance, it is also read along the rows), each panel would copy the whole operand."""
    every = [r.load.buffer for r in (*roles.packed, *roles.standing, *roles.turned, *roles.direct)]
    return all(every.count(r.load.buffer) == 1 for r in roles.direct)


def _crowded(op: StageOp, r: Read, roles: Roles, target: Target) -> bool:
    """Whether a panel should be copied, because reading it in place for one tile of rows after the other is
    slow.

    That is so if the panel is on more pages than a core's TLB has entries, or if it would fit into the
    nearest cache but uses only few of its sets. If it is at the same offset in every page, it also uses few
    sets of the second cache; then half as many tiles are enough to repay a copy.
    """
    cpu, depth, step = cpu_of(target), op.reduce_axes[-1].extent, distance(r, op.reduce_axes[-1].name)
    th, tw, _, columns = best_tile(roles, target)
    tiles, width = ceil(roles.outer / th) * ceil(roles.inner / tw), columns * r.load.buffer.dtype.bytes
    few = cpu.crowded_tiles if step % PAGE else cpu.crowded_tiles // 2
    if tiles <= few or step <= width or depth * width > cpu.crowded_share * second_cache(target):
        return False
    in_few_sets = depth * width <= target.cache_bytes[0] and lines_per_set(depth, step) > cpu.ways
    return in_few_sets or depth * min(step, PAGE) > cpu.near_pages * PAGE


def crosswise(op: StageOp, roles: Roles) -> tuple[Read, ...]:
    """Standing operands that are contiguous along the rows, so each step of the reduction is on another
    line."""
    if not roles.rows or len(op.reduce_axes) != 1:
        return ()
    row, depth = roles.rows[-1].name, op.reduce_axes[0].name
    shared = [r.load.buffer for r in (*roles.packed, *roles.direct, *roles.turned)]
    return tuple(
        r
        for r in roles.standing
        if r.strides.get(row) == 1
        and dimension(r, row) is not None
        and dimension(r, depth) is not None
        and r.load.buffer not in shared
    )


def is_far(op: StageOp, roles: Roles, r: Read, target: Target) -> bool:
    """Whether no part of the operand is still in L2 after a pass over it."""
    return _bytes_of_one(op, roles, r) > cpu_of(target).far * second_cache(target)


def beyond_caches(op: StageOp, roles: Roles, target: Target) -> bool:
    """Whether panels of the moving operands come from memory: all panels in every pass over the columns, or
    constants at least in each core's first pass, because other layers of a model have used the caches
    since."""
    moving = (*roles.packed, *roles.direct)
    whole = bool(moving) and sum(_bytes_of_one(op, roles, r) for r in moving) > target.cache_bytes[-1]
    return whole or any(is_far(op, roles, r, target) for r in roles.packed)


def _bytes_of_one(op: StageOp, roles: Roles, r: Read) -> int:
    """Bytes of the operand that one iteration of the untiled axes reads."""
    outside = {a.name for a in roles.others}
    axes = [a for a in op.all_axes if a.name not in outside and r.uses(a.name)]
    return int(min(r.load.buffer.size, prod(a.extent for a in axes)) * r.load.buffer.dtype.bytes)


def copy_steps(r: Read, roles: Roles, reader: str, host: str, at: str) -> tuple[str, list[Step]]:
    """The name of a copy and the steps that make it: at a loop of the host, they copy in vectors the part of
    an operand that `reader` needs."""
    tensor = r.load.buffer.name
    name = f"{tensor}.local:{reader}"
    last = f"i{len(r.load.buffer.shape) - 1}"
    return name, [
        CacheRead(tensor, "local", (reader,)),
        ComputeAt(name, host, at),
        SplitStep(name, last, (roles.lanes,)),
        *in_vectors(name, f"{last}.0", f"{last}.1"),
    ]


def turn_steps(
    r: Read, fast: str, slow: str, roles: Roles, reader: str, host: str, at: str, pad: int = 0
) -> tuple[str, list[Step]]:
    """Copies an operand that is contiguous along axis `slow` so that the copy is contiguous along `fast`, in
    squares of vectors.

    fast, slow: axes of the reader; each is the index of one dimension. pad: elements between rows of the
    copy.
    """
    tensor = r.load.buffer.name
    name = f"{tensor}.local:{reader}"
    to, of = dimension(r, fast), dimension(r, slow)
    assert to is not None
    assert of is not None
    rest = [f"i{n}" for n in range(len(r.load.buffer.shape)) if n not in (to, of)]
    return name, [
        CacheRead(tensor, "local", (reader,)),
        ComputeAt(name, host, at),
        Storage(name, (*rest, f"i{of}", f"i{to}"), pad),
        SplitStep(name, f"i{to}", (roles.lanes,)),
        SplitStep(name, f"i{of}", (roles.lanes,)),
        Reorder(name, (*rest, f"i{of}.0", f"i{to}.0", f"i{of}.1", f"i{to}.1")),
        *in_vectors(name, f"i{of}.1", f"i{to}.1"),
    ]
