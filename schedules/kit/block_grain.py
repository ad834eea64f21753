"""How a grid of tiles is cut into blocks for the threads of a call.

    tiles      rows × columns × others (untiled iterations)
    blocks     r × c tiles each; thread t of n runs a contiguous share of all blocks

A block reads a panel of the moving operand once for all its rows; the larger, the better. But shares must be
equal: of 7 blocks one of two threads runs 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil

MOST = 4096  # blocks that are counted one by one


def cuts(tiles: int, cores: int) -> tuple[int, ...]:
    """Sizes of blocks to offer: powers of two, all, and the equal shares of 1, 2, 4, … blocks a core."""
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
    """Tiles of rows and of columns in a block that a rule takes without measuring.

    reread: what reading a panel costs, in tiles of work. again: what a block's own copies of its rows cost
    (padding), in columns of work. fits: tiles of rows whose operand stays in L2 while columns go by. apart:
    share of the time that dividing columns costs; spill: that more rows than these cost.
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
    """Work of the busiest core over the average; each runs a contiguous share, of as many blocks."""
    ends = [len(blocks) * t // cores for t in range(cores + 1)]
    return max(sum(blocks[a:b]) for a, b in pairwise(ends)) * cores / sum(blocks)


def _largest_share(rows: int, columns: int, others: int, r: int, c: int, cores: int) -> float:
    """Tiles of the thread that has most to do."""
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
