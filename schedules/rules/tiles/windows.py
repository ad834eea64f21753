"""Windows that slide over rows of vectors: depthwise convolution, pooling.

    parallel over (batch, row tiles, channel blocks), in this order; for few rows, channel blocks first
      for column tiles / vectors of channels of the block
        acc[rows, columns] in registers
        for window rows, rows, window columns, columns:  acc += x[…] × w[…]         fully unrolled
        epilogue: bias, activation; store

No operand is constant along the vector, so nothing is broadcast. Each loaded vector is used for all rows and
columns of the tile whose windows contain it. Padding is not copied: lowering skips it (`skip`), and cuts the
loops so that the interior runs without tests (`partition`).

Cores divide rows, as in the products before and after a window, so that a core finds its own results in its
cache. A map of few rows is divided by channels, because products with large weights are divided in this way,
too.
Source: Zhang, Lo, Lu, "High performance depthwise and pointwise convolutions on mobile devices" (AAAI 2020),
for the reuse of rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.sketch import Hole, Option
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import IterDef, StageOp
from schedules.cpu import PAGE, cpu_of
from schedules.kit.block_grain import parts_of, slowest
from schedules.kit.operand_roles import padding_in_front
from schedules.kit.parallel_region import divided
from schedules.kit.shared_steps import host_and_anchor, in_vectors, names_in
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import Read, constants, epilogue, lanes_of, reads, undecided
from schedules.kit.tiles import powers, singles
from schedules.registry import Extension

EVEN = 0.08  # share of the time that cores may wait for the last core
WIDEST = 16  # most columns of a tile
ROWS_A_CORE = 2  # tiles of rows that each core needs, if cores are to divide rows
TALLEST = 3  # most rows of a tile; more would save few loads, and small maps would have too few blocks
MAX_WINDOW = 64  # most elements of a window; the unrolled code of larger ones would be too large


@dataclass(frozen=True, slots=True)
class Window:
    """The role of each axis."""

    vector: IterDef
    rows: tuple[IterDef, ...]  # spatial axes along which a window slides; the last one or two are tiled
    over: tuple[IterDef, ...]  # the reduce axis that slides along each of `rows`
    others: tuple[IterDef, ...]  # spatial axes without a window
    free: tuple[IterDef, ...]  # reduce axes that do not slide
    packed: tuple[Read, ...]  # constant operands
    strides: tuple[int, ...]  # the strides of the windows, one for each of `rows`
    lanes: int
    crowded: bool  # neighbouring columns of an operand compete for two sets of the nearest cache
    results: int = 1  # sums of each element

    @property
    def down(self) -> tuple[int, int, int]:
        """Extent, window and stride of the outer tiled axis; all are 1 if there is none."""
        if len(self.rows) < 2:
            return 1, 1, 1
        return self.rows[-2].extent, self.over[-2].extent, self.strides[-2]

    @property
    def along(self) -> tuple[int, int, int]:
        """Extent, window and stride of the inner tiled axis."""
        return self.rows[-1].extent, self.over[-1].extent, self.strides[-1]


def windows(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if target.kind != "llvm" or not op.is_reduction or not undecided(state, stage):
        return ()
    found = find_window(state, op, lanes_of(op, target))
    if found is None:
        return ()
    by_rows = _divides_rows(found, target)
    return tuple(
        _WindowsSketch(state, stage, found, target, rows_first).build(across)
        for across in (True, False)
        for rows_first in (by_rows, not by_rows)
        if rows_first is by_rows or ceil(found.vector.extent / found.lanes) > 1
    )


def find_window(state: State, op: StageOp, lanes: int) -> Window | None:
    """The roles of the axes; None if the stage is not a window over vectors."""
    if len(op.axes) < 2 or prod(a.extent for a in op.reduce_axes) > MAX_WINDOW:
        return None
    vector = op.axes[-1]
    packed, known = [], constants(state)
    pairs: dict[str, tuple[str, int]] = {}  # spatial axis → (its reduce axis, stride)
    for r in reads(op):
        if not r.uses(vector.name) or not all(d is not None and d.is_sum for d in r.dims):
            return None
        if r.load.buffer.name in known and _is_plain(r):
            packed.append(r)
            continue
        if r.strides.get(vector.name) != 1:
            return None
        for d in r.dims:
            assert d is not None
            spatial = [a.name for a in op.axes if a.name in d.steps]
            sliding = [a.name for a in op.reduce_axes if a.name in d.steps]
            if len(spatial) == len(sliding) == 1 and spatial[0] != vector.name:
                pairs[spatial[0]] = (sliding[0], d.steps[spatial[0]])
    if not pairs:
        return None
    by_name = {a.name: a for a in op.reduce_axes}
    rows = tuple(a for a in op.axes[:-1] if a.name in pairs)
    over = tuple(by_name[pairs[a.name][0]] for a in rows)
    if len(set(over)) < len(over):
        return None
    others = tuple(a for a in op.axes[:-1] if a not in rows)
    free = tuple(a for a in op.reduce_axes if a not in over)
    strides = tuple(pairs[a.name][1] for a in rows)
    crowded = any(
        r.strides.get(over[-1].name, 1) * r.load.buffer.dtype.bytes % (PAGE // 2) == 0
        for r in reads(op)
        if r not in packed
    )
    return Window(vector, rows, over, others, free, tuple(packed), strides, lanes, crowded, len(op.buffers))


def _is_plain(r: Read) -> bool:
    """Whether each index is one axis or 0."""
    return all(d is not None and (d.axis or not (d.constant or d.steps)) for d in r.dims)


def tile_options(w: Window, target: Target, across: bool = True) -> tuple[Option, ...]:
    """The (rows, columns) of register tiles that fit into registers together with inputs and weights."""
    registers, most = target.sum_registers, cpu_of(target).window_held
    (_, kh, down), (_, kw, along) = w.down, w.along

    def fits(rows: int, columns: int) -> bool:
        held = vectors_held((rows, columns), (kh, kw), (down, along), len(w.packed), across, w.results)
        return w.results * rows * columns < registers and held <= most

    return tuple(
        (th, tw)
        for th in range(1, _most(*w.down, TALLEST) + 1)
        for tw in range(1, _most(*w.along, WIDEST) + 1)
        if (th, tw) == (1, 1) or fits(th, tw)
    )


def _most(extent: int, window: int, stride: int, limit: int) -> int:
    """The largest tile along an axis. It is 1 if windows do not overlap: then nothing is loaded twice, and
    reading memory in its own order is best (pooling 2x2/2 of 224x224x64 is 1.2 to 1.4 x as fast as with 4 at
    a time, on one core 3 x; smaller maps are equally fast; Zen 4, 2026-11)."""
    return min(extent, limit) if stride < window else 1


def tile_cost(option: Option, w: Window, target: Target) -> float:
    """The approximate cycles for one vector of channels: operations, loads that add to them, and spills."""
    (rows, kh, down), (columns, kw, along) = w.down, w.along
    registers, cpu = target.sum_registers, cpu_of(target)
    room = (cpu.window_crowded if w.crowded else cpu.window_share) * registers
    total = 0.0
    for h, times in _pieces(rows, option[0]):
        for v, more in _pieces(columns, option[1]):
            row = (v - 1) * along + kw
            lines = ((h - 1) * down + kh) * row
            loads = lines + kh * kw * len(w.packed)
            apart = cpu.window_apart * max(0, lines - cpu.window_lines) if along > 1 else 0.0
            weights = kw * len(w.packed)
            sums = w.results * h * v
            spilled = max(0.0, sums + row + weights - room, _held(h, v, row, w) + weights - registers - 1)
            felt = cpu.window_load * loads + cpu.window_spill * spilled + apart + cpu.window_tile
            total += times * more * (sums * kh * kw + felt)
    return total


def _held(rows: int, columns: int, inputs: int, w: Window) -> int:
    """The vectors that a tile has in registers at the same time: sums, and inputs that are needed again for
    other rows.

    Each input is loaded once, for the first window row that needs it, and is kept until the last one (one
    operand of an operation may stay in memory). 3 x 4 sums of a 3x3/2 window hold 39 vectors, of which 16
    went to the stack (max_pool2d 112x112x64, Xeon, 2026-11: 1.07 x the time of 3 x 3).
    """
    waiting = rows - 1 if w.down[2] < w.down[1] else 0
    return w.results * rows * columns + (1 + waiting) * inputs


@lru_cache(maxsize=1024)
def vectors_held(
    tile: tuple[int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    weights: int,
    across: bool,
    results: int = 1,
) -> int:
    """The most vectors that a tile has in registers at the same time: sums, and operands between first and
    last use.

    If `across` is False, the next tile has the same weights, and code generation reads all of them before the
    loop.

    >>> vectors_held((3, 3), (3, 3), (2, 2), weights=1, across=True)
    28
    >>> vectors_held((3, 4), (3, 3), (2, 2), weights=1, across=True)
    36
    """
    uses: dict[tuple[str, int, int], list[int]] = {}
    steps = product(range(window[0]), range(tile[0]), range(window[1]), range(tile[1]))
    for at, (i, row, j, column) in enumerate(steps):
        uses.setdefault(("input", row * strides[0] + i, column * strides[1] + j), []).append(at)
        if weights and across:
            uses.setdefault(("weight", i, j), []).append(at)
    change = [0] * (prod(window) * prod(tile))
    for times in uses.values():  # a value that is used once stays in memory
        change[times[0]] += 1
        change[times[-1]] -= 1
    return results * prod(tile) + max(accumulate(change)) + (0 if across else weights * prod(window))


def _pieces(extent: int, tile: int) -> tuple[tuple[int, int], ...]:
    """Pairs (size, number of tiles with this size): the whole tiles and the tail."""
    found = ((tile, extent // tile), (extent % tile, 1))
    return tuple((size, times) for size, times in found if size and times)


def best_tile(w: Window, target: Target, across: bool = True) -> Option:
    """The tile that is taken without measuring."""
    return min(tile_options(w, target, across), key=lambda o: tile_cost(o, w, target))


def _divides_rows(w: Window, target: Target) -> bool:
    """Whether there are enough rows for all cores."""
    tiles = ceil(w.down[0] / best_tile(w, target)[0])
    return tiles * prod(a.extent for a in w.rows[:-2]) >= ROWS_A_CORE * target.num_cores


class _WindowsSketch(SketchWriter):
    """Writes one sketch. rows_first: parallel blocks begin with rows; otherwise with channels."""

    def __init__(self, state: State, stage: Stage, window: Window, target: Target, rows_first: bool) -> None:
        super().__init__()
        self.state, self.stage, self.window, self.target = state, stage, window, target
        self.rows_first = rows_first

    def build(self, across: bool) -> Extension:
        """The sketch. across: all channels of a tile come before the next tile; otherwise all tiles of a row
        are computed for each vector of channels."""
        anchor = self.stage.name
        pads = padding_in_front(self.state, self.stage.op)
        self.write(*(Inline(p.name) for p in pads))
        host, inner, first = host_and_anchor(epilogue(self.state, self.stage), anchor)
        self.write(*first)
        self._pack()
        self.write(ComputeAt(inner, host, self._tile_host(host, across)))
        self._tile_anchor(inner)
        return self.extension(host, inner, anchor, *(p.name for p in pads))

    def _pack(self) -> None:
        """Packs the weights of one vector of channels next to each other."""
        w = self.window
        for r in w.packed:
            along = next(n for n, d in enumerate(r.dims) if d is not None and w.vector.name in d.steps)
            rest = [str(n) for n in range(len(r.dims)) if n != along]
            order = " ".join([f"{along}.0", *rest, f"{along}.1"])
            self.write(Layout(r.load.buffer.name, ((along, w.lanes),), order))

    def _tile_host(self, host: str, across: bool) -> str:
        """Splits, orders and marks the host's loops. Returns the innermost loop around a tile."""
        w, anchor = self.window, self.stage.name
        best = best_tile(w, self.target, across)
        tile = Hole(f"{anchor}/tile", tile_options(w, self.target, across), best)
        block = self._channel_block(best)
        self.holes.extend((tile, block))
        names = names_in(self.state.stage(host).op, self.stage.op)
        v, columns = names[w.vector.name], names[w.rows[-1].name]
        rows = [names[a.name] for a in w.rows[:-2]]
        tiles = [f"{columns}.1"]
        self.split(host, v, Ref(block.name), w.lanes)
        self.split(host, columns, Ref(tile.name, 1))
        if len(w.rows) > 1:
            row = names[w.rows[-2].name]
            self.split(host, row, Ref(tile.name, 0))
            rows.append(f"{row}.0")
            tiles.insert(0, f"{row}.1")
        outside = [
            *(names[a.name] for a in w.others),
            *((*rows, f"{v}.0") if self.rows_first else (f"{v}.0", *rows)),
        ]
        inside = [f"{columns}.0", f"{v}.1"] if across else [f"{v}.1", f"{columns}.0"]
        self.write(Reorder(host, (*outside, *inside, *tiles, f"{v}.2")))
        outer = self.fuse(host, outside)
        self.write(*in_vectors(host, *tiles, f"{v}.2"))
        self.write(*divided(host, outer, self.stage.op, w.lanes, self.target))
        return inside[-1]

    def _channel_block(self, best: Option) -> Hole:
        """The hole for the vectors of channels in a parallel block. By default, every core has an equal share
        of the work."""
        w = self.window
        vectors = ceil(w.vector.extent / w.lanes)
        rows = parts_of(w.down[0], best[0])
        around = prod(a.extent for a in w.rows[:-2])
        choices = powers(vectors)
        longest = cpu_of(self.target).window_longest
        short = tuple(c for c in choices if c <= longest)

        def waste(block: int) -> float:
            channels = parts_of(vectors, block)
            if self.rows_first:
                blocks = [c * h for h in rows * around for c in channels]
            else:
                blocks = [c * h for c in channels for h in rows * around]
            blocks *= prod(a.extent for a in w.others)
            return max(1.0 + EVEN, slowest(blocks, self.target.num_cores))

        return Hole(f"{self.stage.name}/channels", singles(choices), (min(reversed(short), key=waste),))

    def _tile_anchor(self, inner: str) -> None:
        """Puts window rows around rows, and window columns around columns, so that neighbours use a loaded
        row at once."""
        w = self.window
        v = w.vector.name
        self.split(inner, v, w.lanes)
        pairs = zip(w.over, w.rows, strict=True)
        order = [a.name for a in (*w.free, *(x for pair in pairs for x in pair), *w.others)]
        self.write(Reorder(inner, (*order, f"{v}.0", f"{v}.1")))
        self.write(*in_vectors(inner, *order, f"{v}.0", f"{v}.1"))
        self.write(Pragma(inner, order[0], "skip_zeros", "1"))
