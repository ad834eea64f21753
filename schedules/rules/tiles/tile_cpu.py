"""Register micro-kernel tiling: the shape that fast CPU libraries have.

For a reduction with a vector axis `v` (its outputs contiguous) and row axes (along which vector operands are
reused):

    parallel over blocks of (rows, columns)
      for column tiles / row tiles of the block (either order)
        acc[rows, nv*lanes] in registers
        for reduction loops: acc += broadcast(scalar operand) × vector operand      fully unrolled
        epilogue: bias, residual, activation; store

Constant operands that vary along `v` are packed into panels of one tile's width, in the order of the
reduction loops. Large constants are packed into panels of one vector's width, which are read at the same
time. For other operands, a panel may be copied for each column of tiles (`operand_copies.py`), and the
reduction may be cut so that the panel's rows stay in the cache (`kit/blocked_reduction.py`). Tiles need not
divide the result: tails run as smaller kernels or under masks. Padding before the product is copied for each
block, or beforehand.
Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (TOMS 2008), without
packing of A; Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD architectures"
(SC 2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.primitives.tensorize import Tensorize
from autotensor.schedule.sketch import Option
from autotensor.schedule.state import Ref, Stage, State
from autotensor.schedule.step import Step
from schedules.cpu import PAGE, cpu_of
from schedules.kit.block_grain import block_of, cuts
from schedules.kit.blocked_reduction import blocked_forms
from schedules.kit.body_work import joins_extremes
from schedules.kit.dot_uses import DotUse
from schedules.kit.operand_copies import (
    Supply,
    beyond_caches,
    can_be_copied,
    copy_steps,
    crosswise,
    is_far,
    supply,
    turn_steps,
)
from schedules.kit.operand_roles import Roles, assign_roles, dimension, distance, padding_in_front
from schedules.kit.parallel_region import divided, divided_as_one
from schedules.kit.partial_sums import ROW_PART, Parts, at_once, in_parts
from schedules.kit.shared_steps import host_and_anchor, in_vectors, names_in
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import (
    Read,
    epilogue,
    read_by_choice,
    second_cache,
    terms_left_out,
    untouched,
)
from schedules.kit.tiles import best_tile, column_lanes, singles, steps_written, tiles_of
from schedules.placement.blocks import Front, front_of
from schedules.registry import Extension

# least unrolled steps for minima and maxima (min-plus and L-infinity products are 1.15 to 1.2 x as fast as
# with one step; Zen 4, 2026-11)
STEPS_OF_EXTREMES = 4


@dataclass(frozen=True, slots=True)
class _Form:
    """The structural choices of one sketch."""

    columns_first: bool  # in the parallel blocks, loops over columns are outside of loops over rows
    rows_inside: bool  # row tiles run inside column tiles
    pad_at_block: bool = False
    copied: bool = False  # panels of direct operands are copied; needs `rows_inside`
    turned: bool = False  # standing operands that are contiguous along rows are transposed for each block
    front: Front | None = None  # earlier stages that are computed for each block, which holds all columns


def tile_cpu(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    op = stage.op
    if target.kind != "llvm" or not op.is_reduction or not untouched(stage):
        return
    roles = assign_roles(state, op, column_lanes(op, target), target)
    if roles is not None:
        yield from tiled(state, stage, roles, target)


def tiled(
    state: State, stage: Stage, roles: Roles, target: Target, use: DotUse | None = None
) -> Iterator[Extension]:
    """The sketches for these roles. use: a dot instruction for the product."""
    op = stage.op
    pads = padding_in_front(state, op)
    way = supply(op, roles, target) if not pads else Supply.DIRECT
    if way is Supply.BLOCKED and read_by_choice(state, stage):
        way = Supply.DIRECT  # parts of sums are computed for all positions, even unread ones
    across = crosswise(op, roles)
    far = any(is_far(op, roles, r, target) for r in across)
    forms = _forms(roles, way, bool(pads), bool(across), far, _by_rows(state, stage, roles, target))
    front = None if pads or roles.at_once > 1 else front_of(state, stage, roles, target)
    if front is not None:
        at_block = [_Form(True, rows_inside, front=front) for rows_inside in (True, False)]
        forms = [*at_block, *forms] if front.seems_faster else [*forms[:1], *at_block, *forms[1:]]
    whole = (_TileSketch(state, stage, roles, target, pads, use).build(form) for form in forms)
    cut = () if pads or use is not None else blocked_forms(state, stage, roles, target)
    made: set[Extension] = set()
    for extension in chain(cut, whole) if way is Supply.BLOCKED else chain(whole, cut):
        if extension not in made:
            made.add(extension)
            yield extension


def _forms(roles: Roles, way: Supply, padded: bool, across: bool, far: bool, along: bool) -> list[_Form]:
    """All forms, the probably best first.

    across: a standing operand is contiguous along the rows. far: this operand is also large. along: it is
    better to write each row of the result from beginning to end.
    """
    plain = [
        _Form(columns_first, rows_inside, pad_at_block)
        for columns_first in (True, False)
        for rows_inside in ((True,) if roles.turned else (True, False))
        for pad_at_block in ((True, False) if padded else (False,))
    ]
    if padded or not roles.rows:
        return plain
    copied = [_Form(True, True, copied=True)] if roles.direct and can_be_copied(roles) else []
    turned = [_Form(False, True, copied=bool(roles.direct) and way is Supply.COPIED, turned=True)]
    if not across:
        turned = []
    if along:
        plain = [*(f for f in plain if not f.rows_inside), *(f for f in plain if f.rows_inside)]
    first = [*(turned if far else ()), *(copied if way is Supply.COPIED else ())]
    return list(dict.fromkeys((*first, *plain, *copied, *turned)))


def _by_rows(state: State, stage: Stage, roles: Roles, target: Target) -> bool:
    """Whether it is better to write each row of the result from beginning to end than a panel's width at a
    time.

    This holds for a product of few steps with rows of at least a page. It also holds if the results, together
    with the arrays that an epilogue reads, are larger than L2 and larger than the standing operand's rows,
    because whole rows are moved at the speed of memory. The panels are then read once for every tile of rows,
    so they must stay in L2. (Pixels x steps x columns on a Xeon with 2 MiB of L2, 2026-11: 12544x16x96 1.5 x
    as fast, 3136x64x256 with a shortcut 1.35 x, 196x256x1024 1.15 x; 3136x256x64 1.0 x.)
    """
    op, cpu, l2 = stage.op, cpu_of(target), second_cache(target)
    depth = prod(a.extent for a in op.reduce_axes)
    if depth <= cpu.shallow and roles.columns * op.buffers[0].dtype.bytes >= PAGE:
        return True
    host = epilogue(state, stage) or stage
    beside = [b for b in host.op.reads() if prod(b.shape) == op.points() and b not in op.buffers]
    results = sum(int(b.bytes) for b in (*host.op.buffers, *(beside if host is not stage else ())))
    rows = sum(int(r.load.buffer.bytes) for r in roles.standing)
    large = results > max(rows, cpu.large * l2 * target.num_cores)
    return large and 0 < _panel_bytes(roles) <= cpu.l2_share * l2


def _panel_bytes(roles: Roles) -> int:
    """The bytes of all columns of the moving operands."""
    return sum(int(r.load.buffer.bytes) for r in (*roles.packed, *roles.direct))


class _TileSketch(SketchWriter):
    """Writes one sketch for an anchor stage."""

    def __init__(
        self,
        state: State,
        stage: Stage,
        roles: Roles,
        target: Target,
        pads: tuple[Stage, ...],
        use: DotUse | None = None,
    ) -> None:
        super().__init__()
        self.use = use
        self.state, self.stage, self.roles, self.target, self.pads = state, stage, roles, target, pads
        # Data select one of several panels. Neighbours often select the same panel, so they share it.
        self.looked_up = any(r.looked_up for r in roles.packed)

    def build(self, form: _Form) -> Extension:
        roles, anchor = self.roles, self.stage.name
        tile = f"{anchor}/tile"
        options, best = tiles_of(roles, self.target), best_tile(roles, self.target)
        if form.front is not None:
            options, best = form.front.tiles
        self.hole(tile, options, best)
        host, inner, first = host_and_anchor(epilogue(self.state, self.stage), anchor)
        self.write(*first)
        self._pack(tile)
        block, column, last = self._tile_host(host, tile, best, form)
        self.write(ComputeAt(inner, host, last))
        done = [host, inner, anchor]
        for name, steps in self._copies(form, inner, host, block, column):
            self.write(*steps)
            done.append(name)
        self._tile_anchor(inner)
        for pad in self.pads:
            done.append(pad.name)
            self._copy_padding(pad, host, block if form.pad_at_block else None)
        found = self.extension(*done)
        if form.front is None:
            return found
        places = tuple(ComputeAt(op.name, host, block) for op in form.front.stages)
        return replace(found, inside=places, stays=tuple(op.name for op in form.front.handed_on))

    def _copies(
        self, form: _Form, inner: str, host: str, block: str, column: str
    ) -> Iterator[tuple[str, list[Step]]]:
        """The names and steps of copies inside the host's loops, one for each tensor: where a tensor is both
        operands, all its reads go to the copy."""
        copied = set()
        for r, copy in self._copies_of_operands(form, inner, host, block, column):
            if r.load.buffer not in copied:
                copied.add(r.load.buffer)
                yield copy

    def _copies_of_operands(
        self, form: _Form, inner: str, host: str, block: str, column: str
    ) -> Iterator[tuple[Read, tuple[str, list[Step]]]]:
        roles, op = self.roles, self.stage.op
        if form.turned:
            depth = op.reduce_axes[0]
            for r in crosswise(op, roles):
                row = ceil(depth.extent / roles.lanes) * roles.lanes * r.load.buffer.dtype.bytes
                pad = roles.lanes if row % PAGE == 0 else 0
                yield r, turn_steps(r, depth.name, roles.rows[-1].name, roles, inner, host, block, pad)
        for r in roles.turned:
            yield r, turn_steps(r, roles.vector.name, op.reduce_axes[0].name, roles, inner, host, column)
        if form.copied:
            for r in roles.direct:
                yield r, copy_steps(r, roles, inner, host, column)

    def _pack(self, tile: str) -> None:
        """Packs operands into panels of one tile's width. Inside a panel, dimensions are in the order of the
        reduction loops.

        An operand that comes from beyond L2 and is read once has panels of one vector's width. A tile then
        reads one stream for each of its vectors, and the processor fetches ahead in each stream (Sapphire
        Rapids, 2026-11: one row times 11008 x 4096 is 1.5 x as fast, 16 rows 1.4 x; prefetch instructions add
        nothing).
        """
        roles = self.roles
        for r in roles.packed:
            axis_of = r.walkers
            along = next(n for n, a in axis_of.items() if a == roles.vector.name)
            rank = {a.name: n for n, a in enumerate(self.stage.op.reduce_axes)}
            rest = sorted(
                (n for n in range(len(r.dims)) if n != along), key=lambda n: rank.get(axis_of.get(n, ""), -1)
            )
            far = is_far(self.stage.op, roles, r, self.target)
            once = far and self._one_row_of_tiles() and not self.looked_up and roles.at_once == 1
            width = roles.lanes if once else Ref(tile, 3)
            cuts: tuple[tuple[int, int | Ref], ...] = ((along, width),)
            outer, inner = [*map(str, rest)], [f"{along}.1"]
            if self.use is not None:
                of = dimension(r, self.use.axis)
                assert of is not None, "`dot_uses` gives only operands that have it"
                cuts = (*cuts, (of, self.use.dot.group))
                outer = [*(d for d in outer if d != str(of)), f"{of}.0"]
                inner = [*inner, f"{of}.1"]
            self.write(Layout(r.load.buffer.name, cuts, " ".join([f"{along}.0", *outer, *inner])))

    def _tile_host(self, host: str, tile: str, best: Option, form: _Form) -> tuple[str, str, str]:
        """Splits, orders and marks the host's loops. Returns the loop of a block, the loop of a column of
        tiles, and the innermost loop around a tile."""
        roles = self.roles
        names = names_in(self.state.stage(host).op, self.stage.op)
        v = names[roles.vector.name]
        rows = [names[a.name] for a in roles.rows]
        row_block, col_block = self._block_holes(best, form)
        inner_rows: list[str] = []
        tiles: list[str] = []
        for n, axis in enumerate(rows):
            component = 1 if n == len(rows) - 1 else 0
            if n == 0 and form.front is not None:  # a block of rows, which is cut into tiles and a rest
                self.split(host, axis, Ref(row_block))
                self.split(host, f"{axis}.1", Ref(tile, component))
                inner_rows, tiles = [f"{axis}.1.0"], [f"{axis}.1.1"]
            elif n == 0:  # a block of tiles
                self.split(host, axis, Ref(row_block), Ref(tile, component))
                inner_rows, tiles = [f"{axis}.1"], [f"{axis}.2"]
            else:
                self.split(host, axis, Ref(tile, component))
                inner_rows, tiles = [*inner_rows, f"{axis}.0"], [*tiles, f"{axis}.1"]
        block = [] if col_block is None else [Ref(col_block)]
        self.split(host, v, *block, Ref(tile, 2), roles.lanes)
        *columns, column, vectors, vector = [f"{v}.{n}" for n in range(3 + len(block))]
        outer_rows = [f"{rows[0]}.0"] if rows else []
        others = [names[a.name] for a in roles.others]
        outside = [*others, *columns, *outer_rows] if form.columns_first else [*others, *outer_rows, *columns]
        if form.columns_first and self.looked_up:
            outside = [*columns, *others, *outer_rows]
        inside = [column, *inner_rows] if form.rows_inside else [*inner_rows, column]
        self.write(Reorder(host, (*outside, *inside, *tiles, vectors, vector)))
        outer = self.fuse(host, outside)
        self.write(*in_vectors(host, *tiles, vectors, vector))
        self.write(*divided(host, outer, self.stage.op, roles.lanes, self.target))
        return outer, column, inside[-1]

    def _block_holes(self, best: Option, form: _Form) -> tuple[str, str | None]:
        """The holes for the numbers of row tiles and column tiles in a block, or of its rows if it holds all
        columns."""
        roles, anchor = self.roles, self.stage.name
        columns = ceil(roles.columns / best[3])
        cores = self.target.num_cores
        others = prod(a.extent for a in roles.others)
        col, row = f"{anchor}/columns", f"{anchor}/rows"
        tall = best[0] if len(roles.rows) == 2 else best[1]
        rows = ceil(roles.rows[0].extent / tall) if roles.rows else 1
        if form.front is not None:
            self.hole(row, singles(form.front.sizes), (form.front.best,))
            return row, None
        height = best[0] * best[1] * max(1, ceil(roles.inner / best[1]) if len(roles.rows) == 2 else 1)
        cpu = cpu_of(self.target)
        stream = cpu.memory_cost if beyond_caches(self.stage.op, roles, self.target) else cpu.stream_cost
        copies = cpu.copy_cost if form.copied or roles.turned else stream
        again = cpu.pad_cost if form.pad_at_block else cpu.copy_cost / best[2] if form.turned else 0.0
        fits = 1 << 30 if form.copied or form.turned or roles.turned else self._rows_in_l2() // tall
        shared = form.columns_first and cores > 1 and others == 1
        apart = cpu.apart if shared and self._panels_stay() else 0.0
        r, c = block_of(rows, columns, others, cores, copies / height, again, max(1, fits), apart, cpu.spill)
        c = 1 if self.looked_up else c
        self.hole(col, singles(cuts(columns, cores)), (c,))
        if not roles.rows:
            return row, col
        self.hole(row, singles(cuts(rows, cores)), (r,))
        return row, col

    def _panels_stay(self) -> bool:
        """Whether all columns of the moving operands fit into half of a core's L2, and have fewer bytes than
        the rows and results.

        Then it is better that cores divide the rows, as in the kernels before and after this one: a core's
        results are in its own cache, and need not be fetched from another core. Larger panels would cost each
        core more than fetching the results of other cores (49 rows, 160 steps, 960 columns: 1.2 x, Xeon,
        2026-11).
        """
        rows = sum(int(r.load.buffer.bytes) for r in self.roles.standing)
        results = sum(int(b.bytes) for b in self.stage.op.buffers)
        return 0 < _panel_bytes(self.roles) <= min(self._kept(), rows + results)

    def _one_row_of_tiles(self) -> bool:
        """Whether all rows of the result fit into one tile, so that each panel is read once."""
        roles, tile = self.roles, best_tile(self.roles, self.target)
        return roles.outer <= tile[0] and roles.inner <= tile[1]

    def _rows_in_l2(self) -> int:
        """The number of rows (of the outer tiled axis) of the standing operand that fit into half of L2."""
        roles = self.roles
        if not roles.rows:
            return 1
        row = max((distance(r, roles.rows[0].name) for r in roles.standing), default=0)
        return int(self._kept()) // row if row else 1 << 30

    def _kept(self) -> float:
        """The bytes of L2 in which data may stay."""
        return cpu_of(self.target).l2_share * second_cache(self.target)

    def _tile_anchor(self, inner: str) -> None:
        """Puts reduction loops outside and an unrolled register tile inside."""
        op, roles = self.stage.op, self.roles
        v = roles.vector.name
        self.split(inner, v, roles.lanes)
        parts = at_once(op) if roles.rows or self.use is not None else in_parts(inner, op, ROW_PART)
        if self.use is not None:
            parts = self._groups(inner, self.use)
        self.write(*parts.cut)
        reduction = list(parts.loops)
        unrolled: list[str] = []
        last = parts.loops[-1]
        least = STEPS_OF_EXTREMES if joins_extremes(op) else 1
        options, default = steps_written(parts.inner, self.target, least)
        if self.use is not None and (self.use.ragged or self.use.dot.rows > 1):
            options = ()  # the loop is cut before the last group, or has few iterations
        if len(options) > 1:
            hole = f"{self.stage.name}/unroll"
            self.hole(hole, singles(options), (default,))
            self.split(inner, last, Ref(hole))
            reduction[-1:] = [f"{last}.0", f"{last}.1"]
            unrolled.append(f"{last}.1")
        spatial = [a.name for a in op.axes[:-1]]
        within = self._taken_at_once(inner, spatial)
        self.write(Reorder(inner, (*reduction, *spatial, f"{v}.0", f"{v}.1", *within)))
        *around, vector = in_vectors(inner, *unrolled, *spatial, f"{v}.0", f"{v}.1")
        self.write(*around, vector if self.use is None else Tensorize(inner, f"{v}.1", self.use.dot.name))
        self.write(*parts.mark)
        if terms_left_out(op):
            self.write(Pragma(inner, reduction[0], "skip_zeros", "1"))
        if read_by_choice(self.state, self.stage):
            self.write(Pragma(inner, reduction[0], "skip_unread", "1"))

    def _groups(self, inner: str, use: DotUse) -> Parts:
        """The reduction loops, with the loop that is cut into an instruction's groups innermost."""
        axes = self.stage.op.reduce_axes
        loops = (*(a.name for a in axes if a.name != use.axis), f"{use.axis}.0")
        within = (use.dot.group,) if use.dot.rows == 1 else (use.groups, use.dot.group)
        return Parts(loops, ceil(use.extent / prod(within)), (SplitStep(inner, use.axis, within),))

    def _taken_at_once(self, inner: str, spatial: list[str]) -> list[str]:
        """The loops inside the loop over columns that an instruction also computes. For an instruction of
        tiles, rows are cut."""
        if self.use is None:
            return []
        if self.use.dot.rows == 1:
            return [f"{self.use.axis}.1"]
        rows = self.roles.rows[-1].name
        self.split(inner, rows, Ref(f"{self.stage.name}/tile", 4))
        spatial[spatial.index(rows)] = f"{rows}.0"
        return [f"{rows}.1", f"{self.use.axis}.1", f"{self.use.axis}.2"]

    def _copy_padding(self, pad: Stage, host: str, block: str | None) -> None:
        """Copies padding for each block or beforehand, row by row in vectors."""
        last = pad.op.axes[-1].name
        lanes = self.roles.lanes
        if block is not None:
            self.write(ComputeAt(pad.name, host, block))
        if pad.op.axes[-1].extent >= lanes:
            self.split(pad.name, last, lanes)
            self.write(Vectorize(pad.name, f"{last}.1"))
        if block is None and len(pad.op.axes) > 2:
            outer = [a.name for a in pad.op.axes[:-2]]
            self.write(*divided_as_one(pad.name, outer, pad.op, lanes, self.target))
