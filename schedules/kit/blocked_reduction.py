"""Products whose reduction is cut: some steps are done for a whole block of the result, then the next ones.

    parallel over blocks of (columns, rows)
      acc[block] = 0                                          in the cache
      for a cut of the reduction
        for column tiles: for row tiles of the block
          part[rows, nv*lanes] = Σ over the cut               in registers
          acc += part
      epilogue: bias, activation; store

The rows of the moving operand for one cut are read in long runs, once from memory. All row tiles use them
while they are in the cache. This is good for products of few rows, and best for a vector times a matrix: they
run at the speed of memory. It is also good for long reductions with a small square result, whose panels do
not fit into L2; then cores divide the rows.
Source: Goto and van de Geijn (TOMS 2008), the loop over kc; without packing.
"""

from __future__ import annotations

from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.sketch import Option
from autotensor.schedule.state import Ref, Stage, State
from schedules.cpu import cpu_of
from schedules.kit.block_grain import cuts
from schedules.kit.operand_roles import Roles
from schedules.kit.shared_steps import host_and_anchor, in_vectors, names_in
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import divisors, epilogue, second_cache
from schedules.kit.tiles import best_tile, nearest, powers, singles, tiles_of
from schedules.registry import Extension

LONGEST = 512  # largest number of steps in a cut


def blocked_forms(state: State, stage: Stage, roles: Roles, target: Target) -> tuple[Extension, ...]:
    """The sketches, one for each length of a cut, with the probably best first; none if cutting cannot
    help."""
    op = stage.op
    if len(op.reduce_axes) != 1 or not roles.direct or op.combiner is None or len(roles.rows) > 1:
        return ()
    depth = op.reduce_axes[0].extent
    lengths = [d for d in divisors(depth, LONGEST) if 4 <= d < depth]
    rows = roles.outer * roles.inner
    if not lengths or depth * roles.columns * 4 <= cpu_of(target).last_share * target.cache_bytes[-1]:
        return ()
    few = 8 if rows < 8 else 16 if rows < 32 else 128
    wanted = dict.fromkeys(nearest(tuple(lengths), x) for x in (few, 8 * few if rows < 32 else 32))
    return tuple(_BlockedSketch(state, stage, roles, target).build(length) for length in wanted)


class _BlockedSketch(SketchWriter):
    """Writes one sketch."""

    def __init__(self, state: State, stage: Stage, roles: Roles, target: Target) -> None:
        super().__init__()
        self.state, self.stage, self.roles, self.target = state, stage, roles, target

    def build(self, length: int) -> Extension:
        name, op = self.stage.name, self.stage.op
        axis = op.reduce_axes[0].name
        tile, best = f"{name}/tile", best_tile(self.roles, self.target)
        self.hole(tile, tiles_of(self.roles, self.target), best)
        host, acc, first = host_and_anchor(epilogue(self.state, self.stage), name)
        self.split(name, axis, length)
        self.write(RFactor(name, f"{axis}.0"), *first)
        part = f"{name}.rf"
        block = self._host(host, tile, best)
        self.write(ComputeAt(acc, host, block))
        last = self._accumulate(acc, axis, tile)
        self.write(ComputeAt(part, acc, last))
        self._multiply(part, axis)
        return self.extension(host, acc, name, part)

    def _host(self, host: str, tile: str, best: Option) -> str:
        """Makes blocks in parallel, and rows of vectors inside a block. Returns the loop of a block."""
        roles, anchor = self.roles, self.stage.name
        names = names_in(self.state.stage(host).op, self.stage.op)
        v, rows = names[roles.vector.name], [names[a.name] for a in roles.rows]
        others = [names[a.name] for a in roles.others]
        tiles = ceil(roles.columns / best[3])
        choices = cuts(tiles, self.target.num_cores)
        self.hole(f"{anchor}/columns", singles(choices), (nearest(choices, self._share(best)),))
        for row in rows:
            heights, wanted = self._heights(best)
            self.hole(f"{anchor}/rows", singles(heights), (wanted,))
            self.split(host, row, Ref(f"{anchor}/rows"), Ref(tile, 1))
        self.split(host, v, Ref(f"{anchor}/columns"), Ref(tile, 2), roles.lanes)
        outside = [*others, f"{v}.0", *(f"{r}.0" for r in rows)]
        inside = [*(f"{r}.{n}" for r in rows for n in (1, 2)), f"{v}.1", f"{v}.2", f"{v}.3"]
        self.write(Reorder(host, (*outside, *inside)))
        outer = self.fuse(host, outside)
        self.write(*in_vectors(host, f"{v}.2", f"{v}.3"), Parallel(host, outer))
        return outer

    def _heights(self, best: Option) -> tuple[tuple[int, ...], int]:
        """Tiles of rows in a block: the options and the default. The default is all, because each block reads
        its columns again. If there are fewer columns than cores, it is a core's share."""
        roles, cores = self.roles, self.target.num_cores
        tiles = ceil(roles.inner / best[1])
        columns = ceil(ceil(roles.columns / best[3]) / self._share(best))
        across = columns * prod(a.extent for a in roles.others)
        if across >= cores or tiles == 1:
            return powers(tiles), tiles
        heights = cuts(tiles, cores)
        return heights, nearest(heights, ceil(tiles / ceil(cores / across)))

    def _share(self, best: Option) -> int:
        """Tiles of columns in a block: a core's share, in as few pieces as possible with their sums in L2.

        Longer runs are better: a vector times 4096 x 4096 takes 1.8 ms in runs of 16 KB and 2.4 ms in runs of
        6 KB (one core of Zen 4, November 2026).
        """
        roles = self.roles
        sums = roles.outer * roles.inner * best[3] * self.stage.op.buffers[0].dtype.bytes
        most = cpu_of(self.target).sums_share * second_cache(self.target)
        parts = max(1, self.target.num_cores // prod(a.extent for a in roles.others))
        tiles = ceil(roles.columns / best[3])
        pieces = max(1, round(ceil(tiles / parts) * sums / most))
        return ceil(tiles / (parts * pieces))

    def _accumulate(self, acc: str, axis: str, tile: str) -> str:
        """Puts cuts outside and tiles inside. Returns the innermost loop around a tile."""
        roles = self.roles
        v, rows = roles.vector.name, [a.name for a in roles.rows]
        others = [a.name for a in roles.others]
        for row in rows:
            self.split(acc, row, Ref(tile, 1))
        self.split(acc, v, Ref(tile, 2), roles.lanes)
        outside = [*others, f"{axis}.0", f"{v}.0", *(f"{r}.0" for r in rows)]
        inside = [*(f"{r}.1" for r in rows), f"{v}.1", f"{v}.2"]
        self.write(Reorder(acc, (*outside, *inside)))
        self.write(*in_vectors(acc, *inside))
        return outside[-1]

    def _multiply(self, part: str, axis: str) -> None:
        """Writes the register tile of one cut."""
        roles = self.roles
        v = roles.vector.name
        spatial = [f"{axis}.0", *(a.name for a in self.stage.op.axes[:-1])]
        self.split(part, v, roles.lanes)
        self.write(Reorder(part, (f"{axis}.1", *spatial, f"{v}.0", f"{v}.1")))
        self.write(*in_vectors(part, *spatial, f"{v}.0", f"{v}.1"))
