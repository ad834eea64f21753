"""Winograd convolution in blocks of tiles: transforms and products stay in the cache.

    parallel over blocks of output tiles
      padding of the block; V = input tiles, transformed, in vectors over channels
      for blocks of output channels
        M = (m+2)² matrix products of register tiles (tiles × channels), weights in panels
        for every tile: R, then the output pixels with their epilogue

Offered beside the direct sketches where a stage is a 3x3, stride-1 convolution with constant weights and the
target's numerics are not "strict"; the search decides.
"""

from __future__ import annotations

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
from schedules.analysis import epilogue, lanes_of
from schedules.registry import Extension, sketch_rule
from schedules.roles import padding_in_front
from schedules.rules.convolution import convolution
from schedules.rules.tile_cpu import tile_cpu
from schedules.tiles import nearest, powers, singles

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
    transformed = (_Builder(stage, host, tf, lanes, target, pads).build() for tf in (F4, F2))
    direct = convolution(state, stage, target) or tile_cpu(state, stage, target)
    return (*direct, *transformed)


def _options(th: int, tw: int, channels: int, lanes: int, target: Target) -> tuple[Option, ...]:
    """(tile rows of a block, tiles across, register rows, register columns, vectors, panel width)."""
    out = []
    widest = min(4, ceil(channels / lanes))
    for wt in dict.fromkeys((tw, ceil(tw / 2))):
        for ht in dict.fromkeys(min(x, th) for x in (1, 2, 4)):
            for nv in range(1, widest + 1):
                for rw in dict.fromkeys((wt, ceil(wt / 2))):
                    for rh in dict.fromkeys(min(x, ht) for x in (1, 2, 4)):
                        rows = rh * rw
                        fits = rows * nv + nv + 1 <= target.vector_registers
                        if fits and (rh == 1 or rw == wt):
                            out.append((ht, wt, rh, rw, nv, nv * lanes))
    full = min(8, max(rh * rw * nv for _, _, rh, rw, nv, _ in out))  # fewer accumulators wait for one another
    return tuple(o for o in out if o[2] * o[3] * o[4] >= full)


class _Builder:
    """Writes the sketch of one transform size."""

    def __init__(
        self,
        stage: Stage,
        host: Stage | None,
        tf: Transform,
        lanes: int,
        target: Target,
        pads: tuple[Stage, ...],
    ) -> None:
        self.stage, self.tf = stage, tf
        self.host = host or stage  # whose loops carry the tiles
        self.name = f"{stage.name}.local" if host is None else stage.name  # of what is computed by tiles
        self.lanes, self.target, self.pads = lanes, target, pads
        self.outer = [a.name for a in stage.op.axes[:-3]]  # batch, depth
        self.taps = [a.name for a in stage.op.reduce_axes[:-3]]
        self.steps: list[Step] = []
        self.holes: list[Hole] = []

    def build(self) -> Extension:
        anchor, host = self.name, self.host.name
        h, w, c = (a.extent for a in self.stage.op.axes[-3:])
        tile, panels = f"{anchor}/tile", f"{anchor}/panels"
        options = _options(ceil(h / self.tf.m), ceil(w / self.tf.m), c, self.lanes, self.target)
        best = max(options, key=self._quality)
        self.holes.append(Hole(tile, options, best))
        counts = powers(ceil(c / best[5]))
        self.holes.append(Hole(panels, singles(counts), (nearest(counts, 2),)))
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
        self._inputs(host, block)
        done = [host, anchor, *(f"{anchor}.{s}" for s in ("GW", "U", "D", "V", "M", "M.local", "R"))]
        for pad in self.pads:
            done.append(pad.name)
            axis = pad.op.axes[-1].name
            self.steps += [ComputeAt(pad.name, host, block), SplitStep(pad.name, axis, (self.lanes,))]
            self.steps.append(Vectorize(pad.name, f"{axis}.1"))
        return Extension(tuple(self.steps), tuple(self.holes), tuple(done))

    def _quality(self, option: Option) -> float:
        """Tiles that fill the registers, on blocks whose transformed inputs take half of L2 at most."""
        ht, wt, rh, rw, nv, _ = option
        channels = self.stage.op.reduce_axes[-1].extent * prod(
            x.extent for x in self.stage.op.reduce_axes[:-3]
        )
        transformed = 4 * self.tf.t**2 * ht * wt * channels
        cache = self.target.cache_bytes[1] if len(self.target.cache_bytes) > 1 else 1 << 20
        rows = rh * rw
        speed = rows * nv / (max(rows * nv, rows + nv, 8) + 1.5)
        return speed * (1.0 if transformed <= cache // 2 else 0.8) * (1.0 + 0.01 * ht * wt / 16)

    def _host(self, host: str, tile: str, panels: str) -> tuple[str, str, str]:
        """Blocks, columns, tiles, pixels; gives the loops of a block, of a column block, and of a tile."""
        *outer, h, w, c = (a.name for a in self.host.op.axes)
        m = self.tf.m
        self.steps += [
            SplitStep(host, h, (Ref(tile, 0), m)),
            SplitStep(host, w, (Ref(tile, 1), m)),
            SplitStep(host, c, (Ref(panels), Ref(tile, 4), self.lanes)),
            Reorder(
                host,
                (
                    *outer,
                    f"{h}.0",
                    f"{w}.0",
                    f"{c}.0",
                    f"{h}.1",
                    f"{w}.1",
                    f"{c}.1",
                    f"{h}.2",
                    f"{w}.2",
                    f"{c}.2",
                    f"{c}.3",
                ),
            ),
        ]
        fused = outer[0]
        for axis in (*outer[1:], f"{h}.0", f"{w}.0"):
            self.steps.append(FuseStep(host, fused, axis))
            fused = fuse_name(fused, axis)
        self.steps += [Unroll(host, a) for a in (f"{h}.2", f"{w}.2", f"{c}.2")]
        self.steps += [Vectorize(host, f"{c}.3"), Parallel(host, fused)]
        return fused, f"{c}.0", f"{c}.1"

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
            Reorder(near, (*self.taps, "k", *self.outer, "a", "b", "th", "tw", f"{c}.0", f"{c}.1")),
            *(Unroll(near, a) for a in (*self.outer, "a", "b", "th", "tw", f"{c}.0")),
            Vectorize(near, f"{c}.1"),
        ]

    def _inputs(self, host: str, block: str) -> None:
        """V for a block, the row transform D of one vector of channels inside it."""
        v, d = f"{self.name}.V", f"{self.name}.D"
        self.steps += [
            ComputeAt(v, host, block),
            SplitStep(v, "k", (self.lanes,)),
            Reorder(v, (*self.outer, "th", "tw", "k.0", "a", "b", "k.1")),
            Unroll(v, "a"),
            Unroll(v, "b"),
            Vectorize(v, "k.1"),
            ComputeAt(d, v, "k.0"),
            SplitStep(d, "k", (self.lanes,)),
            Reorder(d, (*self.outer, "th", "tw", "k.0", "j", "a", "k.1")),
            Unroll(d, "a"),
            Unroll(d, "j"),
            Vectorize(d, "k.1"),
        ]
