"""Convolutions without multiplications by padding, also with phases or groups.

In this module, a convolution is a sum of products of data in a window and constant weights. The window slides
along axes that the weights do not have; the output channels are the vector axis. Rows are tiled as in
`tile_cpu`:

    parallel over blocks of (groups, phases, other axes, rows, columns)
      for phases in the tiled axis                                            unrolled
        for column tiles / rows of the block (either order)
          acc[row elements, nv*lanes] in registers
          for kernel rows: if the row is not padding:
            for kernel columns (unrolled): for channels: acc += broadcast(x) × weights, without padding

Padding is not copied. A kernel axis whose data axis is not tiled keeps a test. A kernel axis whose data axis
is tiled is unrolled, and the loop over tiles is cut, so that smaller tiles compute the image's edge. If
groups or results have fewer channels than a vector, `schedules/kit/narrow_convolutions.py` writes the sketch.

The result may be read through `joined` axes (h // 2 and h % 2 of a transposed convolution in phases, groups
of channels). The tiles are then made of the reader's loops, because the joined axes are digits of its axes.
Source: Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD architectures" (SC
2018); phases: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, gcd, prod

from autotensor.base.target import Target
from autotensor.ir.visit import free_vars
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.sketch import Option
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import IterDef, StageOp
from schedules.cpu import PAGE, Cpu, cpu_of, spread_cycles
from schedules.kit.block_grain import parts_of, slowest
from schedules.kit.convolutions import ConvRoles, find_convolution, loop_names, uses
from schedules.kit.narrow_convolutions import few_channels, narrow_groups
from schedules.kit.parallel_region import divided
from schedules.kit.partial_sums import in_parts
from schedules.kit.shared_steps import host_and_anchor, in_vectors
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import lanes_of, second_cache, undecided
from schedules.kit.tiles import (
    SHORT,
    is_pushed_out,
    powers,
    singles,
    steps_written,
)
from schedules.registry import Extension
from schedules.rules.tiles.tile_cpu import tile_cpu

MAX_COLUMNS = 6  # most vectors next to each other in a tile
MAX_ROWS = 30
MAX_WRITTEN = 9  # most unrolled reduction steps if two row axes are tiled: a 3x3 window
SMALL = 3  # up to this extent of a window, an edge cuts off only one kernel column
MAX_WINDOW = 8  # largest extent of an unrolled kernel axis
EVEN = 1.05  # the work of the busiest core may be this many times the average


def convolution(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    """The sketch with several groups in a vector, if there is one; then sketches with vectors along the
    output channels or, for too few of these, along the input channels."""
    if target.kind != "llvm" or not undecided(state, stage):
        return
    conv = find_convolution(state, stage.op, lanes_of(stage.op, target))
    if conv is None:
        return
    grouped = narrow_groups(state, stage, conv, target)
    if grouped is not None:
        yield grouped
    if conv.vector.extent >= min(conv.lanes, 8):
        yield from _along_results(state, stage, conv, target)
    elif grouped is None and (lanes := few_channels(state, stage, conv, target)) is not None:
        yield lanes


def _along_results(state: State, stage: Stage, conv: ConvRoles, target: Target) -> Iterator[Extension]:
    """Sketches that skip padding, and then, if the axes are plain, sketches that copy it."""
    if conv.plain and not conv.pads and not streams(conv, target):
        return  # a matrix product
    heights = tuple(n for n in (1, 2) if n <= len(conv.rows) and _written(stage.op, conv, n) <= MAX_WRITTEN)
    made = [
        _ConvolutionSketch(state, stage, conv, target, tiled).build(columns_first)
        for tiled in heights
        for columns_first in _orders(conv, target)
    ]
    best = sorted(made, key=lambda m: m[0])  # a stable sort, so the first of equal sketches stays first
    yield from (e for _, e in best)
    if conv.plain:
        yield from tile_cpu(state, stage, target)


def _orders(conv: ConvRoles, target: Target) -> tuple[bool, bool]:
    """The two orders, with the better one first. True: column tiles are outside of rows, which is better for
    large weights."""
    large = panel_bytes(conv) * conv.vector.extent > cpu_of(target).l2_share * second_cache(target)
    return (True, False) if large else (False, True)


def _written(op: StageOp, conv: ConvRoles, tiled: int) -> int:
    """The number of unrolled reduction steps, if this many row axes are tiled."""
    if tiled == 1:
        return 1  # always offered
    names = {w for a in conv.rows[-tiled:] for w in conv.windows[a.name]}
    last = op.reduce_axes[-1]
    steps = prod(a.extent for a in op.reduce_axes if a.name in names)
    return steps * (last.extent if last.extent <= SHORT and last.name not in names else 1)


def tile_options(conv: ConvRoles, target: Target, tiled: int) -> tuple[Option, ...]:
    """(outer rows, rows, vectors, columns) of register tiles that need no spilling."""
    inner = conv.rows[-1].extent
    outer = conv.rows[-2].extent if tiled == 2 else 1
    widest = min(MAX_COLUMNS, ceil(conv.vector.extent / conv.lanes))
    out = []
    for nv in range(1, widest + 1):
        for th in range(min(2, outer), min(outer, 6) + 1):
            for tw in range(1, min(inner, MAX_ROWS) + 1):
                if th > 1 and tw < min(inner, 4):
                    continue
                if th * tw * nv + nv + (nv > 1) <= target.sum_registers and th * tw <= MAX_ROWS:
                    out.append((th, tw, nv, nv * conv.lanes))
    if not out:
        return ()
    best = max(o[0] * o[1] * o[2] for o in out)
    floor = min(best, max(4, target.vector_registers // 4))
    return tuple(o for o in out if o[0] * o[1] * o[2] >= floor)


def tile_cost(option: Option, conv: ConvRoles, tiled: int, target: Target) -> float:
    """The approximate cycles for a vector of the result and a reduction step: the cycles of issuing
    instructions, and the cycles that tails waste."""
    th, tw, nv, _ = option
    inner = conv.rows[-1].extent
    outer = conv.rows[-2].extent if tiled == 2 else 1
    columns = ceil(conv.vector.extent / (nv * conv.lanes))  # the last column of tiles is masked, not cut
    cpu = cpu_of(target)
    near = nv * conv.lanes * panel_bytes(conv) <= cpu.l2_share * second_cache(target)
    stream = nv * target.vector_bytes / (cpu.l2_rate if near else cpu.l3_rate)
    total, spread = 0.0, spread_cycles(target)
    for h in (th,) * (outer // th) + ((outer % th,) if outer % th else ()):
        for w, times in ((tw, inner // tw), (inner % tw, 1 if inner % tw else 0)):
            if h * w:
                busy = max(h * w * (nv + spread), nv + cpu.conv_row * h * w, stream, cpu.accumulators)
                total += times * (busy + cpu.conv_step)
    slow = cpu.conv_crowded if crowded(th * tw, conv.row_bytes, cpu) else 1.0
    slow *= cpu.partly if columns > 1 and streams(conv, target) else 1.0
    slow *= cpu.ragged if inner % tw or outer % th else 1.0
    slow /= cpu.pushed_out if is_pushed_out(th * tw, nv, conv.op.reduce_axes[-1].extent, target) else 1.0
    return slow * total * columns * conv.lanes / (outer * inner * conv.vector.extent)


def streams(conv: ConvRoles, target: Target) -> bool:
    """Whether data and results are read from and written to memory, while the weights are small."""
    moved = conv.data.buffer.bytes + conv.op.buffers[0].bytes
    cpu, cache = cpu_of(target), second_cache(target)
    return moved > cpu.streamed * cache and panel_bytes(conv) * conv.vector.extent <= cpu.stay * cache


def uses_data(conv: ConvRoles, axis: IterDef) -> bool:
    """Whether each value of the axis reads other data, as each group does."""
    return any(axis.var in free_vars(i) for i in conv.data.indices)


def panel_bytes(conv: ConvRoles) -> int:
    """The bytes of weights for one output channel of one group and phase."""
    parts = prod(a.extent for a in conv.others if uses(conv.weight, a)) * conv.vector.extent
    return int(conv.weight.load.buffer.bytes) // parts


def crowded(rows: int, row_bytes: int, cpu: Cpu) -> bool:
    """Whether this many rows, at this distance, compete for the lines of few sets of the nearest cache."""
    return rows * gcd(row_bytes, PAGE) > PAGE * cpu.free_ways


class _ConvolutionSketch(SketchWriter):
    """Writes one sketch. tiled: the number of row axes of a register tile."""

    def __init__(self, state: State, stage: Stage, conv: ConvRoles, target: Target, tiled: int) -> None:
        super().__init__()
        self.state, self.stage, self.conv, self.target = state, stage, conv, target
        self.tiled = conv.rows[-tiled:]

    def build(self, columns_first: bool) -> tuple[float, Extension]:
        """The sketch, and the cost of its default tile."""
        conv, anchor = self.conv, self.stage.name
        options = tile_options(conv, self.target, len(self.tiled))
        best = min(options, key=lambda o: (tile_cost(o, conv, len(self.tiled), self.target), o[2]))
        self.hole(f"{anchor}/tile", options, best)
        self.write(*(Inline(p.name) for p in conv.pads))
        host, inner, first = host_and_anchor(conv.host, anchor)
        self.write(*first)
        self._pack()
        at = self._tile_host(host, best, columns_first)
        self.write(ComputeAt(inner, host, at))
        self._tile_anchor(inner)
        done = (host, inner, anchor, *(p.name for p in conv.pads))
        cost = tile_cost(best, conv, len(self.tiled), self.target) * (
            1.0 if len(self.tiled) == 1 else cpu_of(self.target).more_code
        )
        return cost, self.extension(*done)

    def _pack(self) -> None:
        """Packs weights into panels of one tile's width. Inside a panel, dimensions are in the order of the
        reduction loops."""
        r = self.conv.weight
        axis_of = r.walkers
        along = next(n for n, a in axis_of.items() if a == self.conv.vector.name)
        rank = {a.name: n for n, a in enumerate(self.stage.op.reduce_axes)}
        others = sorted(
            (n for n in range(len(r.dims)) if n != along), key=lambda n: rank.get(axis_of.get(n, ""), -1)
        )
        outer = [str(n) for n in others if axis_of.get(n, "") not in rank]
        inner = [str(n) for n in others if axis_of.get(n, "") in rank]
        order = " ".join([*outer, f"{along}.0", *inner, f"{along}.1"])
        tile = Ref(f"{self.stage.name}/tile", 3)
        self.write(Layout(r.load.buffer.name, ((along, tile),), order))

    def _tile_host(self, host: str, best: Option, columns_first: bool) -> str:
        """Splits, orders and marks the host's loops. Returns the innermost loop around a tile."""
        conv, tile = self.conv, f"{self.stage.name}/tile"
        names, cuts = loop_names(conv, host)
        self.write(*cuts)
        v, first = names[conv.vector.name], conv.rows[0]
        rows = {a.name: names[a.name] for a in conv.rows}
        size = {a.name: Ref(tile, n + 2 - len(self.tiled)) for n, a in enumerate(self.tiled)}
        row_block, col_block = self._blocks(best, columns_first)
        inner_rows, tiles = [], []
        for a in conv.rows:
            parts = ([row_block] if a is first else []) + ([size[a.name]] if a.name in size else [])
            if parts:
                self.split(host, rows[a.name], *parts)
                last = len(parts)
                tiles += [f"{rows[a.name]}.{last}"] if a.name in size else []
                inner_rows.append(f"{rows[a.name]}.{last - (a.name in size)}")
            else:
                inner_rows.append(rows[a.name])
        self.split(host, v, col_block, Ref(tile, 2), conv.lanes)
        written = [names[p] for a in self.tiled for p in conv.phases[a.name] if p in names]
        between = [names[a.name] for a in self._groups_in_rows(columns_first) if a.name in names]
        apart = [*written, *between]
        others = [names[a.name] for a in conv.others if a.name in names and names[a.name] not in apart]
        outer_row = f"{rows[first.name]}.0"
        outside = [f"{v}.0", *others, outer_row] if columns_first else [*others, outer_row, f"{v}.0"]
        outside = [*conv.unseen(self.state.stage(host).op), *outside]
        # small weights stay in the cache, so a row is finished before the next one is read
        finished = [*inner_rows[:-1], *between, f"{v}.1", inner_rows[-1]]
        inside = [f"{v}.1", *inner_rows] if columns_first else finished
        self.write(Reorder(host, (*outside, *written, *inside, *tiles, f"{v}.2", f"{v}.3")))
        outer = self.fuse(host, outside)
        self.write(*in_vectors(host, *written, *tiles, f"{v}.2", f"{v}.3"))
        self.write(*divided(host, outer, self.stage.op, conv.lanes, self.target))
        return inside[-1]

    def _groups_in_rows(self, columns_first: bool) -> tuple[IterDef, ...]:
        """The groups that are computed row by row. A group reads a part of each pixel, so if the data come
        from memory, a row is finished for all groups before the next one is read."""
        conv, near = self.conv, second_cache(self.target)
        stay = conv.weight.load.buffer.bytes <= near  # every row reads the weights of all groups
        if columns_first or len(self.tiled) == len(conv.rows) or not (stay and streams(conv, self.target)):
            return ()
        moving = {a for axes in conv.phases.values() for a in axes}
        return tuple(a for a in conv.others if a.extent > 1 and a.name not in moving and uses_data(conv, a))

    def _blocks(self, best: Option, columns_first: bool) -> tuple[Ref, Ref]:
        """The numbers of rows (or row tiles) and of column tiles in a parallel block."""
        conv, anchor = self.conv, self.stage.name
        first, cores = conv.rows[0], self.target.num_cores
        around = prod(
            a.extent
            for a in conv.others
            if all(a.name not in conv.phases[r.name] for r in self.tiled)
            and a not in self._groups_in_rows(columns_first)
        )
        height = best[2 - len(self.tiled)] if len(self.tiled) == len(conv.rows) else 1
        row_tiles, columns = ceil(first.extent / height), ceil(conv.vector.extent / best[3])
        row_choices, col_choices = _shares(row_tiles), _shares(columns)

        def waste(rows: int, cols: int) -> tuple[float, int]:
            """The work of the slowest core divided by its fair share, and the distance from four chunks for
            each core."""
            sizes = parts_of(columns, cols), parts_of(row_tiles, rows)
            outer, inner = sizes if columns_first else sizes[::-1]
            chunks = [x * y for x in outer for y in inner]
            if not columns_first:
                chunks = chunks * around
            else:
                chunks = [x * y for x in outer for _ in range(around) for y in inner]
            return max(slowest(chunks, cores), EVEN), abs(len(chunks) - 4 * cores)

        if columns_first:  # few columns at a time, and as many rows as the cores allow
            rows, cols = min(((r, 1) for r in row_choices), key=lambda p: (waste(*p)[0], -p[0]))
        else:
            pairs = [(r, c) for c in col_choices for r in row_choices]
            rows, cols = min(pairs, key=lambda p: (waste(*p)[0], -p[1], waste(*p)[1]))
        self.hole(f"{anchor}/columns", singles(col_choices), (cols,))
        self.hole(f"{anchor}/rows", singles(row_choices), (rows,))
        return Ref(f"{anchor}/rows"), Ref(f"{anchor}/columns")

    def _tile_anchor(self, inner: str) -> None:
        """Puts reduction loops outside and an unrolled register tile inside."""
        op, conv = self.stage.op, self.conv
        v = conv.vector.name
        self.split(inner, v, conv.lanes)
        # if only one axis without phases is tiled, lowering cuts the loops
        alone = len(self.tiled) == 1 and not conv.phases[self.tiled[0].name]
        padded = [w for a in self.tiled for w in conv.windows[a.name]] if conv.skips and not alone else []
        cut = any(a.extent > SMALL for a in op.reduce_axes if a.name in conv.windows[self.tiled[-1].name])
        parts = in_parts(inner, op)
        self.write(*parts.cut)
        order = list(parts.loops[:-1])
        written = [a.name for a in op.reduce_axes if a.name in padded and a.extent <= MAX_WINDOW]
        last, extent = parts.loops[-1], parts.inner
        if last in written:
            order.append(last)
        else:
            options, short = steps_written(extent, self.target)
            if written:  # next to an unrolled window, equal loads stay in registers, so tiles spill
                options = tuple(o for o in options if o <= 2)
            apart = cut and extent > cpu_of(self.target).short_cut
            default = 1 if written or apart else short
            self.hole(f"{self.stage.name}/unroll", singles(options), (default,))
            self.split(inner, last, Ref(f"{self.stage.name}/unroll"))
            order += [f"{last}.0", f"{last}.1"]
            written.append(f"{last}.1")
        spatial = [a.name for a in op.axes[:-1]]
        self.write(Reorder(inner, (*order, *spatial, f"{v}.0", f"{v}.1")))
        self.write(*in_vectors(inner, *written, *spatial, f"{v}.0", f"{v}.1"))
        if order:
            self.write(Pragma(inner, order[0], "skip_zeros", "1"))
        self.write(*parts.mark)


def _shares(n: int) -> tuple[int, ...]:
    """The sizes of the parts if n is cut into 1, 2, 4, … nearly equal parts, largest first."""
    return tuple(dict.fromkeys(ceil(n / k) for k in powers(n)))
