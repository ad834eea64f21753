"""Products of 16-bit floats on tensor cores: a block's tiles are in shared memory, and a warp's in registers.

    blocks (b, m.0, n.0) ─ warps (m.1, n.1) ─ instructions (m.2, n.2) of 16 × 8, one by 32 lanes
      k.0 ─ copy rows[tile, k], columns[k, tile] iterations ahead, by all threads ─ k.1 ─ mma.m16n8k16

`flat_product` recognises products by their loops, and not by their shape or name: batches, transposed
operands and convolutions are products, too. The search decides how deep the copies are, and how many
iterations of k.0 ahead they are made. Tensor cores truncate their float32 sums instead of rounding them (Fasi
et al., "Numerical behavior of NVIDIA tensor cores", 2021), so strict numerics forbid them.
Source: CUTLASS (Thakkar et al.), "Efficient GEMM in CUDA"; multi-stage pipelines of Ampere by cp.async.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.codegen.c.resources import registers_for
from autotensor.codegen.c.tensor_intrinsics import FIRST_CAPABILITY, LANES, of_type, products_a_cycle
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.bind import Bind
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.double_buffer import DoubleBuffer
from autotensor.schedule.primitives.mark import Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.set_scope import SetScope
from autotensor.schedule.primitives.storage import Swizzle
from autotensor.schedule.primitives.tensorize import Tensorize
from autotensor.schedule.sketch import Option
from autotensor.schedule.state import Ref, Stage, State
from schedules.algorithms.flat_product import DEPTH, NAME, Operands, roles
from schedules.kit.shared_steps import names_in
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import epilogue, untouched
from schedules.registry import Extension

ROWS, COLUMNS = 16, 8  # rows and columns of one instruction
CHUNK = 8  # elements that one access moves: 16 bytes
WARPS = (1, 2, 4)  # numbers of warps along rows, and along columns
TILES = (1, 2, 4, 8)  # numbers of instructions of a warp along rows, and along columns
STEPS = (1, 2, 4)  # depth of one copy, in instructions
TURNS = (3, 2)  # number of buffers for copies; the probably best first
ACCUMULATORS = 128  # accumulators of a thread: half of its registers
SPARE_REGISTERS = 40  # registers of a thread besides accumulators and operands: addresses and counters
LEAST = 16  # fewest rows, columns and terms; with fewer, most of an instruction is wasted
READ, COPY = 128.0, 32.0  # bytes per cycle of one multiprocessor, from shared memory and from L2
ENOUGH_WARPS = 4  # least warps of a block, because a multiprocessor has four units
MEETING = 30.0  # cycles of a barrier


def tensor_cores(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.capability < FIRST_CAPABILITY or target.is_strict or not untouched(stage):
        return
    r = roles(stage.op)
    if r is None or min(r.extents) < LEAST or state.attached(stage.name):
        return
    for turns in TURNS:
        sketch = _TensorCoreSketch(state, stage, r, target, turns)
        if sketch.options:
            yield sketch.build()
    yield Extension(onward=True)


class _TensorCoreSketch(SketchWriter):
    """Writes one sketch."""

    def __init__(self, state: State, stage: Stage, r: Operands, target: Target, turns: int) -> None:
        super().__init__()
        self.state, self.stage, self.r, self.target, self.turns = state, stage, r, target, turns
        self.instruction = of_type(str(r.rows.dtype))
        self.peak = products_a_cycle(self.instruction.name, target.capability)
        # (warps along rows, along columns, instructions of a warp along rows, along columns, …)
        self.options = sorted({o for o in self._all_tiles() if self._fits(o)}, key=self._cost)

    def build(self) -> Extension:
        name = self.stage.name
        use = UseAlgorithm(name, NAME)
        self.write(use)
        after = use.apply(self.state)
        rows, columns, flat = (s for s in after.names if s not in self.state.names)
        behind = epilogue(self.state, self.stage)
        if behind is not None:
            self.write(Inline(name))
        host = name if behind is None else behind.name
        self.hole(f"{name}/tile", tuple(self.options), self.options[0])
        self.write(ComputeAt(flat, host, self._host(host, f"{name}/tile")))
        turn = self._sums(after.stage(flat), f"{name}/tile")
        for copy in (rows, columns):
            self._copy(after.stage(copy), flat, turn, f"{name}/tile")
        return self.extension(host, name, rows, columns, flat)

    # -- loops --------------------------------------------------------------------------------------------

    def _host(self, host: str, tile: str) -> str:
        """Makes blocks, warps, and the instructions of a warp. Returns the loop over a warp's lanes."""
        op = self.state.stage(host).op
        names = names_in(op, self.stage.op)
        parts = [[names[a.name] for a in axes] for axes in (self.r.batches, self.r.m, self.r.n)]
        self.write(Reorder(host, tuple(name for part in parts for name in part)))
        m, n = (self.fuse(host, part) for part in parts[1:])
        self.split(host, m, Ref(tile, 0), Ref(tile, 2), 2, ROWS // 2)
        self.split(host, n, Ref(tile, 1), Ref(tile, 3), COLUMNS // 2, 2)
        blocks, warps = [*parts[0], f"{m}.0", f"{n}.0"], [f"{m}.1", f"{n}.1"]
        tiles, lanes = [f"{m}.2", f"{m}.3", f"{n}.2"], [f"{m}.4", f"{n}.3"]
        self.write(Reorder(host, (*blocks, *warps, *tiles, *lanes, f"{n}.4")))
        lane = self.fuse(host, lanes)
        self.write(
            Bind(host, self.fuse(host, blocks), "blockIdx.x"),
            Bind(host, self.fuse(host, warps), "threadIdx.y"),
            *(Bind(host, loop, "vthread") for loop in tiles),
            Bind(host, lane, "threadIdx.x"),
            Vectorize(host, f"{n}.4"),
        )
        return lane

    def _sums(self, anchor: Stage, tile: str) -> str:
        """Cuts the reduction into parts, each with its copies. Returns the loop over the parts."""
        (k,) = (a.name for a in anchor.op.reduce_axes)
        spatial = [a.name for a in anchor.op.axes]
        self.split(anchor.name, k, Ref(tile, 5), DEPTH)
        self.write(
            Reorder(anchor.name, (f"{k}.0", f"{k}.1", f"{k}.2", *spatial)),
            Unroll(anchor.name, f"{k}.1"),
            Tensorize(anchor.name, f"{k}.2", self.instruction.name),
        )
        return f"{k}.0"

    def _copy(self, copy: Stage, anchor: str, turn: str, tile: str) -> None:
        """Copies an operand's box some iterations ahead, in chunks that are stored without bank conflicts."""
        name = copy.name
        self.write(SetScope(name, "shared"), ComputeAt(name, anchor, turn))
        flat = self.fuse(name, [a.name for a in copy.op.axes])
        self.split(name, flat, Ref(tile, 4), LANES, CHUNK)
        self.write(
            Bind(name, f"{flat}.1", "threadIdx.y"),
            Bind(name, f"{flat}.2", "threadIdx.x"),
            Vectorize(name, f"{flat}.3"),
            Swizzle(name, CHUNK),
            DoubleBuffer(name, self.turns),
        )

    # -- sizes --------------------------------------------------------------------------------------------

    @property
    def _depth(self) -> int:
        """The terms of one result, in whole instructions."""
        return ceil(self.r.extents[2] / DEPTH) * DEPTH

    def _all_tiles(self) -> Iterator[Option]:
        """All options: warps along rows and columns, instructions of each warp, all warps, depth of an
        iteration."""
        m, n, _ = self.r.extents
        for wm, wn, mi, ni in product(WARPS, WARPS, TILES, TILES):
            if wm * mi * ROWS > m or wn * ni * COLUMNS > n:
                continue  # all threads execute the instructions, so boxes must be whole
            for steps in STEPS:
                if self._depth % (steps * DEPTH) == 0:
                    yield wm, wn, mi, ni, wm * wn, steps

    def _fits(self, o: Option) -> bool:
        """Whether a tile fits registers and shared memory, before anything is lowered."""
        _, _, mi, ni, warps, _ = o
        held = 4 * mi * ni + 4 * mi + 2 * ni  # sums, and the operands of one step
        threads = warps * LANES
        return (
            4 * mi * ni <= ACCUMULATORS
            and held + SPARE_REGISTERS <= registers_for(threads)
            and threads <= self.target.max_threads_per_block
            and self._bytes(o) * self.turns <= self.target.max_shared_bytes
        )

    def _bytes(self, o: Option) -> int:
        """The bytes that one iteration copies."""
        wm, wn, mi, ni, _, steps = o
        return (wm * mi * ROWS + wn * ni * COLUMNS) * steps * DEPTH * self.r.rows.dtype.bytes

    def _cost(self, o: Option) -> tuple[float, Option]:
        """The time for the whole result with a tile, in cycles of one multiprocessor. Less is better.

        An iteration multiplies, reads operands from shared memory, and copies the next operands; different
        units do these at the same time. A part of the work of a block at the edge is wasted, and the last
        wave leaves some multiprocessors idle.
        """
        wm, wn, mi, ni, warps, steps = o
        m, n, _ = self.r.extents
        blocks = (
            ceil(m / (wm * mi * ROWS))
            * ceil(n / (wn * ni * COLUMNS))
            * prod(a.extent for a in self.r.batches)
        )
        waves = max(1.0, blocks / self.target.num_cores)
        multiplied = warps * mi * ni * steps * ROWS * COLUMNS * DEPTH / self.peak
        fetched = warps * (mi * ROWS + ni * COLUMNS) * steps * DEPTH * self.r.rows.dtype.bytes / READ
        copied = self._bytes(o) / COPY
        parts = (multiplied * max(1.0, ENOUGH_WARPS / warps), fetched, copied)
        turn = max(parts) + 0.2 * sum(parts) + MEETING
        fill = 1.0 + (self.turns - 1) * steps * DEPTH / self._depth
        return turn * self._depth / (steps * DEPTH) * fill * (ceil(waves) if waves < 4 else waves), o
