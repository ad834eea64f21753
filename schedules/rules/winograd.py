"""Winograd convolution in blocks of tiles: transforms and products stay in the cache.

    parallel over blocks of output tiles
      padding of the block; V = input tiles, transformed, in vectors over channels
      for blocks of output channels
        M = (m+2)² matrix products of register tiles (tiles × channels), weights in panels
        for every tile: R, then the output pixels with their epilogue

or, for few tiles and large weights, by columns, so that every core reads its own part of the weights only:

    parallel over vectors of channels: padding; V
    parallel over blocks of output channels, then blocks of tiles: M, R, output

Offered beside the direct sketches where a stage is a 3x3, stride-1 convolution with constant weights and the
target's numerics are not "strict". A rough count of cycles decides which comes first and is taken without any
measurement: Winograd's only where it is surely faster, also with weights that come from memory. The search
decides the rest.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.axis import fuse_name
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.cache import CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole, Option
from autotensor.schedule.state import Ref, Stage, State
from autotensor.schedule.step import Step
from schedules.algorithms.winograd import F2, F4, Transform, match
from schedules.analysis import epilogue, lanes_of, second_cache
from schedules.registry import Extension, sketch_rule
from schedules.roles import padding_in_front
from schedules.rules.convolution import convolution
from schedules.rules.tile_cpu import tile_cpu
from schedules.tiles import nearest, powers, singles, written_out

L2_SHARE = 0.15  # of L2 for a block's transformed inputs; products and weights need the rest (Zen 4, 2026-11)
FAR = 0.85  # speed with more (28x28x128 on one core: 0.63 ms instead of 0.55)
MEMORY_RATE = 9.0  # bytes of weights a cycle from memory, where they are in a model (Zen 4, 2026-11)
SURE = 1.25  # how many times faster than direct it must seem, to be taken without measuring
ROOM = 32  # vector registers; transforms spill from fewer, which was never timed
REGION = 8e3  # cycles of one more parallel region
LINE = 120.0  # cycles to fetch 64 bytes that another core has written (Zen 4, 2026-11)
STREAM = 0.75  # tiles that a block's reading of the weights costs
SMALLEST = 4  # rows and columns of the output: below this, tiles are mostly padding


@sketch_rule("winograd", order=7)
def winograd(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    """The direct sketches and, where numerics allow, those of Winograd's method."""
    if target.kind != "llvm" or target.numerics != "fast" or match(state, stage) is None:
        return ()
    host, pads = epilogue(state, stage), padding_in_front(state, stage.op)
    h, w, c = (a.extent for a in stage.op.axes[-3:])
    lanes = lanes_of(stage.op, target)
    if min(c, stage.op.reduce_axes[-1].extent) < lanes or min(h, w) < SMALLEST:
        return ()
    plain = convolution(state, stage, target) or tile_cpu(state, stage, target)
    made = [
        _Builder(stage, host, tf, lanes, target, pads, by_columns)
        for tf in (F4, F2)
        for by_columns in (False, True)
    ]
    enough = _direct_cycles(stage, lanes, target) / SURE if target.vector_registers >= ROOM else 0.0
    cycles = [m.cycles() for m in made]
    first = sorted((n for n, c in enumerate(cycles) if c <= enough), key=lambda n: cycles[n])
    after = [n for n in range(len(made)) if n not in first]
    return (*(made[n].build() for n in first), *plain, *(made[n].build() for n in after))


def _direct_cycles(stage: Stage, lanes: int, target: Target) -> float:
    """What the direct convolution takes, if it skips a border of one pixel of padding and is perfect."""
    h, w = (a.extent for a in stage.op.axes[-3:-1])
    work = prod(a.extent for a in (*stage.op.axes, *stage.op.reduce_axes))
    inside = (1 - 2 / (3 * h)) * (1 - 2 / (3 * w))
    weights = 4 * stage.op.axes[-1].extent * prod(a.extent for a in stage.op.reduce_axes)
    return max(work * inside / lanes / target.num_cores, weights / MEMORY_RATE)


def _options(th: int, tw: int, channels: int, lanes: int, target: Target) -> tuple[Option, ...]:
    """(tile rows of a block, tiles across, register rows, register columns, vectors, panel width)."""
    out = []
    widest = min(4, ceil(channels / lanes))
    for wt in dict.fromkeys((tw, ceil(tw / 2))):
        part = ceil(wt / 2)
        while part + 2 > target.vector_registers:  # wide images, few registers
            part = ceil(part / 2)
        for ht in dict.fromkeys(min(x, th) for x in (1, 2, 4)):
            for nv in range(1, widest + 1):
                for rw in dict.fromkeys((wt, part)):
                    for rh in dict.fromkeys(min(x, ht) for x in (1, 2, 4)):
                        rows = rh * rw
                        fits = rows * nv + nv + 1 <= target.vector_registers
                        if fits and (rh == 1 or rw == wt):
                            out.append((ht, wt, rh, rw, nv, nv * lanes))
    full = min(8, max(rh * rw * nv for _, _, rh, rw, nv, _ in out))  # fewer accumulators wait for one another
    return tuple(o for o in out if o[2] * o[3] * o[4] >= full)


def _cut(n: int, size: int) -> list[int]:
    """Sizes of the parts of n, the last one what is left."""
    return [size] * (n // size) + ([n % size] if n % size else [])


def _filled(n: int, size: int) -> float:
    """Share of n in the parts of one size that cover it."""
    return n / (ceil(n / size) * size)


def _shared(blocks: list[int], cores: int) -> float:
    """Mean work of a core over that of the busiest; each gets a contiguous, equal number of blocks."""
    ends = [len(blocks) * t // cores for t in range(cores + 1)]
    return sum(blocks) / (cores * max(sum(blocks[a:b]) for a, b in pairwise(ends)))


class _Builder:
    """Writes the sketch of one transform size. by_columns: cores divide output channels, not tiles."""

    def __init__(
        self,
        stage: Stage,
        host: Stage | None,
        tf: Transform,
        lanes: int,
        target: Target,
        pads: tuple[Stage, ...],
        by_columns: bool,
    ) -> None:
        self.stage, self.tf, self.by_columns = stage, tf, by_columns
        self.host = host or stage  # whose loops carry the tiles
        self.name = f"{stage.name}.local" if host is None else stage.name  # of what is computed by tiles
        self.lanes, self.target, self.pads = lanes, target, pads
        self.outer = [a.name for a in stage.op.axes[:-3]]  # batch, depth
        self.taps = [a.name for a in stage.op.reduce_axes[:-3]]
        h, w, c = (a.extent for a in stage.op.axes[-3:])
        self.options = _options(ceil(h / tf.m), ceil(w / tf.m), c, lanes, target)
        self.best = max(self.options, key=self._quality)
        self.steps: list[Step] = []
        self.holes: list[Hole] = []

    def cycles(self) -> float:
        """What the default takes, roughly: products and transforms, or bringing the weights from memory."""
        *outer, h, w, c = (a.extent for a in self.stage.op.axes)
        *taps, k = (a.extent for a in (*self.stage.op.reduce_axes[:-3], self.stage.op.reduce_axes[-1]))
        t, m = self.tf.t, self.tf.m
        tiles = ceil(h / m) * ceil(w / m) * prod(outer)
        products = t * t * tiles * c * k * prod(taps) / self._quality(self.best)
        terms = [sum(x != 0 for row in rows for x in row) for rows in (self.tf.bt, self.tf.at)]
        transforms = tiles * (k * (2 * t * terms[0] + 2 * t * t) + c * (t + m) * terms[1])
        weights = 4 * t * t * c * k * prod(taps)
        busy = (products + transforms) / self.lanes / self.target.num_cores
        if not self.by_columns:
            return max(busy, weights / MEMORY_RATE)
        # every core reads all transformed inputs, of which it has made its share
        crossing = 4 * t * t * tiles * k / 64 * (1 - 1 / self.target.num_cores)
        return max(busy, weights / MEMORY_RATE) + REGION + LINE * crossing

    def build(self) -> Extension:
        anchor, host = self.name, self.host.name
        c = self.stage.op.axes[-1].extent
        tile, panels = f"{anchor}/tile", f"{anchor}/panels"
        options, best = self.options, self.best
        self.holes.append(Hole(tile, options, best))
        counts = powers(ceil(c / best[5]))
        self.holes.append(Hole(panels, singles(counts), (nearest(counts, 1 if self.by_columns else 2),)))
        if host == self.stage.name:
            self.steps.append(CacheWrite(host, "local"))
        self.steps.append(UseAlgorithm(anchor, f"winograd_f{self.tf.m}"))
        n = len(self.taps)  # [*taps, a, b, k, c], panels of columns outside, what is summed over inside
        order = [f"{n + 3}.0", n, n + 1, *range(n), n + 2, f"{n + 3}.1"]
        self.steps.append(Layout(f"{anchor}.U", ((n + 3, Ref(tile, 5)),), " ".join(map(str, order))))
        self.steps.append(Inline(anchor))
        block, column, last = self._host(host, tile, panels)
        self._outputs(host, last)
        self._products(host, column, tile)
        around = self._inputs(host, block)
        done = [host, anchor, *(f"{anchor}.{s}" for s in ("GW", "U", "D", "V", "M", "M.local", "R"))]
        for pad in self.pads:
            done.append(pad.name)
            axis = pad.op.axes[-1].name
            self.steps += [ComputeAt(pad.name, *around), SplitStep(pad.name, axis, (self.lanes,))]
            self.steps.append(Vectorize(pad.name, f"{axis}.1"))
        return Extension(tuple(self.steps), tuple(self.holes), tuple(done))

    def _quality(self, option: Option) -> float:
        """Share of peak: tiles that fill the registers, on blocks that divide evenly and stay in L2."""
        ht, wt, rh, rw, nv, width = option
        *outer, h, w, c = (a.extent for a in self.stage.op.axes)
        reduced = prod(x.extent for x in (self.stage.op.reduce_axes[-1], *self.stage.op.reduce_axes[:-3]))
        transformed = 4 * self.tf.t**2 * ht * wt * reduced
        cache = second_cache(self.target)
        near = 1.0 if transformed <= L2_SHARE * cache else FAR
        down, across = ceil(h / self.tf.m), ceil(w / self.tf.m)
        rows, tiles, cores = rh * rw, ht * wt, self.target.num_cores
        speed = rows * nv / (max(rows * nv, rows + nv, 8) + 1.5)
        reuse = tiles / (tiles + STREAM)
        wanted = _filled(down, rh) * _filled(across, rw) * _filled(c, width)  # tails are computed and dropped
        sizes = [y * x for y in _cut(down, ht) for x in _cut(across, wt)]
        blocks = (_cut(c, width) if self.by_columns else sizes) * prod(outer)
        return speed * near * reuse * wanted * _shared(blocks, cores)

    def _host(self, host: str, tile: str, panels: str) -> tuple[str, str, str]:
        """Blocks, columns, tiles, pixels; gives the loops of a block, of a column block, and of a tile."""
        *outer, h, w, c = (a.name for a in self.host.op.axes)
        m = self.tf.m
        self.steps += [
            SplitStep(host, h, (Ref(tile, 0), m)),
            SplitStep(host, w, (Ref(tile, 1), m)),
            SplitStep(host, c, (Ref(panels), Ref(tile, 4), self.lanes)),
        ]
        blocks = (f"{h}.0", f"{w}.0")
        outside = (f"{c}.0", *blocks) if self.by_columns else (*blocks, f"{c}.0")
        inside = (f"{h}.1", f"{w}.1", f"{c}.1", f"{h}.2", f"{w}.2", f"{c}.2", f"{c}.3")
        self.steps.append(Reorder(host, (*outer, *outside, *inside)))
        fused = outer[0]
        for axis in (*outer[1:], *(outside[:1] if self.by_columns else blocks)):
            self.steps.append(FuseStep(host, fused, axis))
            fused = fuse_name(fused, axis)
        self.steps += [Unroll(host, a) for a in (f"{h}.2", f"{w}.2", f"{c}.2")]
        self.steps += [Vectorize(host, f"{c}.3"), Parallel(host, fused)]
        return fused, outside[-1], f"{c}.1"

    def _outputs(self, host: str, last: str) -> None:
        r = f"{self.name}.R"
        c = self.stage.op.axes[-1].name
        self.steps += [
            ComputeAt(r, host, last),
            SplitStep(r, c, (self.lanes,)),
            Reorder(r, (*self.outer, "th", "tw", f"{c}.0", "b", "y", f"{c}.1")),
            Unroll(r, "b"),
            Unroll(r, "y"),
            Vectorize(r, f"{c}.1"),
        ]

    def _products(self, host: str, column: str, tile: str) -> None:
        """M for a block of columns: a matrix product per position of the transform."""
        mm, c = f"{self.name}.M", self.stage.op.axes[-1].name
        near = f"{mm}.local"
        self.steps += [
            CacheWrite(mm, "local"),
            ComputeAt(mm, host, column),
            SplitStep(mm, "th", (Ref(tile, 2),)),
            SplitStep(mm, "tw", (Ref(tile, 3),)),
            SplitStep(mm, c, (Ref(tile, 4), self.lanes)),
            Reorder(
                mm, (*self.outer, f"{c}.0", "a", "b", "th.0", "tw.0", "th.1", "tw.1", f"{c}.1", f"{c}.2")
            ),
            *(Unroll(mm, a) for a in ("th.1", "tw.1", f"{c}.1")),
            Vectorize(mm, f"{c}.2"),
            ComputeAt(near, mm, "tw.0"),
            SplitStep(near, c, (self.lanes,)),
            SplitStep(near, "k", (self._steps_written(),)),
            Reorder(near, (*self.taps, "k.0", "k.1", *self.outer, "a", "b", "th", "tw", f"{c}.0", f"{c}.1")),
            *(Unroll(near, a) for a in ("k.1", *self.outer, "a", "b", "th", "tw", f"{c}.0")),
            Vectorize(near, f"{c}.1"),
        ]

    def _steps_written(self) -> int:
        """Steps of a product's reduction that are written out."""
        depth = self.stage.op.reduce_axes[-1].extent
        return written_out(tuple(d for d in (1, 2, 3, 4) if depth % d == 0), self.target)

    def _inputs(self, host: str, block: str) -> tuple[str, str]:
        """V, the row transform D of one vector of channels inside it; gives the loop around its input."""
        v, d = f"{self.name}.V", f"{self.name}.D"
        self.steps.append(SplitStep(v, "k", (self.lanes,)))
        if self.by_columns:
            at, around = "tw", (v, self._regions_of(v))
        else:
            at, around = "k.0", (host, block)
            self.steps += [
                ComputeAt(v, host, block),
                Reorder(v, (*self.outer, "th", "tw", "k.0", "a", "b", "k.1")),
            ]
        self.steps += [
            Unroll(v, "a"),
            Unroll(v, "b"),
            Vectorize(v, "k.1"),
            ComputeAt(d, v, at),
            SplitStep(d, "k", (self.lanes,)),
            Reorder(d, (*self.outer, "th", "tw", "k.0", "j", "a", "k.1")),
            Unroll(d, "a"),
            Unroll(d, "j"),
            Vectorize(d, "k.1"),
        ]
        return around

    def _regions_of(self, v: str) -> str:
        """All of V in a parallel region of its own, over vectors of channels; gives the parallel loop."""
        self.steps.append(Reorder(v, (*self.outer, "k.0", "th", "tw", "a", "b", "k.1")))
        fused = self.outer[0]
        for axis in (*self.outer[1:], "k.0"):
            self.steps.append(FuseStep(v, fused, axis))
            fused = fuse_name(fused, axis)
        self.steps.append(Parallel(v, fused))
        return fused
