"""What Winograd's convolution takes, in cycles, roughly: by it the rule chooses sizes and what comes first.

option (tile rows of a block, tiles across, register rows, register columns, vectors, panel width)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, prod

from autotensor.base.target import Target
from autotensor.schedule.sketch import Option
from autotensor.schedule.state import Stage
from schedules.algorithms.winograd import Transform
from schedules.kit.analysis import second_cache
from schedules.kit.grain import parts_of, slowest
from schedules.kit.parallel_region import REGION

# cycles that cores wait for one another where they divide columns, beside the second region itself;
# the two come to the 8,000 with which the costs below were fitted
WAIT = 5_500
STEP = 1.5  # FMAs that a step of a product's reduction costs beside its own
LATENCY = 8  # accumulators that keep a core busy
# processors that the constants for two whole registers a cycle were fitted on; LLVM's name also stands for
# laptop parts that halve them, which are not told apart
TWICE = frozenset({"znver5"})


@dataclass(frozen=True, slots=True)
class Costs:
    """What differs from one kind of register file to the other, as measured in 2026-11."""

    vectors: int  # that a core multiplies a cycle; one is what `sure` was fitted to, whatever the core can do
    operand: float  # FMAs for a scalar or a vector of a step, which only large tiles hide
    scale: float  # so that the best tile comes to the 0.9 of peak that was seen
    l2_share: float  # of L2 for a block's transformed inputs; products and weights need the rest
    far: float  # speed with more
    crowd: float  # how transformed inputs as large as L2 slow a block, growing with them
    last_share: float  # of the last cache that weights may take and still be there for the next block
    line: float  # cycles to fetch 64 bytes that another core has written
    memory: float = 9.0  # bytes of weights a cycle from memory, where they are in a model; to all cores
    alone: float = inf  # the same to one core, however many share
    again: float = inf  # bytes a cycle to one core of weights that L2 cannot keep from block to block
    # how many times faster than direct it must seem, to be taken without measuring. Less where the count is
    # near: on Zen 5 direct kernels take 7 % more than their count, so 1.03 stands for 1.1
    sure: float = 1.25
    stream: float = 0.75  # tiles that a block's reading of the weights costs
    moves: float = 1.0  # FMAs' time that an addition of a transform takes, with its loads and stores
    # by columns: what stream is of a panel's weights, and the slope with which transformed inputs slow the
    # products by their multiple of L2 (with more taps than a plane's, unmeasured, as by tiles). None: all as
    # by tiles
    panel: float | None = None
    passing: float = 0.0


# 32 registers of 512 bits (Zen 4): 28x28x128 on one core 0.63 ms instead of 0.55 with a block that is far
MANY = Costs(1, 0.0, 1.0, l2_share=0.15, far=0.85, crowd=0.0, last_share=inf, line=120.0)
# 32 registers of 512 bits, two whole ones a cycle (Zen 5): mean loss of the choice against the best option
# that was measured, weights warm, seven layers of 56, 28, 14 and 7 pixels and 256 to 512 channels on 1 and 2
# cores: 4 % (10 % while blocks by columns were counted like blocks by tiles: 28x28x512 on one core 8.1,
# now 6.1 ms, the best 5.9). What comes from L2 and memory costs twice as many products as on Zen 4
WIDE = Costs(
    2, 0.0, 1.09, l2_share=0.65, far=0.84, crowd=0.19, last_share=0.5, line=19.0, memory=17.0, alone=10.5,
    again=17.0, sure=1.03, stream=1.6, moves=2.6, panel=3.2, passing=0.03,
)  # fmt: skip
# 16 registers of 256 bits (Zen 3): mean loss of the choice over 4 layers, 1 and 2 cores, 5 %
FEW = Costs(2, 1.0, 1.55, l2_share=inf, far=1.0, crowd=0.6, last_share=1 / 8, line=20.0)


@dataclass(frozen=True, slots=True)
class Problem:
    """A 3x3 convolution: extents of its result (outer: all but rows, columns, channels) and of its sums."""

    outer: int
    h: int
    w: int
    c: int
    k: int
    taps: int  # besides the 3x3 of a plane
    lanes: int
    target: Target

    @staticmethod
    def of(stage: Stage, lanes: int, target: Target) -> Problem:
        *outer, h, w, c = (a.extent for a in stage.op.axes)
        *taps, _, _, k = (a.extent for a in stage.op.reduce_axes)
        return Problem(prod(outer), h, w, c, k, prod(taps), lanes, target)

    @property
    def costs(self) -> Costs:
        if self.target.vector_registers <= 16:
            return FEW
        return WIDE if self.target.arch in TWICE and self.target.vector_bytes == 64 else MANY

    @property
    def rate(self) -> int:
        """Vectors that all cores multiply a cycle."""
        return self.target.num_cores * self.costs.vectors


@dataclass(frozen=True, slots=True)
class Variant:
    """by_columns: cores divide output channels, not tiles."""

    tf: Transform
    by_columns: bool

    def tiles(self, p: Problem) -> tuple[int, int]:
        return ceil(p.h / self.tf.m), ceil(p.w / self.tf.m)


def direct_cycles(p: Problem) -> float:
    """What the direct convolution takes, if it skips a border of one pixel of padding and is perfect."""
    inside = (1 - 2 / (3 * p.h)) * (1 - 2 / (3 * p.w))
    weights = 9 * p.taps * p.k * p.c
    return max(weights * p.outer * p.h * p.w * inside / p.lanes / p.rate, 4 * weights / p.costs.memory)


@lru_cache(maxsize=64)  # to compare the variants, and to build each
def best_option(p: Problem, v: Variant) -> Option:
    """The block and tile that a rule takes without measuring; of equals the better products."""

    def cost(option: Option) -> tuple[float, float]:
        return cycles(p, v, option), -quality(p, v, option)

    return min(options(p, v), key=cost)


def options(p: Problem, v: Variant) -> tuple[Option, ...]:
    th, tw = v.tiles(p)
    registers = p.target.vector_registers
    out = []
    widest = min(4, ceil(p.c / p.lanes))
    for wt in dict.fromkeys((tw, ceil(tw / 2))):
        part = ceil(wt / 2)
        while part + 2 > registers:  # wide images, few registers
            part = ceil(part / 2)
        for ht in dict.fromkeys(min(x, th) for x in (1, 2, 4)):
            for nv in range(1, widest + 1):
                for rw in dict.fromkeys((wt, part)):
                    for rh in dict.fromkeys(min(x, ht) for x in (1, 2, 4)):
                        rows = rh * rw
                        fits = rows * nv + nv + 1 <= registers
                        if fits and (rh == 1 or rw == wt):
                            out.append((ht, wt, rh, rw, nv, nv * p.lanes))
    full = min(8, max(rh * rw * nv for _, _, rh, rw, nv, _ in out))  # fewer accumulators wait for one another
    return tuple(o for o in out if o[2] * o[3] * o[4] >= full)


def panels(p: Problem, v: Variant, option: Option) -> int:
    """Panels in a block of columns: two, unless more would then be computed for nothing."""
    width = option[5]
    return 1 if v.by_columns or _filled(p.c, 2 * width) < _filled(p.c, width) else 2


def cycles(p: Problem, v: Variant, option: Option) -> float:
    """Products and transforms, or bringing the weights from memory, whichever takes longer."""
    t, m = v.tf.t, v.tf.m
    down, across = v.tiles(p)
    tiles = down * across * p.outer
    products = t * t * tiles * p.c * p.k * p.taps / quality(p, v, option)
    terms = [sum(x != 0 for row in rows for x in row) for rows in (v.tf.bt, v.tf.at)]
    transforms = tiles * (p.k * (2 * t * terms[0] + 2 * t * t) + p.c * (t + m) * terms[1])
    busy = (products + p.costs.moves * transforms) / p.lanes / p.rate
    weights = 4 * t * t * p.c * p.k * p.taps
    blocks = ceil(down / option[0]) * ceil(across / option[1]) * p.outer
    if not v.by_columns:
        if weights <= p.costs.last_share * p.target.cache_bytes[-1]:
            blocks = 1  # the first brings them for all
        # every core reads all weights
        return max(busy, blocks * weights / min(p.costs.memory, p.costs.alone))
    # every core reads all transformed inputs, of which it has made its share
    crossing = 4 * t * t * tiles * p.k / 64 * (1 - 1 / p.target.num_cores)
    if 4 * t * t * p.k * p.taps * option[5] > second_cache(p.target):  # a panel, which every block reads
        busy = max(busy, blocks * weights / p.costs.again / p.target.num_cores)
    rate = min(p.costs.memory, p.target.num_cores * p.costs.alone)
    return max(busy, weights / rate) + REGION + WAIT + p.costs.line * crossing


def quality(p: Problem, v: Variant, option: Option) -> float:
    """Share of peak: tiles that fill the registers, on blocks that divide evenly and stay in L2."""
    ht, wt, rh, rw, nv, width = option
    down, across = v.tiles(p)
    tiles = ht * wt
    near, stream = _near(p, 4 * v.tf.t**2 * tiles * p.k * p.taps), p.costs.stream
    if v.by_columns and p.costs.panel is not None:
        near, stream = _passing(p, v) if p.taps == 1 else near, p.costs.panel
    reuse = tiles / (tiles + stream)
    columns = width * panels(p, v, option)
    wanted = _filled(down, rh) * _filled(across, rw) * _filled(p.c, columns)  # tails are computed and dropped
    sizes = [y * x for y in parts_of(down, ht) for x in parts_of(across, wt)]
    blocks = (parts_of(p.c, width) if v.by_columns else sizes) * p.outer
    return _speed(p, rh * rw, nv) * near * reuse * wanted / slowest(blocks, p.target.num_cores)


def _near(p: Problem, transformed: int) -> float:
    """How so many bytes of transformed inputs in L2 slow a block."""
    share = transformed / second_cache(p.target)
    return (1.0 if share <= p.costs.l2_share else p.costs.far) / (1 + p.costs.crowd * share)


def _passing(p: Problem, v: Variant) -> float:
    """How all transformed inputs, which pass for every panel of columns, slow the products."""
    down, across = v.tiles(p)
    transformed = 4 * v.tf.t**2 * down * across * p.outer * p.k
    return 1 / (1 + p.costs.passing * transformed / second_cache(p.target))


def _speed(p: Problem, rows: int, vectors: int) -> float:
    """Share of peak of a register tile."""
    fma = rows * vectors
    waits = p.costs.operand * (rows + vectors) + STEP
    return p.costs.scale * fma / (max(fma, rows + vectors, LATENCY) + waits)


def _filled(n: int, size: int) -> float:
    """Share of n in the parts of one size that cover it."""
    return n / (ceil(n / size) * size)
