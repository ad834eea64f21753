"""Products on a GPU: a block computes a tile of the result, and each thread a smaller tile in registers.

    C[i, j] = Σ_k A[i, k] B[k, j]

    direct     blocks (i.0, j.0) ─ threads (i.1, j.1) ─ k ─ rows i.2 × vectors j.2 × lanes j.3
    shared     … k.0 ─ copy A[tile, k.1], B[k.1, tile] to shared memory, all threads together ─ k.1 ─ …

There are two structures; the one that shares operands comes first. Padding before the product is written
directly into shared memory, or computed beforehand. Any reduction that is contiguous along the last axis is
tiled in this way, pooling too. A thread has several rows only if they share an operand.
Source: multi-level tiling of Ansor (Zheng et al., OSDI 2020); the shapes of tiles after CUTLASS.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.codegen.c.resources import registers_for
from autotensor.schedule.primitives.bind import Bind
from autotensor.schedule.primitives.cache import CacheRead
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.mark import Unroll
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.set_scope import SetScope
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole, Option
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import IterDef, StageOp
from schedules.kit.gpu_threads import powers_of_two
from schedules.kit.operand_roles import padding_in_front
from schedules.kit.shared_steps import host_and_anchor, in_vectors, names_in
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import Read, epilogue, reads, undecided
from schedules.registry import Extension

ACCUMULATORS = 128  # most elements that a thread sums at once: half of its registers
LEAST_COLUMNS = 4
SPARE_REGISTERS = 24  # registers of a thread besides its tile and operands: addresses and counters
LEAST_SHARED = 16  # least terms, rows and columns for copies in shared memory
LANES = 4  # elements of the widest load of a thread
FEW_DOTS = 4096
DEPTHS = (4, 8, 16, 32)  # numbers of terms that are copied at once
MOST_TILES = 160  # options of one hole


@dataclass(frozen=True, slots=True)
class _Shape:
    """The tiled axes: columns along the last axis, and rows along an axis before it that shares an
    operand."""

    op: StageOp
    column: IterDef
    row: IterDef | None
    others: tuple[IterDef, ...]
    standing: tuple[Read, ...]  # operands that do not change along columns
    moving: tuple[Read, ...]
    lanes: int

    @property
    def rows(self) -> int:
        return self.row.extent if self.row else 1

    @property
    def depth(self) -> int:
        """Terms of one result."""
        return prod(a.extent for a in self.op.reduce_axes)

    @property
    def blocks(self) -> int:
        return prod(a.extent for a in self.others)


def gpu_tile(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if not op.is_reduction or len(op.buffers) != 1 or not undecided(state, stage):
        return ()
    found = []
    for lanes in _lane_choices(op):
        shape = _shape(op, lanes)
        if shape is None:
            return ()
        direct = _GpuTileSketch(state, stage, shape, target, shared=False)
        shared = [_GpuTileSketch(state, stage, shape, target, shared=True)] if _may_share(shape) else []
        found += [*shared, direct]
    return tuple(b.build() for b in found if b.options)


def _lane_choices(op: StageOp) -> tuple[int, ...]:
    """The widths of vectors, with the probably best first. Only divisors are offered, because tails cost
    time."""
    even = bool(op.axes) and op.axes[-1].extent % LANES == 0
    return (LANES, 1) if even else (1,)


def _shape(op: StageOp, lanes: int) -> _Shape | None:
    """The roles of the axes; None if the last axis is short, or operands are not contiguous along it."""
    if not op.axes or op.axes[-1].extent < LEAST_COLUMNS:
        return None
    column = op.axes[-1]
    operands = reads(op)
    moving = tuple(r for r in operands if r.uses(column.name))
    straight = all(r.strides.get(column.name) == 1 for r in moving)
    if not moving or (not straight and _few_dots(op, moving)):
        return None  # threads along the reduction read rows faster
    standing = tuple(r for r in operands if not r.uses(column.name))
    candidates = [a for a in op.axes[:-1] if a.extent > 1 and any(not r.uses(a.name) for r in operands)]
    row = candidates[-1] if candidates else None
    others = tuple(a for a in op.axes[:-1] if a is not row)
    return _Shape(op, column, row, others, standing, moving, lanes)


def _few_dots(op: StageOp, moving: tuple[Read, ...]) -> bool:
    """Whether a stage has few results, which are dot products of rows."""
    last = op.reduce_axes[-1].name
    along = all(r.strides.get(last) == 1 for r in moving)
    return along and prod(a.extent for a in op.axes) < FEW_DOTS


def _may_share(s: _Shape) -> bool:
    """Whether operands are used often enough within a block to be copied."""
    deep = s.op.reduce_axes[-1].extent >= DEPTHS[0] and s.depth >= LEAST_SHARED
    return deep and s.rows >= LEAST_SHARED // 2 and s.column.extent >= LEAST_SHARED and bool(s.standing)


class _GpuTileSketch(SketchWriter):
    """Writes one sketch."""

    def __init__(self, state: State, stage: Stage, shape: _Shape, target: Target, *, shared: bool) -> None:
        super().__init__()
        self.state, self.stage, self.s, self.target, self.shared = state, stage, shape, target, shared
        # (threads along rows, threads along columns, rows of a thread, its vectors), probably best first
        self.options = sorted({o for o in self._all_tiles() if self._fits(o)}, key=self._cost)[:MOST_TILES]

    def build(self) -> Extension:
        name = self.stage.name
        host, anchor, first = host_and_anchor(epilogue(self.state, self.stage), self.stage.name)
        self.write(*first)
        tile = Hole(f"{name}/tile", tuple(self.options), self.options[0])
        self.holes.append(tile)
        thread = self._host(host, tile.name)
        self.write(ComputeAt(anchor, host, thread))
        copied = self._anchor(anchor, tile.name)
        return self.extension(host, anchor, name, *copied)

    # -- loops --------------------------------------------------------------------------------------------

    def _host(self, host: str, tile: str) -> str:
        """Makes blocks, threads, and the tile of a thread. Returns the innermost loop over threads."""
        names = names_in(self.state.stage(host).op, self.stage.op)
        c = names[self.s.column.name]
        others = [names[a.name] for a in self.s.others]
        self.split(host, c, Ref(tile, 1), Ref(tile, 3), self.s.lanes)
        blocks, threads, inner = [*others, f"{c}.0"], [f"{c}.1"], [f"{c}.2", f"{c}.3"]
        bound = [Bind(host, f"{c}.1", "threadIdx.x")]
        if self.s.row is not None:
            r = names[self.s.row.name]
            self.split(host, r, Ref(tile, 0), Ref(tile, 2))
            blocks, threads, inner = [*others, f"{r}.0", f"{c}.0"], [f"{r}.1", *threads], [f"{r}.2", *inner]
            bound.append(Bind(host, f"{r}.1", "threadIdx.y"))
        self.write(Reorder(host, (*blocks, *threads, *inner)))
        block = self.fuse(host, blocks)
        self.write(Bind(host, block, "blockIdx.x"), *bound)
        self._written_out(host, *inner)
        return threads[-1]

    def _anchor(self, anchor: str, tile: str) -> list[str]:
        """Puts the reduction outside and an unrolled tile of vectors inside. Copies are at the outer
        reduction loop."""
        op, c = self.stage.op, self.s.column.name
        self.split(anchor, c, self.s.lanes)
        *outer, last = [a.name for a in op.reduce_axes]
        extent = op.reduce_axes[-1].extent
        options = self._depths(extent) if self.shared else tuple(d for d in (1, 2, 4, 8) if extent % d == 0)
        hole = Hole(f"{self.stage.name}/depth", tuple((d,) for d in options), (self._depth(options),))
        self.holes.append(hole)
        self.split(anchor, last, Ref(hole.name))
        reduction = [*outer, f"{last}.0", f"{last}.1"]
        spatial = [a.name for a in op.axes[:-1]]
        self.write(Reorder(anchor, (*reduction, *spatial, f"{c}.0", f"{c}.1")))
        self._written_out(anchor, f"{last}.1", *spatial, f"{c}.0", f"{c}.1")
        return self._copies(anchor, f"{last}.0", tile) if self.shared else []

    def _written_out(self, stage: str, *loops: str) -> None:
        """Unrolls the loops of a thread's tile. The last loop is its lanes, with extent 1 if the tile has no
        vectors."""
        vectors = self.s.lanes > 1
        self.write(*(in_vectors(stage, *loops) if vectors else (Unroll(stage, loop) for loop in loops)))

    def _copies(self, anchor: str, at: str, tile: str) -> list[str]:
        """Copies every operand with reuse to shared memory; all threads of the block fetch it."""
        pads = {b: p for p in padding_in_front(self.state, self.stage.op) for b in p.op.buffers}
        done: list[str] = []
        for buffer in dict.fromkeys(r.load.buffer for r in (*self.s.standing, *self.s.moving)):
            if buffer in pads:
                copy, op = pads[buffer].name, pads[buffer].op
                names = tuple(a.name for a in op.axes)
                self.write(SetScope(copy, "shared"), ComputeAt(copy, anchor, at))
            else:
                copy = f"{buffer.name}.shared:{anchor}"
                names = tuple(f"i{n}" for n in range(len(buffer.shape)))
                self.write(CacheRead(buffer.name, "shared", (anchor,)), ComputeAt(copy, anchor, at))
            flat = self.fuse(copy, names)
            if self.s.row is not None:
                self.write(
                    SplitStep(copy, flat, (Ref(tile, 0), Ref(tile, 1))),
                    Bind(copy, f"{flat}.1", "threadIdx.y"),
                    Bind(copy, f"{flat}.2", "threadIdx.x"),
                )
            else:
                self.write(
                    SplitStep(copy, flat, (Ref(tile, 1),)),
                    Bind(copy, f"{flat}.1", "threadIdx.x"),
                )
            done.append(copy)
        return done

    # -- sizes --------------------------------------------------------------------------------------------

    def _depths(self, extent: int) -> tuple[int, ...]:
        """The numbers of terms to copy at once. Other numbers than divisors would need guards in the
        innermost loop."""
        return tuple(d for d in DEPTHS if extent % d == 0) or (1,)

    def _depth(self, options: tuple[int, ...]) -> int:
        wanted = 8 if self.shared else 2 if self.s.depth > 64 else 4
        return max(
            (d for d in options if d <= wanted and self._has_room(self.options[0], d)), default=options[0]
        )

    def _all_tiles(self) -> Iterable[Option]:
        s = self.s
        vectors = ceil(s.column.extent / s.lanes)
        most = self.target.max_threads_per_block
        thread_counts = powers_of_two(1, 64)
        if self.shared:
            thread_counts = tuple(t for t in thread_counts if t >= 4)
        for tx in thread_counts or (1,):
            if tx > max(1, vectors) and tx > 1:
                continue
            for ty in thread_counts if s.row is not None else (1,):
                if tx * ty > most or (ty > 1 and ty >= 2 * s.rows):
                    continue
                for v in (1, 2, 3, 4, 6):
                    if v > 1 and tx * v > vectors:
                        continue
                    for rows in _row_counts(s.rows):
                        yield ty, tx, rows, v
        yield 1, 1, 1, 1

    def _fits(self, o: Option) -> bool:
        """Whether a tile fits registers and shared memory, before anything is lowered."""
        ty, tx, rows, v = o
        if rows * v * self.s.lanes > ACCUMULATORS:
            return False
        held = rows * v * self.s.lanes + rows + v * self.s.lanes  # 1024 threads of 8 x 16 spilled 8 kB
        if held + SPARE_REGISTERS > registers_for(ty * tx):
            return False
        if not self.shared:
            return True
        return ty * tx >= 4 and self._has_room(o, self._depths(self.s.op.reduce_axes[-1].extent)[0])

    def _has_room(self, o: Option, depth: int) -> bool:
        """Whether copies of this many terms fit into shared memory."""
        ty, tx, rows, v = o
        width = max(r.load.buffer.dtype.bytes for r in (*self.s.standing, *self.s.moving))
        elements = (ty * rows + tx * v * self.s.lanes) * depth
        return not self.shared or elements * width <= self.target.max_shared_bytes

    def _cost(self, o: Option) -> tuple[float, Option]:
        """The time for the whole result with a tile, in steps of one multiprocessor. Less is better.

        A step loads the tile's rows and vectors and multiplies them. A part of the work of a block at the
        edge is wasted, and the last wave of blocks leaves multiprocessors idle.
        """
        ty, tx, rows, v = o
        s, t = self.s, self.target
        blocks = ceil(s.rows / (ty * rows)) * ceil(s.column.extent / (tx * v * s.lanes)) * s.blocks
        threads = ty * tx
        warps = ceil(threads / t.warp_size)
        loads = (ty * rows + tx * v * s.lanes) / threads if self.shared else 0.0
        per_step = rows * v * s.lanes + (rows + v * s.lanes) * 0.6 + loads * 4.0
        latency = max(1.0, 8.0 / (warps * max(1.0, min(4.0, blocks / t.num_cores))))
        waves = max(1.0, blocks / t.num_cores)
        return per_step * warps * latency * (ceil(waves) if waves < 4 else waves), o


def _row_counts(extent: int) -> tuple[int, ...]:
    """The numbers of rows of a thread: divisors of the extent, and some other numbers."""
    return tuple(r for r in range(1, min(extent, 14) + 1) if extent % r == 0 or r in (4, 6, 8)) or (1,)
