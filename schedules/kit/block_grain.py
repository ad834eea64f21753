"""Cuts a grid of tiles into blocks for the threads of a call.

    tiles      rows × columns × others (untiled iterations)
    blocks     r × c tiles each; thread t of n runs a contiguous share of all blocks

A block reads a panel of the moving operand once for all its rows, so larger blocks are better. But the
threads' shares must be equal: with 7 blocks and two threads, one thread runs 4 blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil

MOST = 4096  # up to this number, blocks are counted one by one


def cuts(tiles: int, cores: int) -> tuple[int, ...]:
    """Sizes of blocks to offer: powers of two, all tiles, and the equal shares for 1, 2, 4, … blocks per
    core."""
    equal = [ceil(tiles / (cores * m)) for m in (1, 2, 4, 8)]
    powers = [1 << n for n in range(tiles.bit_length()) if 1 << n < tiles]
    return tuple(sorted({*powers, *equal, tiles}))


@lru_cache(maxsize=1024)
def block_of(
    rows: int,
    columns: int,
    others: int,
    cores: int,
    reread: float,
    again: float = 0.0,
    fits: int = 1 << 30,
    apart: float = 0.0,
    spill: float = 0.0,
) -> tuple[int, int]:
    """The tiles of rows and of columns in a block that a rule takes without measuring.

    reread: the cost of reading a panel, in tiles of work. again: the cost of a block's own copies of its rows
    (padding), in columns of work. fits: tiles of rows whose operand stays in L2 while columns are computed.
    apart: share of the time that is lost if cores divide columns. spill: share that is lost with more rows
    than `fits`.
    """

    def cost(choice: tuple[int, int]) -> tuple[float, int]:
        r, c = choice
        work = _largest_share(rows, columns, others, r, c, cores)
        lost = (spill if r > fits else 0.0) + (apart if c < columns else 0.0)
        return work * (1.0 + reread / r + again / c + lost), -r * c

    choices = [(r, c) for r in cuts(rows, cores) for c in cuts(columns, cores)]
    return min(choices, key=cost)


def parts_of(n: int, size: int) -> list[int]:
    """Sizes of the parts of n; the last part is the rest."""
    return [size] * (n // size) + ([n % size] if n % size else [])


def slowest(blocks: Sequence[int], cores: int) -> float:
    """The work of the busiest core, divided by the average. Each core runs a contiguous share with the same
    number of blocks."""
    ends = [len(blocks) * t // cores for t in range(cores + 1)]
    return max(sum(blocks[a:b]) for a, b in pairwise(ends)) * cores / sum(blocks)


def _largest_share(rows: int, columns: int, others: int, r: int, c: int, cores: int) -> float:
    """The number of tiles of the thread with the most work."""
    across, down = ceil(columns / c), ceil(rows / r)
    blocks = across * down * others
    even = rows * columns * others / cores
    if blocks > MOST:
        return even * (1.0 + cores / blocks)
    most = 0.0
    for t in range(cores):
        share = 0
        for b in range(blocks * t // cores, blocks * (t + 1) // cores):
            row, column = b % down, b // down % across
            share += min(r, rows - row * r) * min(c, columns - column * c)
        most = max(most, float(share))
    return most
