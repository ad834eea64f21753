"""Tiles of sums for instructions that multiply tiles (AMX): those that fit the registers, and the best one.

    option (outer rows, rows, vectors, columns, rows of a register)

A step loads a register tile for every row and for every column once, and multiplies each row with each
column. Registers hold the sums, the register tiles of the shorter side, and one of the other side. All
register tiles of a kernel have the same shape, except in the last step of a reduction if this step has fewer
terms.
"""

from __future__ import annotations

from math import ceil, prod

from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import TILE_REGISTERS
from autotensor.schedule.sketch import Option
from schedules.cpu import cpu_of
from schedules.kit.operand_roles import Roles

LAST = 2  # registers that a last, smaller step needs
MORE = 1.25  # the steps of a reduction may become this many times as many, so that all are whole


def even_part(extent: int, most: int) -> int:
    """The size of the parts if an extent is cut into as few equal parts as possible, of at most `most`."""
    return ceil(extent / ceil(extent / most))


def groups_at_once(groups: int, most: int) -> int:
    """Groups in one step: a divisor if this needs only few more steps; otherwise parts of nearly equal
    size."""
    whole = max(d for d in range(1, most + 1) if groups % d == 0)
    return whole if groups / whole <= MORE * ceil(groups / most) else even_part(groups, most)


def matrix_tiles(roles: Roles) -> tuple[Option, ...]:
    """The options for these extents. The rows of the registers are as equal as possible."""
    rows, lanes = even_part(roles.inner, roles.at_once), roles.lanes
    down, across = roles.inner // rows, ceil(roles.columns / lanes)
    spare = LAST if roles.ragged else 0
    return tuple(
        (th, tw * rows, nv, nv * lanes, rows)
        for nv in range(1, min(TILE_REGISTERS, across) + 1)
        for tw in range(1, min(TILE_REGISTERS, down) + 1)
        for th in range(1, min(TILE_REGISTERS, roles.outer) + 1)
        if (th == 1 or tw == down) and th * tw * nv + min(th * tw, nv) + 1 + spare <= TILE_REGISTERS
    )


def best_matrix_tile(roles: Roles, target: Target) -> Option:
    """The option with the fewest cycles on the busiest core. A panel that fits into half of L1 stays there,
    while the rows come from L2."""
    others, costs = prod(a.extent for a in roles.others), cpu_of(target).tiles
    column = sum(r.load.buffer.bytes for r in roles.packed) / roles.columns

    def cost(o: Option) -> tuple[float, int]:
        th, tw, nv, _, rows = o
        tiles, down = th * (tw // rows), ceil(roles.outer / th) * ceil(roles.inner / tw)
        far = tiles + (nv if column * nv * roles.lanes > target.cache_bytes[0] / 2 else 0)
        loads = max(costs.load * (tiles + nv), costs.from_l2 * far)
        step = max(costs.product * tiles * nv, loads, costs.latency)
        blocks = down * ceil(roles.columns / (nv * roles.lanes)) * others
        return step * ceil(blocks / target.num_cores), -nv

    return min(matrix_tiles(roles), key=cost)
