"""An estimate of the cycles of Winograd's convolution, by which the rule chooses sizes and the first sketch.

option (tile rows of a block, tiles across, register rows, register columns, vectors, panel width)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.sketch import Option
from autotensor.schedule.state import Stage
from schedules.algorithms.winograd import Transform
from schedules.cpu import LINE, Cpu, cpu_of
from schedules.kit.block_grain import parts_of, slowest
from schedules.kit.stage_analysis import second_cache
from schedules.method_costs import Winograd


@dataclass(frozen=True, slots=True)
class Problem:
    """A 3x3 convolution: the extents of its result and of its sums. outer: all but rows, columns and
    channels."""

    outer: int
    h: int
    w: int
    c: int
    k: int
    taps: int  # taps besides the 3x3 of a plane
    lanes: int
    target: Target

    @staticmethod
    def of(stage: Stage, lanes: int, target: Target) -> Problem:
        *outer, h, w, c = (a.extent for a in stage.op.axes)
        *taps, _, _, k = (a.extent for a in stage.op.reduce_axes)
        return Problem(prod(outer), h, w, c, k, prod(taps), lanes, target)

    @property
    def cpu(self) -> Cpu:
        return cpu_of(self.target)

    @property
    def costs(self) -> Winograd:
        return self.cpu.winograd

    @property
    def rate(self) -> int:
        """Vectors that all cores together multiply in a cycle."""
        return self.target.num_cores * self.costs.vectors


@dataclass(frozen=True, slots=True)
class Variant:
    """A form of the kernel. by_columns: cores divide output channels, and not tiles."""

    tf: Transform
    by_columns: bool

    def tiles(self, p: Problem) -> tuple[int, int]:
        return ceil(p.h / self.tf.m), ceil(p.w / self.tf.m)


def direct_cycles(p: Problem) -> float:
    """Cycles of a perfect direct convolution, which skips a border of one pixel of padding."""
    inside = (1 - 2 / (3 * p.h)) * (1 - 2 / (3 * p.w))
    weights = 9 * p.taps * p.k * p.c
    return max(weights * p.outer * p.h * p.w * inside / p.lanes / p.rate, 4 * weights / p.costs.memory)


@lru_cache(maxsize=64)  # called to compare the variants, and to build each
def best_option(p: Problem, v: Variant) -> Option:
    """The block and tile that a rule takes without measuring. If several are equal, the one with the better
    products."""

    def cost(option: Option) -> tuple[float, float]:
        return cycles(p, v, option), -quality(p, v, option)

    return min(options(p, v), key=cost)


def options(p: Problem, v: Variant) -> tuple[Option, ...]:
    th, tw = v.tiles(p)
    registers = p.target.sum_registers
    out = []
    widest = min(4, ceil(p.c / p.lanes))
    for wt in dict.fromkeys((tw, ceil(tw / 2))):
        part = ceil(wt / 2)
        while part + 2 > registers:  # for wide images and few registers
            part = ceil(part / 2)
        for ht in dict.fromkeys(min(x, th) for x in (1, 2, 4)):
            for nv in range(1, widest + 1):
                for rw in dict.fromkeys((wt, part)):
                    for rh in dict.fromkeys(min(x, ht) for x in (1, 2, 4)):
                        rows = rh * rw
                        fits = rows * nv + nv + 1 <= registers
                        if fits and (rh == 1 or rw == wt):
                            out.append((ht, wt, rh, rw, nv, nv * p.lanes))
    full = min(
        p.cpu.accumulators, max(rh * rw * nv for _, _, rh, rw, nv, _ in out)
    )  # fewer accumulators wait for one another
    return tuple(o for o in out if o[2] * o[3] * o[4] >= full)


def panels(p: Problem, v: Variant, option: Option) -> int:
    """Panels in a block of columns: two, unless this wastes more computation than one."""
    width = option[5]
    return 1 if v.by_columns or _filled(p.c, 2 * width) < _filled(p.c, width) else 2


def cycles(p: Problem, v: Variant, option: Option) -> float:
    """Cycles of products and transforms, or of reading the weights from memory, whichever takes longer."""
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
            blocks = 1  # the first block reads the weights for all blocks
        # every core reads all weights
        return max(busy, blocks * weights / min(p.costs.memory, p.costs.alone))
    # every core reads all transformed inputs, and has made only its share of them
    crossing = 4 * t * t * tiles * p.k / LINE * (1 - 1 / p.target.num_cores)
    if 4 * t * t * p.k * p.taps * option[5] > second_cache(p.target):  # a panel, which every block reads
        busy = max(busy, blocks * weights / p.costs.again / p.target.num_cores)
    rate = min(p.costs.memory, p.target.num_cores * p.costs.alone)
    return max(busy, weights / rate) + p.cpu.region + p.costs.wait + p.costs.line * crossing


def quality(p: Problem, v: Variant, option: Option) -> float:
    """Share of peak. It is high if tiles fill the registers, and if blocks divide evenly and stay in L2."""
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
    """The slow-down of a block by this many bytes of transformed inputs in L2."""
    share = transformed / second_cache(p.target)
    return (1.0 if share <= p.costs.l2_share else p.costs.far) / (1 + p.costs.crowd * share)


def _passing(p: Problem, v: Variant) -> float:
    """The slow-down of the products by the transformed inputs, which are all read again for every panel of
    columns."""
    down, across = v.tiles(p)
    transformed = 4 * v.tf.t**2 * down * across * p.outer * p.k
    return 1 / (1 + p.costs.passing * transformed / second_cache(p.target))


def _speed(p: Problem, rows: int, vectors: int) -> float:
    """Share of peak of a register tile."""
    fma = rows * vectors
    waits = p.costs.operand * (rows + vectors) + p.costs.step
    return p.costs.scale * fma / (max(fma, rows + vectors, p.cpu.accumulators) + waits)


def _filled(n: int, size: int) -> float:
    """n divided by the total size of the equal parts that cover it."""
    return n / (ceil(n / size) * size)
