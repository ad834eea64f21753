"""Register micro-kernel tiling: the shape that fast CPU libraries have.

For a reduction with a vector axis `v` (its outputs contiguous) and row axes (along which vector operands are
reused):

    parallel over blocks of (rows, columns)
      for column tiles / row tiles of the block (either order)
        acc[rows, nv*lanes] in registers
        for reduction loops: acc += broadcast(scalar operand) × vector operand      fully unrolled
        epilogue: bias, residual, activation; store

Constant operands that run along `v` are packed into panels of one tile's width, in the order of the reduction
loops. Tiles need not divide: tails run as smaller kernels or under masks. Padding in front is copied per
block, or beforehand.
Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (TOMS 2008), without
packing of A; Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD architectures"
(SC 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.axis import fuse_name
from autotensor.schedule.primitives.cache import CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole, Option
from autotensor.schedule.state import Ref, Stage, State
from autotensor.schedule.step import Step
from autotensor.te.dag import IterDef, StageOp
from schedules.analysis import Read, epilogue, is_padding, lanes_of, reads, untouched
from schedules.registry import Extension, sketch_rule

MAX_COLUMNS = 6  # vectors side by side in a tile; wider tiles leave too few rows
MAX_ROWS = 30
MIN_REUSE = 8  # times that a row of an operand must be used to repay repacking it in every call
PAGE = 4096  # bytes after which addresses fall into the same set of a 32 KiB, 8-way cache
WAYS = 8  # lines that such a set holds; one is for the packed operand
STEP_OVERHEAD = (
    1.5  # cycles per reduction step beside FMAs and loads, as measured on Zen 4; favours larger tiles
)


@dataclass(frozen=True, slots=True)
class Roles:
    """What each axis of the anchor does in the kernel."""

    vector: IterDef
    rows: tuple[IterDef, ...]  # tiled, outer to inner: one or two, or none
    others: tuple[IterDef, ...]  # spatial, not tiled
    packed: tuple[Read, ...]  # operands to repack
    lanes: int
    crowded: bool  # rows of an operand lie a multiple of 4 KiB apart: all of them compete for one cache set


@sketch_rule("tile_cpu", order=20)
def tile_cpu(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if target.kind != "llvm" or not op.is_reduction or len(op.buffers) != 1 or not untouched(stage):
        return ()
    roles = assign_roles(state, op, lanes_of(op, target))
    if roles is None:
        return ()
    out: list[Extension] = []
    pads = padding_in_front(state, op)
    for columns_first in (False, True):
        for rows_inside in (True, False):
            for pad_at_block in (True, False) if pads else (False,):
                out.append(
                    _Builder(state, stage, roles, target, pads).build(
                        columns_first, rows_inside, pad_at_block
                    )
                )
    return tuple(dict.fromkeys(out))


def assign_roles(state: State, op: StageOp, lanes: int) -> Roles | None:
    """Vector axis, row axes and operands to pack; None when the stage has no axis worth a vector."""
    if not op.axes:
        return None
    vector = op.axes[-1]
    if vector.extent < min(lanes, 8) and vector.extent != max(a.extent for a in op.axes):
        return None
    moving = [r for r in reads(op) if r.uses(vector.name)]
    if not moving:
        return None
    packed = []
    reused = prod(a.extent for a in op.axes[:-1] if any(not r.uses(a.name) for r in moving))
    for r in moving:
        worth = r.load.buffer.name in state.dag.constants or (
            r.strides.get(vector.name) != 1 and reused >= MIN_REUSE and _is_input(state, r)
        )
        if worth and _packable(r, vector.name):
            packed.append(r)
        elif r.strides.get(vector.name) != 1:
            return None
    rows = [a for a in op.axes[:-1] if a.extent > 1 and any(not r.uses(a.name) for r in moving)]
    chosen = tuple(rows[-2:])
    others = tuple(a for a in op.axes[:-1] if a not in chosen)
    return Roles(vector, chosen, others, tuple(packed), lanes, _crowded(op, chosen, moving))


def _crowded(op: StageOp, rows: tuple[IterDef, ...], moving: list[Read]) -> bool:
    """Whether neighbouring rows of a broadcast operand fall into the same set of the nearest cache."""
    if not rows:
        return False
    steps = [
        r.strides.get(rows[-1].name, 0) * r.load.buffer.dtype.bytes
        for r in reads(op)
        if r.load not in [m.load for m in moving]
    ]
    return any(step and step % PAGE == 0 for step in steps)


def _is_input(state: State, r: Read) -> bool:
    return any(b.name == r.load.buffer.name for b in state.dag.inputs)


def _packable(r: Read, axis: str) -> bool:
    """Every dimension is indexed by at most one axis, plainly, so that panels can be cut along `axis`."""
    return (
        all(
            d is not None
            and not d.div
            and not d.mod
            and (
                not d.linear.terms
                or (d.linear.const == 0 and len(d.linear.terms) == 1 and d.linear.terms[0][1] == 1)
            )
            for d in r.dims
        )
        and [n for d in r.dims if d is not None for n, _ in d.linear.terms].count(axis) == 1
    )


def padding_in_front(state: State, op: StageOp) -> tuple[Stage, ...]:
    """Padding stages that only this stage reads."""
    found = []
    for b in op.reads():
        producer = state.producer(b)
        if producer is None or not is_padding(producer.op) or not untouched(producer):
            continue
        if not state.is_output(producer) and [c.name for c in state.consumers(producer)] == [op.name]:
            found.append(producer)
    return tuple(found)


def tile_options(roles: Roles, target: Target) -> tuple[Option, ...]:
    """(outer rows, rows, vectors, columns) of register tiles that need no spilling."""
    registers = target.vector_registers
    extents = [a.extent for a in roles.rows]
    inner, outer = (extents[-1] if extents else 1), (extents[0] if len(extents) == 2 else 1)
    widest = min(MAX_COLUMNS, ceil(roles.vector.extent / roles.lanes))
    out = []
    for nv in range(1, widest + 1):
        for tw in range(1, min(inner, MAX_ROWS) + 1):
            for th in range(1, min(outer, 6) + 1):
                if th > 1 and tw < min(inner, 8):
                    continue  # two-dimensional tiles only where a row of them is short
                acc = th * tw * nv
                spare = 1 if nv == 1 else nv + 1
                if acc + spare > registers:
                    continue
                out.append((th, tw, nv, nv * roles.lanes))
    best = max(o[0] * o[1] * o[2] for o in out)
    floor = min(best, max(4, registers // 4))
    kept = tuple(o for o in out if o[0] * o[1] * o[2] >= floor)
    return kept or tuple(out)


def tile_quality(option: Option, roles: Roles, registers: int) -> float:
    """Rough share of peak of a tile on these extents: loads per FMA, latency, tails."""
    th, tw, nv, _ = option
    rows = th * tw
    extents = [a.extent for a in roles.rows]
    inner, outer = (extents[-1] if extents else 1), (extents[0] if len(extents) == 2 else 1)
    total = 0.0
    for h in (th,) * (outer // th) + ((outer % th,) if outer % th else ()):
        for w, times in ((tw, inner // tw), (inner % tw, 1 if inner % tw else 0)):
            fma = h * w * nv
            total += times * (max(fma, h * w + nv, 8.0) + STEP_OVERHEAD) if fma else 0.0
    columns = ceil(roles.vector.extent / (nv * roles.lanes))
    useful = outer * inner * roles.vector.extent / roles.lanes
    crowding = 1.0 if rows * nv + nv + 2 <= registers else 0.97
    if roles.crowded and rows > WAYS - 1:
        crowding *= 0.75
    return crowding * useful / (total * columns)


class _Builder:
    """Writes one sketch for an anchor stage."""

    def __init__(
        self, state: State, stage: Stage, roles: Roles, target: Target, pads: tuple[Stage, ...]
    ) -> None:
        self.state, self.stage, self.roles, self.target, self.pads = state, stage, roles, target, pads
        self.steps: list[Step] = []
        self.holes: list[Hole] = []

    def build(self, columns_first: bool, rows_inside: bool, pad_at_block: bool) -> Extension:
        roles, anchor = self.roles, self.stage.name
        tile = f"{anchor}/tile"
        options = tile_options(roles, self.target)
        best = max(options, key=lambda o: (tile_quality(o, roles, self.target.vector_registers), o[2]))
        self.holes.append(Hole(tile, options, best))
        host, inner = self._host_and_anchor()
        self._pack(tile)
        block = self._tile_host(host, tile, best, columns_first, rows_inside)
        self.steps.append(ComputeAt(inner, host, block[-1]))
        self._tile_anchor(inner)
        done = [host, inner, anchor]
        for pad in self.pads:
            done.append(pad.name)
            self._copy_padding(pad, host, block[0] if pad_at_block else None)
        return Extension(tuple(self.steps), tuple(self.holes), tuple(done))

    def _host_and_anchor(self) -> tuple[str, str]:
        """The stage whose loops carry the tiles, and the one that accumulates inside."""
        after = epilogue(self.state, self.stage)
        if after is not None:
            return after.name, self.stage.name
        self.steps.append(CacheWrite(self.stage.name, "local"))
        return self.stage.name, f"{self.stage.name}.local"

    def _pack(self, tile: str) -> None:
        """Panels of one tile's width; inside a panel, dimensions in the order of the reduction loops."""
        for r in self.roles.packed:
            axis_of = {
                n: d.linear.terms[0][0] for n, d in enumerate(r.dims) if d is not None and d.linear.terms
            }
            along = next(n for n, a in axis_of.items() if a == self.roles.vector.name)
            rank = {a.name: n for n, a in enumerate(self.stage.op.reduce_axes)}
            rest = sorted(
                (n for n in range(len(r.dims)) if n != along), key=lambda n: rank.get(axis_of.get(n, ""), -1)
            )
            order = " ".join([f"{along}.0", *map(str, rest), f"{along}.1"])
            self.steps.append(Layout(r.load.buffer.name, ((along, Ref(tile, 3)),), order))

    def _tile_host(
        self, host: str, tile: str, best: Option, columns_first: bool, rows_inside: bool
    ) -> tuple[str, str]:
        """Splits, orders and marks the host's loops; gives (parallel loop, innermost loop around a tile)."""
        roles = self.roles
        op = self.state.stage(host).op
        names = {a.name: b.name for a, b in zip(self.stage.op.axes, op.axes, strict=True)}
        v = names[roles.vector.name]
        rows = [names[a.name] for a in roles.rows]
        row_block, col_block = self._block_holes(best)
        for n, axis in enumerate(rows):
            component = 1 if n == len(rows) - 1 else 0
            if n == 0 and row_block is not None:
                self.steps.append(SplitStep(host, axis, (Ref(row_block), Ref(tile, component))))
            else:
                self.steps.append(SplitStep(host, axis, (Ref(tile, component),)))
        self.steps.append(SplitStep(host, v, (Ref(col_block), Ref(tile, 2), roles.lanes)))
        outer_rows = [f"{rows[0]}.0"] if rows and row_block is not None else []
        inner_rows = (
            [f"{rows[0]}.1" if row_block is not None else f"{rows[0]}.0", *(f"{r}.0" for r in rows[1:])]
            if rows
            else []
        )
        tiles = [f"{r}.2" if n == 0 and row_block is not None else f"{r}.1" for n, r in enumerate(rows)]
        others = [names[a.name] for a in roles.others]
        outside = [*others, f"{v}.0", *outer_rows] if columns_first else [*others, *outer_rows, f"{v}.0"]
        inside = [f"{v}.1", *inner_rows] if rows_inside else [*inner_rows, f"{v}.1"]
        self.steps.append(Reorder(host, (*outside, *inside, *tiles, f"{v}.2", f"{v}.3")))
        fused = outside[0]
        for axis in outside[1:]:
            self.steps.append(FuseStep(host, fused, axis))
            fused = fuse_name(fused, axis)
        self.steps.extend(Unroll(host, t) for t in (*tiles, f"{v}.2"))
        self.steps.append(Vectorize(host, f"{v}.3"))
        self.steps.append(Parallel(host, fused))
        return fused, inside[-1]

    def _block_holes(self, best: Option) -> tuple[str | None, str]:
        """How many row tiles and column tiles a parallel block holds."""
        roles, anchor = self.roles, self.stage.name
        columns = ceil(roles.vector.extent / best[3])
        cores = self.target.num_cores
        others = prod(a.extent for a in roles.others)
        col = f"{anchor}/columns"
        choices = powers(columns)
        if not roles.rows:
            wanted = max(1, columns * others // (4 * cores))
            self.holes.append(Hole(col, singles(choices), (nearest(choices, wanted),)))
            return None, col
        row_tiles = ceil(roles.rows[0].extent / (best[0] if len(roles.rows) == 2 else best[1]))
        row_choices = powers(row_tiles)
        self.holes.append(Hole(col, singles(choices), (choices[-1],)))
        wanted = max(1, row_tiles * others // (4 * cores))
        row = f"{anchor}/rows"
        self.holes.append(Hole(row, singles(row_choices), (nearest(row_choices, wanted),)))
        return row, col

    def _tile_anchor(self, inner: str) -> None:
        """Reduction loops outside, an unrolled register tile inside."""
        op, roles = self.stage.op, self.roles
        v = roles.vector.name
        self.steps.append(SplitStep(inner, v, (roles.lanes,)))
        reduction = [a.name for a in op.reduce_axes]
        unrolled: list[str] = []
        if op.reduce_axes:
            last = op.reduce_axes[-1]
            options = tuple(d for d in (1, 2, 3, 4, 5, 7, 8) if last.extent % d == 0 and d <= last.extent)
            if len(options) > 1:
                hole = f"{self.stage.name}/unroll"
                small = last.extent <= 8
                self.holes.append(Hole(hole, singles(options), (options[-1] if small else 1,)))
                self.steps.append(SplitStep(inner, last.name, (Ref(hole),)))
                reduction[-1:] = [f"{last.name}.0", f"{last.name}.1"]
                unrolled.append(f"{last.name}.1")
        spatial = [a.name for a in op.axes[:-1]]
        self.steps.append(Reorder(inner, (*reduction, *spatial, f"{v}.0", f"{v}.1")))
        self.steps.extend(Unroll(inner, a) for a in (*unrolled, *spatial, f"{v}.0"))
        self.steps.append(Vectorize(inner, f"{v}.1"))

    def _copy_padding(self, pad: Stage, host: str, block: str | None) -> None:
        """Padding copied per block or beforehand, row by row in vectors."""
        last = pad.op.axes[-1].name
        lanes = self.roles.lanes
        if block is not None:
            self.steps.append(ComputeAt(pad.name, host, block))
        if pad.op.axes[-1].extent >= lanes:
            self.steps.append(SplitStep(pad.name, last, (lanes,)))
            self.steps.append(Vectorize(pad.name, f"{last}.1"))
        if block is None and len(pad.op.axes) > 2:
            fused = pad.op.axes[0].name
            for axis in pad.op.axes[1:-2]:
                self.steps.append(FuseStep(pad.name, fused, axis.name))
                fused = fuse_name(fused, axis.name)
            self.steps.append(Parallel(pad.name, fused))


def powers(n: int) -> tuple[int, ...]:
    """1, 2, 4, … and n."""
    out = [1]
    while out[-1] * 2 < n:
        out.append(out[-1] * 2)
    return tuple(dict.fromkeys([*out, n]))


def singles(values: tuple[int, ...]) -> tuple[Option, ...]:
    return tuple((v,) for v in values)


def nearest(choices: tuple[int, ...], wanted: int) -> int:
    return min(choices, key=lambda c: (abs(c - wanted), c))
