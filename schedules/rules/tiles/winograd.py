"""Winograd convolution in blocks of tiles: transforms and products stay in the cache.

    parallel over blocks of output tiles
      padding of the block; V = input tiles, transformed, in vectors over channels
      for blocks of output channels
        M = (m+2)² matrix products of register tiles (tiles × channels), weights in panels
        for every tile: R, then the output pixels with their epilogue

or, for few tiles and large weights, by columns, so that every core reads only its own part of the weights:

    parallel over vectors of channels: padding; V
    parallel over blocks of output channels, then blocks of tiles: M, R, output

The rule adds sketches to the direct ones if a stage is a 3x3, stride-1 convolution with constant weights, and
the target's numerics are not "strict". An approximate count of cycles decides which sketch comes first and is
used without any measurement. Winograd's comes first only if it is certainly faster, even with weights that
come from memory. The search decides all other cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.cache import CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Parallel, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.state import Ref, Stage, State
from schedules.algorithms.winograd import F2, F4, match
from schedules.kit.operand_roles import padding_in_front
from schedules.kit.shared_steps import in_vectors
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import epilogue, lanes_of
from schedules.kit.tiles import nearest, powers, singles, written_out
from schedules.kit.winograd_cost import Problem, Variant, best_option, cycles, direct_cycles, options, panels
from schedules.registry import Extension
from schedules.rules.tiles.convolution import convolution
from schedules.rules.tiles.tile_cpu import tile_cpu

SMALLEST = 4  # least rows and columns of the output; with fewer, tiles are mostly padding


VARIANTS = tuple(Variant(tf, by_columns) for tf in (F4, F2) for by_columns in (False, True))


def winograd(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    """The direct sketches and, if the numerics allow it, those of Winograd's method."""
    if target.kind != "llvm" or target.is_strict or match(state, stage) is None:
        return
    host, pads = epilogue(state, stage), padding_in_front(state, stage.op)
    problem = _problem(stage, target)
    if problem is None:
        return
    cost = {v: cycles(problem, v, best_option(problem, v)) for v in VARIANTS}
    enough = direct_cycles(problem) / problem.costs.sure
    first = sorted((v for v in VARIANTS if cost[v] <= enough), key=lambda v: cost[v])
    after = [v for v in VARIANTS if v not in first]

    def built(v: Variant) -> Extension:
        return _WinogradSketch(stage, host, problem, v, pads).build()

    yield from map(built, first)
    yield from tuple(convolution(state, stage, target)) or tile_cpu(state, stage, target)
    yield from map(built, after)


def _problem(stage: Stage, target: Target) -> Problem | None:
    """The problem whose cycles are counted; None if results or sums are too small."""
    h, w, c = (a.extent for a in stage.op.axes[-3:])
    lanes = lanes_of(stage.op, target)
    if min(c, stage.op.reduce_axes[-1].extent) < lanes or min(h, w) < SMALLEST:
        return None
    return Problem.of(stage, lanes, target)


def winograd_gain(state: State, stage: Stage, target: Target) -> float:
    """How many times as fast as the direct sketches the method seems; 0 if it does not apply or is not
    allowed."""
    if target.kind != "llvm" or target.is_strict or match(state, stage) is None:
        return 0.0
    problem = _problem(stage, target)
    if problem is None:
        return 0.0
    return direct_cycles(problem) / min(cycles(problem, v, best_option(problem, v)) for v in VARIANTS)


class _WinogradSketch(SketchWriter):
    """Writes the sketch of one variant."""

    def __init__(
        self, stage: Stage, host: Stage | None, problem: Problem, variant: Variant, pads: tuple[Stage, ...]
    ) -> None:
        super().__init__()
        self.stage, self.problem, self.variant, self.pads = stage, problem, variant, pads
        self.tf, self.by_columns, self.lanes = variant.tf, variant.by_columns, problem.lanes
        self.host = host or stage  # the stage whose loops make the tiles
        self.name = f"{stage.name}.local" if host is None else stage.name  # the name of the tiled stage
        self.outer = [a.name for a in stage.op.axes[:-3]]  # batch, depth
        self.taps = [a.name for a in stage.op.reduce_axes[:-3]]

    def build(self) -> Extension:
        anchor, host = self.name, self.host.name
        tile, columns = f"{anchor}/tile", f"{anchor}/panels"
        best = best_option(self.problem, self.variant)
        self.hole(tile, options(self.problem, self.variant), best)
        counts = powers(ceil(self.problem.c / best[5]))
        wanted = panels(self.problem, self.variant, best)
        self.hole(columns, singles(counts), (nearest(counts, wanted),))
        if host == self.stage.name:
            self.write(CacheWrite(host, "local"))
        self.write(UseAlgorithm(anchor, f"winograd_f{self.tf.m}"))
        n = len(self.taps)  # [*taps, a, b, k, c]: panels of columns outside, summed axes inside
        order = [f"{n + 3}.0", n, n + 1, *range(n), n + 2, f"{n + 3}.1"]
        self.write(Layout(f"{anchor}.U", ((n + 3, Ref(tile, 5)),), " ".join(map(str, order))))
        self.write(Inline(anchor))
        block, column, last = self._host(host, tile, columns)
        self._outputs(host, last)
        self._products(host, column, tile)
        around = self._inputs(host, block)
        done = [host, anchor, *(f"{anchor}.{s}" for s in ("GW", "U", "D", "V", "M", "M.local", "R"))]
        for pad in self.pads:
            done.append(pad.name)
            axis = pad.op.axes[-1].name
            self.write(ComputeAt(pad.name, *around))
            self.split(pad.name, axis, self.lanes)
            self.write(Vectorize(pad.name, f"{axis}.1"))
        return self.extension(*done)

    def _host(self, host: str, tile: str, columns: str) -> tuple[str, str, str]:
        """Makes blocks, columns, tiles and pixels. Returns the loops of a block, of a column block, and of a
        tile."""
        *outer, h, w, c = (a.name for a in self.host.op.axes)
        m = self.tf.m
        self.write(
            SplitStep(host, h, (Ref(tile, 0), m)),
            SplitStep(host, w, (Ref(tile, 1), m)),
            SplitStep(host, c, (Ref(columns), Ref(tile, 4), self.lanes)),
        )
        blocks = (f"{h}.0", f"{w}.0")
        outside = (f"{c}.0", *blocks) if self.by_columns else (*blocks, f"{c}.0")
        inside = (f"{h}.1", f"{w}.1", f"{c}.1", f"{h}.2", f"{w}.2", f"{c}.2", f"{c}.3")
        self.write(Reorder(host, (*outer, *outside, *inside)))
        block = self.fuse(host, (*outer, *(outside[:1] if self.by_columns else blocks)))
        self.write(*in_vectors(host, f"{h}.2", f"{w}.2", f"{c}.2", f"{c}.3"), Parallel(host, block))
        return block, outside[-1], f"{c}.1"

    def _outputs(self, host: str, last: str) -> None:
        r = f"{self.name}.R"
        c = self.stage.op.axes[-1].name
        self.write(
            ComputeAt(r, host, last),
            SplitStep(r, c, (self.lanes,)),
            Reorder(r, (*self.outer, "th", "tw", f"{c}.0", "b", "y", f"{c}.1")),
            *in_vectors(r, "b", "y", f"{c}.1"),
        )

    def _products(self, host: str, column: str, tile: str) -> None:
        """Computes M for a block of columns: a matrix product for each position of the transform."""
        mm, c = f"{self.name}.M", self.stage.op.axes[-1].name
        near = f"{mm}.local"
        self.write(
            CacheWrite(mm, "local"),
            ComputeAt(mm, host, column),
            SplitStep(mm, "th", (Ref(tile, 2),)),
            SplitStep(mm, "tw", (Ref(tile, 3),)),
            SplitStep(mm, c, (Ref(tile, 4), self.lanes)),
            Reorder(
                mm, (*self.outer, f"{c}.0", "a", "b", "th.0", "tw.0", "th.1", "tw.1", f"{c}.1", f"{c}.2")
            ),
            *in_vectors(mm, "th.1", "tw.1", f"{c}.1", f"{c}.2"),
            ComputeAt(near, mm, "tw.0"),
            SplitStep(near, c, (self.lanes,)),
            SplitStep(near, "k", (self._steps_written(),)),
            Reorder(near, (*self.taps, "k.0", "k.1", *self.outer, "a", "b", "th", "tw", f"{c}.0", f"{c}.1")),
            *in_vectors(near, "k.1", *self.outer, "a", "b", "th", "tw", f"{c}.0", f"{c}.1"),
        )

    def _steps_written(self) -> int:
        """The number of unrolled steps of a product's reduction."""
        depth = self.stage.op.reduce_axes[-1].extent
        return written_out(depth, self.problem.target)

    def _inputs(self, host: str, block: str) -> tuple[str, str]:
        """Computes V, with the row transform D of one vector of channels inside it. Returns the loop around
        V's input."""
        v, d = f"{self.name}.V", f"{self.name}.D"
        self.split(v, "k", self.lanes)
        if self.by_columns:
            at, around = "tw", (v, self._regions_of(v))
        else:
            at, around = "k.0", (host, block)
            self.write(
                ComputeAt(v, host, block),
                Reorder(v, (*self.outer, "th", "tw", "k.0", "a", "b", "k.1")),
            )
        self.write(
            *in_vectors(v, "a", "b", "k.1"),
            ComputeAt(d, v, at),
            SplitStep(d, "k", (self.lanes,)),
            Reorder(d, (*self.outer, "th", "tw", "k.0", "j", "a", "k.1")),
            *in_vectors(d, "a", "j", "k.1"),
        )
        return around

    def _regions_of(self, v: str) -> str:
        """Computes the whole V in a separate parallel region, over vectors of channels. Returns the parallel
        loop."""
        self.write(Reorder(v, (*self.outer, "k.0", "th", "tw", "a", "b", "k.1")))
        vectors = self.fuse(v, (*self.outer, "k.0"))
        self.write(Parallel(v, vectors))
        return vectors
