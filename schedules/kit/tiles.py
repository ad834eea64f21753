"""Register tiles of matrix-product kernels: the tiles that fit, and the best tile for given extents.

    option (outer rows, rows, vectors, columns)      columns = vectors × lanes

One step of the reduction loads `vectors` vectors of one operand and broadcasts `rows` scalars of the other,
and needs rows × vectors accumulators. The module also has the small helpers with which rules write holes.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, gcd, prod

from autotensor.base.target import Target
from autotensor.schedule.sketch import Option
from autotensor.te.dag import StageOp
from schedules.cpu import PAGE, Cpu, cpu_of, spread_cycles
from schedules.kit.body_work import PRODUCT, BodyWork
from schedules.kit.matrix_tiles import best_matrix_tile, matrix_tiles
from schedules.kit.operand_roles import Roles
from schedules.kit.stage_analysis import lanes_of, second_cache

MAX_COLUMNS = 6  # most vectors next to each other in a tile; wider tiles leave too few rows
MAX_ROWS = 30
STEPS = (1, 2, 3, 4, 5, 7, 8)  # numbers of steps that may be unrolled
SHORT = 8  # up to this extent of the last reduction axis, as many steps as possible are unrolled
BETWEEN = 2  # registers inside a term that is more than a product: an intermediate value and a constant
# registers (of 32) that unrolled steps need besides a tile, its vectors and two scalars, because LLVM loads
# values of the next step early. With 28 sums, one went through the stack; with 27 up to 15; with 26 none
# (2026-11)
AHEAD = 1


def column_lanes(op: StageOp, target: Target) -> int:
    """The lanes of the vectors of a product's columns.

    For example, 24 columns are one and a half registers of 16 lanes. With two registers, a quarter of the
    work is wasted; with three half registers, nothing is wasted, if half registers are cheaper
    (`Cpu.halves`).
    """
    lanes, columns = lanes_of(op, target), op.axes[-1].extent if op.axes else 0
    half = lanes // 2
    return (
        half
        if ceil(columns / lanes) * lanes >= cpu_of(target).halves * ceil(columns / half) * half
        else lanes
    )


def tiles_of(roles: Roles, target: Target) -> tuple[Option, ...]:
    if roles.at_once > 1:
        return matrix_tiles(roles)
    return tile_options(roles.outer, roles.inner, roles.columns, roles.lanes, target, roles.work)


def best_tile(roles: Roles, target: Target, most_rows: int = MAX_ROWS) -> Option:
    """The tile that a rule takes without measuring. If several seem equally good, the widest one whose panel
    stays in L2 is taken.

    most_rows: only tiles with at most this many rows, if there are any.
    """
    if roles.at_once > 1:
        return best_matrix_tile(roles, target)
    others = prod(a.extent for a in roles.others)
    cpu, l2 = cpu_of(target), second_cache(target)
    packed, standing = (sum(r.load.buffer.bytes for r in of) for of in (roles.packed, roles.standing))
    column = packed / roles.columns  # bytes of the packed panel for each column
    results = 4 * roles.outer * roles.inner * roles.columns * others
    # if panels have more bytes than rows and results together, the cores divide the panels and not the rows
    heavy = packed > results + standing
    streamed = roles.depth <= cpu.writes and results > l2 * target.num_cores

    extents = roles.outer, roles.inner, roles.columns, roles.lanes
    of_bytes = any(r.load.buffer.dtype.is_byte for r in roles.packed)
    short = cpu.byte_sums if of_bytes else 0
    near = target.cache_bytes[0] // (2 if short else 1)  # rows of short tiles are loaded as often as vectors

    def quality(o: Option) -> tuple[float, bool, int]:
        share = tile_quality(o, *extents, target, roles.row_bytes, roles.work)
        rows = ceil(roles.outer / o[0]) * ceil(roles.inner / o[1])
        even = _balance(1 if heavy else rows, ceil(roles.columns / o[3]), others, target)
        wait = cpu.panel_wait if column * o[3] > near else 0.0
        tall = roles.outer * roles.inner / rows if short else o[0] * o[1]
        fed = tall / (tall + wait)
        runs = o[2] / (o[2] + cpu.run) if streamed else 1.0
        whole = cpu.pushed_out if is_pushed_out(o[0] * o[1], o[2], roles.depth, target) else 1.0
        return share * even * fed * runs * whole, column * o[3] <= cpu.panel * l2, o[2]

    options = tiles_of(roles, target)
    fitting = [o for o in options if o[0] * o[1] * o[2] <= short] or options
    best = max([o for o in fitting if o[0] * o[1] <= most_rows] or fitting, key=quality)
    return _halved(best, options, target) if of_bytes and cpu.halves_full_tiles else best


def _halved(tile: Option, options: tuple[Option, ...], target: Target) -> Option:
    """The tile with half the rows, if the tile fills all registers and half of it keeps the core busy."""
    outer, inner, vectors, columns = tile
    rows = outer * inner
    half = (outer, inner // 2, vectors, columns) if outer % 2 else (outer // 2, inner, vectors, columns)
    busy = rows // 2 * vectors >= cpu_of(target).accumulators
    full = rows * vectors + vectors + 2 + AHEAD > target.vector_registers
    return half if full and busy and rows % 2 == 0 and half in options else tile


def steps_written(extent: int, target: Target, least: int = 1) -> tuple[tuple[int, ...], int]:
    """The options for the number of unrolled steps of a tile's last reduction loop, and the number without
    measuring.

    least: the least number of steps, if the extent has such a divisor.
    """
    options = tuple(d for d in STEPS if extent % d == 0)
    return options, options[-1] if extent <= SHORT else written_out(extent, target, least)


def written_out(extent: int, target: Target, least: int = 1) -> int:
    """The number of steps of a long reduction that are unrolled without measuring: a divisor of its
    extent."""
    return max(d for d in range(1, max(least, cpu_of(target).written) + 1) if extent % d == 0)


def is_pushed_out(rows: int, vectors: int, extent: int, target: Target) -> bool:
    """Whether the unrolled steps of a reduction with this extent use registers that the tile itself needs.

    Processors with 16 registers have no spare registers.
    """
    if target.vector_registers <= 16 or written_out(extent, target) == 1:
        return False
    return rows * vectors + vectors + 2 + AHEAD > target.vector_registers


def _balance(rows: int, columns: int, others: int, target: Target) -> float:
    """How evenly the cores can divide a grid of tiles: by columns, by rows, or otherwise tile by tile."""

    cores, scattered = target.num_cores, cpu_of(target).scattered

    def even(parts: int) -> float:
        return parts / (cores * ceil(parts / cores))

    return max(even(columns * others), even(rows * others), scattered * even(rows * columns * others))


@lru_cache(maxsize=64)  # used by every form of a sketch
def tile_options(
    outer: int, inner: int, columns: int, lanes: int, target: Target, work: BodyWork = PRODUCT
) -> tuple[Option, ...]:
    """The tiles of a product with these extents (rows in two loops, columns in elements) that do not
    spill."""
    registers = target.sum_registers
    widest = min(MAX_COLUMNS, ceil(columns / lanes))
    out = []
    for nv in range(1, widest + 1):
        for tw in range(1, min(inner, MAX_ROWS) + 1):
            for th in range(1, min(outer, 6) + 1):
                if th > 1 and tw < min(inner, 8):
                    continue  # two-dimensional tiles only if the inner row axis is short
                acc = th * tw * nv * work.results
                spare = 1 if nv == 1 and work.is_product else held(nv, work)
                if acc + spare > registers and acc > work.results:
                    continue
                out.append((th, tw, nv, nv * lanes))
    best = max(o[0] * o[1] * o[2] for o in out)
    least = cpu_of(target).least_tile
    floor = max(least, registers // 4)
    floor = floor if best >= floor else min(best, least)
    kept = tuple(o for o in out if o[0] * o[1] * o[2] >= floor)
    return kept or tuple(out)


def tile_quality(
    option: Option,
    outer: int,
    inner: int,
    columns: int,
    lanes: int,
    target: Target,
    row_bytes: int = 0,
    work: BodyWork = PRODUCT,
) -> float:
    """The approximate share of the peak that a tile reaches on these extents, by loads per FMA, latency and
    tails.

    row_bytes: the distance between neighbouring rows of the scalar operand. If the rows use few sets of the
    nearest cache, tall tiles push their own rows out of the cache.
    """
    th, tw, nv, _ = option
    cpu, registers, spread = cpu_of(target), target.sum_registers, spread_cycles(target)
    once = cpu.tile_stream if outer * inner <= th * tw else 0.0  # no other tile reads the vectors again

    def blocks(h: int) -> tuple[float, ...]:
        """Cycles of one row of tiles: of a whole tile and of the last one."""
        found = []
        for w, times in ((tw, inner // tw), (inner % tw, 1 if inner % tw else 0)):
            fma: float = h * w * nv
            if work is not PRODUCT:
                scalars = cpu.folded * work.row_loads if nv == 1 and work.both > 1 else 0.0
                fma = fma * work.both + h * w * (work.row + scalars) + nv * work.vector
            loads = h * w * work.row_loads + nv * work.vector_loads
            fma += spread * h * w * work.row_loads
            cycles = max(fma, loads, cpu.accumulators, once * nv * work.vector_loads)
            cycles += cpu.tile_step + _crowding(h * w, row_bytes, cpu)
            found.append(times * cycles if fma else 0.0)
        return tuple(found)

    whole = blocks(th)  # computed once: this is called thousands of times, and there may be hundreds of rows
    total = 0.0
    for part in (*(whole * (outer // th)), *(blocks(outer % th) if outer % th else ())):
        total += part
    tiles = ceil(columns / (nv * lanes))
    useful = outer * inner * columns / lanes
    taken = th * tw * nv * work.results + held(nv, work)
    tight = 1.0 if taken + 1 <= registers else cpu.tight
    if work.both > 1 and taken + BETWEEN > registers:
        tight = cpu.spilled
    return tight * useful / (total * tiles)


def held(vectors: int, work: BodyWork) -> int:
    """The registers that a step needs besides a tile's sums: for the values of its vectors, and of one
    row."""
    return vectors * max(1, work.vectors_held) + max(1, work.rows_held)


def _crowding(rows: int, row_bytes: int, cpu: Cpu) -> float:
    """The cycles that a step loses if its rows push one another out of the nearest cache."""
    lines = lines_per_set(rows, row_bytes)
    return 0.0 if lines <= cpu.ways else cpu.tile_crowded * rows * max(1.0, lines / (2 * cpu.ways)) ** 2


def lines_per_set(rows: int, row_bytes: int) -> int:
    """The cache lines that compete for one set if `rows` rows at this distance are read at the same time."""
    step = row_bytes % PAGE
    sets = PAGE // gcd(step, PAGE) if step or row_bytes else rows
    return ceil(rows / max(1, sets))


def powers(n: int) -> tuple[int, ...]:
    """The powers of two below n, and n."""
    out = [1]
    while out[-1] * 2 < n:
        out.append(out[-1] * 2)
    return tuple(dict.fromkeys([*out, n]))


def singles(values: tuple[int, ...]) -> tuple[Option, ...]:
    return tuple((v,) for v in values)


def nearest(choices: tuple[int, ...], wanted: int) -> int:
    return min(choices, key=lambda c: (abs(c - wanted), c))
