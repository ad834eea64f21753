"""Tiles of sums for instructions that multiply tiles (AMX): which tiles fit the registers, and which tile
suits best.

    option (outer rows, rows, vectors, columns, rows of a register)

A step loads a tile of every row and of every column once, and multiplies each with each. Registers hold the
sums, the tiles of the shorter side and one of the other. All tiles in a kernel have one shape, except in a
last step of a reduction that is not whole.
"""

from __future__ import annotations

from math import ceil, prod

from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import TILE_REGISTERS
from autotensor.schedule.sketch import Option
from schedules.cpu import cpu_of
from schedules.kit.operand_roles import Roles

LAST = 2  # registers that a last, smaller step needs
MORE = 1.25  # times the steps of a reduction, for them to be whole


def even_part(extent: int, most: int) -> int:
    """The size of parts of an extent of which as few as possible are made."""
    return ceil(extent / ceil(extent / most))


def groups_at_once(groups: int, most: int) -> int:
    """Groups that a step takes: a divisor where that makes few more steps, else parts as even as can be."""
    whole = max(d for d in range(1, most + 1) if groups % d == 0)
    return whole if groups / whole <= MORE * ceil(groups / most) else even_part(groups, most)


def matrix_tiles(roles: Roles) -> tuple[Option, ...]:
    """The options for these extents; rows of a register are as even as can be."""
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
    """The one that takes the fewest cycles on the busiest core: a panel that half of L1 holds stays there
    while rows go by, which come from L2."""
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
