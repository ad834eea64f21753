"""Costs of AMX's tiles and of Winograd's convolution: two parts of a processor's record (`cpu.py`).

As there, a comment at each value says what was measured, on which processor, and when.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cost of AMX's instructions, in cycles. Source: Intel's optimization reference manual."""

    product: float = 16.0  # a product of two tiles of 16 rows (5.4 to 6 ns; Emerald Rapids, 2026-11)
    load: float = 8.0  # loading a tile from L1 (Intel's manual; chosen, 2026-11)
    from_l2: float = 21.0  # loading a tile from L2 (140 GB/s; Emerald Rapids, 2026-11)
    # from the start of a product until its sums are ready (one chain 16 ns; Emerald Rapids, 2026-11)
    latency: float = 52.0
    least_rows: float = 9.0  # tiles with fewer rows take as long as with these (Emerald Rapids, 2026-11)


@dataclass(frozen=True, slots=True)
class Winograd:
    """The cost of Winograd's convolution. Default: 32 registers of 512 bits, one multiplication of them a
    cycle."""

    vectors: int = 1  # vectors that a core multiplies in a cycle; `sure` was fitted for one (Zen 4, 2026-11)
    # cost in FMAs of loading a scalar or a vector in a step; only large tiles hide it (Zen 4, 2026-11)
    operand: float = 0.0
    scale: float = 1.0  # a factor with which the best tile reaches the measured 0.9 of peak (Zen 4, 2026-11)
    # share of L2 for a block's transformed inputs; products and weights need the rest (28x28x128 on one core
    # takes 0.63 ms instead of 0.55 with a block that is far; Zen 4, 2026-11)
    l2_share: float = 0.15
    far: float = 0.85  # speed if a block takes a larger share of L2 (Zen 4, 2026-11)
    # slow-down of a block by transformed inputs as large as L2; it grows with their size (Zen 4, 2026-11)
    crowd: float = 0.0
    # weights stay for the next block if they take at most this share of the last cache (Zen 4, 2026-11)
    last_share: float = inf
    line: float = 120.0  # cycles to fetch 64 bytes that another core has written (Zen 4, 2026-11)
    # bytes of weights per cycle from memory to all cores, in a model (Zen 4, 2026-11)
    memory: float = 9.0
    alone: float = inf  # limit of bytes per cycle to one core (not observed on Zen 4, 2026-11)
    again: float = inf  # bytes per cycle to one core of weights beyond L2 (not observed on Zen 4, 2026-11)
    # Winograd's method is used without measuring if it seems this many times as fast as direct kernels (Zen
    # 4, 2026-11)
    sure: float = 1.25
    stream: float = 0.75  # cost of reading the weights for a block, in tiles (Zen 4, 2026-11)
    moves: float = 1.0  # cost of an addition in a transform, with loads and stores, in FMAs (Zen 4, 2026-11)
    # For the form by columns: `panel` is like `stream`, for a panel's weights. `passing` is the slope with
    # which transformed inputs slow the products, by their multiple of L2 (with more taps than those of a
    # plane, this was not measured, and the form by tiles counts). None: as in the form by tiles (Zen 4,
    # 2026-11)
    panel: float | None = None
    passing: float = 0.0  # the slope (Zen 4, 2026-11)
    # cycles that cores wait for one another if they divide columns, without the second region; together they
    # are the 8,000 cycles with which these costs were fitted (Zen 4, 2026-11)
    wait: float = 5_500
    step: float = 1.5  # cost in FMAs of a step of a product's reduction besides its FMAs (Zen 4, 2026-11)


TILES, WINOGRAD = Tiles(), Winograd()
