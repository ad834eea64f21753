"""Sums of sums in which two inner sums share no operand: for example, products with weights scaled by groups.

    P[m, n, g] = Σ_k f(w[n, g, k]) * x[m, g, k]        Y[m, n] = Σ_g s[n, g] * P[m, n, g]

    ──▶  parallel over blocks of columns n
           for column tiles of the block, row tiles:
             total[rows, nv*lanes] = 0                                in registers
             for g:  part[rows, nv*lanes] = Σ_k                       in registers
                     total += s * part

The inner sum is computed where the outer sum adds it, and is not stored in memory. Each vector of w is
unpacked or converted once for all rows of a tile. Constants are packed into panels of a tile's width, which
are read from beginning to end. Large constants that are read only once are packed into panels of a vector's
width, which are read at the same time, as in `tile_cpu`. Sums of integers that are packed in bytes use dot
instructions, if the processor has them (`packed_products`).

    C[y, x, d] = Σ_k a[k, y, x] * b[k, y, x + d]        M[y, x] = max_d C[y, x, d]

If a vector of an operand serves several inner sums (a, for each d), a tile computes some of these together,
as a product's tile does for its rows. This pays if the vectors of all k stay in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import DotInstruction, whole
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.storage import Storage
from autotensor.schedule.primitives.tensorize import Tensorize
from autotensor.schedule.sketch import Option
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import IterDef, StageOp
from schedules.algorithms.packed_products import form_of
from schedules.cpu import cpu_of
from schedules.kit.block_grain import cuts
from schedules.kit.body_work import BodyWork, body_work
from schedules.kit.dot_uses import gain
from schedules.kit.operand_roles import Roles, dimension
from schedules.kit.parallel_region import divided
from schedules.kit.shared_steps import host_and_anchor, in_vectors, names_in
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import (
    Read,
    constants,
    divisors,
    epilogue,
    is_read_by_terms,
    lanes_of,
    names_of_terms,
    reads,
    second_cache,
    untouched,
)
from schedules.kit.tiles import MAX_ROWS, best_tile, nearest, singles, tiles_of
from schedules.registry import Extension
from schedules.rules.tiles.windows import find_window

WRITTEN = 16  # steps of an inner sum that are unrolled by default; at most four times as many
BLOCKS = 8  # blocks of columns for each core
UNPACKED = BodyWork(both=1.0, vector=2.0)  # a dot instruction; a shift and a mask for each vector of words


@dataclass(frozen=True, slots=True)
class _Nest:
    """A sum of sums: the inner stage, and its name for each axis of the outer stage."""

    inner: Stage
    name_of: dict[str, str]
    within: tuple[Read, ...]  # operands of the inner sum that are contiguous along the columns
    beside: tuple[Read, ...]  # operands of the outer sum
    roles: Roles  # the roles of operands in a step of the inner sum
    together: IterDef | None = None  # axis of the outer sum along which a tile has several inner sums
    packed: _Packed | None = None  # set if a dot instruction computes the inner sum


@dataclass(frozen=True, slots=True)
class _Packed:
    """An inner sum that a dot instruction computes: the algorithm, and the stage that unpacks its numbers."""

    dot: DotInstruction
    algorithm: UseAlgorithm
    numbers: Stage
    others: tuple[str, ...]  # stages of the algorithm that keep their own loops

    @property
    def loops(self) -> tuple[str, ...]:
        """The last three axes of the numbers, which the inner sum has, too: words, numbers, a group."""
        return tuple(a.name for a in self.numbers.op.axes[-3:])


def nested_sums(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm" or not stage.op.is_reduction or not untouched(stage):
        return
    nest = _nest(state, stage, target)
    if nest is None:
        return
    for after, by_dots in _by_dots(state, nest, target) if nest.together is None else ():
        yield _NestSketch(after, stage, by_dots, target).build()
    yield _NestSketch(state, stage, nest, target).build()
    if nest.together is not None:
        yield Extension(onward=True)


def is_nest(state: State, stage: Stage, target: Target, apart: bool = False) -> bool:
    """Whether a reduction adds sums that are better computed inside it. apart: only one after another."""
    nest = _nest(state, stage, target)
    return nest is not None and not (apart and nest.together)


def _nest(state: State, stage: Stage, target: Target) -> _Nest | None:
    op = stage.op
    inner = _inner(state, stage)
    if inner is None or not op.axes or len(op.buffers) != 1 or len(inner.op.buffers) != 1:
        return None
    lanes, column = lanes_of(op, target), op.axes[-1]
    name_of = names_of_terms(op, inner.op)
    if name_of is None or column.extent < lanes or lanes_of(inner.op, target) != lanes:
        return None
    there, summed = name_of[column.name], {name_of[a.name] for a in op.reduce_axes}
    within = tuple(r for r in reads(inner.op) if r.uses(there))
    beside = tuple(r for r in reads(op) if r.load.buffer not in inner.op.buffers and r.uses(column.name))
    if not within:
        return None
    shared = [a for a in op.reduce_axes if a.extent > 1 and not all(r.uses(name_of[a.name]) for r in within)]
    fixed = constants(state)
    for found, axis in ((within, there), (beside, column.name)):
        for r in found:
            packed = r.load.buffer.name in fixed and dimension(r, axis) is not None
            if not packed and r.strides.get(axis) != 1:
                return None
    together = shared[-1] if shared else None
    if together is not None:
        summed.remove(name_of[together.name])
    one = replace(inner.op, axes=tuple(a for a in inner.op.axes if a.name not in summed))
    rows = tuple(a for a in op.axes[:-1] if a.extent > 1)[-1:]
    if together is not None:  # a row is tiled, too, if rows share vectors
        rows = (*(a for a in rows if not all(r.uses(name_of[a.name]) for r in within)), together)
    roles = Roles(
        column,
        rows,
        tuple(a for a in op.axes[:-1] if a not in rows),
        within,
        (),
        (),
        tuple(r for r in reads(inner.op) if r not in within),
        lanes,
        0,  # neighbouring rows are only one group apart
        prod(a.extent for a in inner.op.reduce_axes),
        body_work(one, there, target),
    )
    nest = _Nest(inner, name_of, within, beside, roles, together)
    return nest if together is None or _pays(state, op, nest, target) else None


def _pays(state: State, op: StageOp, nest: _Nest, target: Target) -> bool:
    """Whether inner sums that share vectors are better computed inside the outer sum: the vectors of a tile
    stay in the nearest cache, no dot instruction adds several products, all cores have columns, and no terms
    are shared by neighbouring windows."""
    roles, inner, size = nest.roles, nest.inner.op, op.buffers[0].dtype.bytes
    panel = roles.depth * best_tile(roles, target)[3] * size * len(nest.within)
    wide = all(b.dtype.bytes == size for b in inner.reads())
    vectors = prod(a.extent for a in op.axes) // roles.lanes
    there = nest.name_of[roles.vector.name]
    along = replace(inner, axes=tuple(sorted(inner.axes, key=lambda a: a.name == there)))
    return (
        panel <= target.cache_bytes[0]
        and wide
        and vectors >= BLOCKS * target.num_cores
        and find_window(state, along, roles.lanes) is None
    )


def _by_dots(state: State, nest: _Nest, target: Target) -> Iterator[tuple[State, _Nest]]:
    """For each dot instruction that fits the inner sum, the fastest first: the state after its steps, and the
    nest."""
    dots = [d for d in whole(target) if d.rows == 1 and d.columns == nest.roles.lanes]
    for dot in sorted(dots, key=lambda d: -gain(d, target)):
        form = form_of(dot)
        if form is None or ALGORITHMS.get(form).stages(state, nest.inner) is None:
            continue
        step = UseAlgorithm(nest.inner.name, form)
        after = step.apply(state)
        inner = after.stage(nest.inner.name)
        *others, numbers = (s.name for s in after.stages if s.name not in state.names)
        roles = replace(
            nest.roles,
            standing=tuple(r for r in reads(inner.op) if r.load.buffer.name != numbers),
            depth=prod(a.extent for a in inner.op.reduce_axes[:-1]),
            work=UNPACKED,
        )
        packed = _Packed(dot, step, after.stage(numbers), tuple(others))
        within = reads(packed.numbers.op)
        yield after, replace(nest, inner=inner, within=within, roles=roles, packed=packed)


def _inner(state: State, stage: Stage) -> Stage | None:
    """The only reduction that this stage alone reads; None if there is none."""
    made = [p for b in stage.op.reads() if (p := state.producer(b)) is not None and p.op.is_reduction]
    alone = [p for p in made if state.consumers(p) == (stage,) and not state.is_output(p) and untouched(p)]
    whole = [p for p in alone if is_read_by_terms(stage.op, p.op)]
    return whole[0] if len(whole) == 1 else None


class _NestSketch(SketchWriter):
    """Writes the sketch."""

    def __init__(self, state: State, stage: Stage, nest: _Nest, target: Target) -> None:
        super().__init__()
        self.state, self.stage, self.nest, self.target = state, stage, nest, target

    def build(self) -> Extension:
        roles, anchor, part, packed = self.nest.roles, self.stage.name, self.nest.inner.name, self.nest.packed
        most_rows = cpu_of(self.target).nested_rows
        tile, tiles = f"{anchor}/tile", tiles_of(roles, self.target)
        best = best_tile(roles, self.target, most_rows if self.nest.together is None else MAX_ROWS)
        once = roles.outer <= best[0] and roles.inner <= best[1]
        if once and self._is_one_stream():
            best = min((t for t in tiles if t[:2] == best[:2]), key=lambda t: t[2])
        self.hole(tile, tiles, best)
        if packed is not None:
            self.write(packed.algorithm)
        host, inner, first = host_and_anchor(epilogue(self.state, self.stage), anchor)
        self.write(*first)
        self.write(*dict.fromkeys(self._panels(tile, once)))
        self.write(ComputeAt(inner, host, self._tile_host(host, tile, best)))
        self.write(ComputeAt(part, inner, self._totals(inner)))
        around = self._parts(part)
        if packed is None:
            return self.extension(host, inner, anchor, part)
        self.write(ComputeAt(packed.numbers.name, part, around))
        self._numbers(packed)
        return replace(self.extension(host, inner, anchor, part, packed.numbers.name), stays=packed.others)

    def _panels(self, tile: str, once: bool) -> Iterator[Layout]:
        """Packs constants whose rows are columns of the result into panels. once: each panel is read once."""
        column, packed = self.nest.roles.vector.name, self.nest.packed
        fixed = constants(self.state)
        for operands, name in ((self.nest.within, self.nest.name_of[column]), (self.nest.beside, column)):
            for r in operands:
                buffer, along = r.load.buffer, dimension(r, name)
                if along is None or buffer.name not in fixed:
                    continue
                beside = once and self._is_far(r) and not self._is_one_stream()
                width = self.nest.roles.lanes if beside else Ref(tile, 3)
                rest = [str(d) for d in range(len(r.dims)) if d != along]
                group = [] if packed is None or buffer not in packed.numbers.op.reads() else [rest.pop()]
                order = " ".join([f"{along}.0", *rest, f"{along}.1", *group])
                yield Layout(buffer.name, ((along, width),), order)

    def _is_far(self, r: Read) -> bool:
        far: float = cpu_of(self.target).far * second_cache(self.target)
        return bool(r.load.buffer.bytes > far)

    def _is_one_stream(self) -> bool:
        """Whether panels of a vector's width that come from far are so short that the processor does not
        fetch ahead in them. Panels of a tile's width are one stream over all tiles; a narrow tile reads less
        of the stream at a time.
        """
        vectors = ceil(self.nest.roles.columns / self.nest.roles.lanes)
        far = [r.load.buffer.bytes for r in self.nest.within if self._is_far(r)]
        return any(n / vectors < cpu_of(self.target).side_by_side for n in far)

    def _tile_host(self, host: str, tile: str, best: Option) -> str:
        """Makes parallel blocks of columns, and tiles inside them. Returns the innermost loop around a
        tile."""
        roles = self.nest.roles
        names = names_in(self.state.stage(host).op, self.stage.op)
        v, together = names[roles.vector.name], self.nest.together
        rows = [names[a.name] for a in roles.rows if a is not together]
        tiles = ceil(roles.columns / best[3])
        choices = cuts(tiles, self.target.num_cores)
        columns = f"{self.stage.name}/columns"
        self.hole(columns, singles(choices), (nearest(choices, tiles // (BLOCKS * self.target.num_cores)),))
        for row in rows:
            self.split(host, row, Ref(tile, 1 if together is None else 0))
        self.split(host, v, Ref(columns), Ref(tile, 2), roles.lanes)
        outside = [*(names[a.name] for a in roles.others), f"{v}.0"]
        around = [f"{v}.1", *(f"{r}.0" for r in rows)]
        inside = [*(f"{r}.1" for r in rows), f"{v}.2", f"{v}.3"]
        self.write(Reorder(host, (*outside, *around, *inside)))
        outer = self.fuse(host, outside)
        self.write(*in_vectors(host, *inside))
        self.write(*divided(host, outer, self.nest.inner.op, roles.lanes, self.target))
        return around[-1]

    def _totals(self, inner: str) -> str:
        """Makes the loops of the outer sum around a tile. Returns the innermost of them."""
        op, v = self.stage.op, self.nest.roles.vector.name
        self.split(inner, v, self.nest.roles.lanes)
        over = [a.name for a in op.reduce_axes]
        tile = [*(a.name for a in op.axes[:-1]), f"{v}.0", f"{v}.1"]
        if self.nest.together is not None:
            axis = self.nest.together.name
            self.split(inner, axis, Ref(f"{self.stage.name}/tile", 1))
            over = [*(a for a in over if a != axis), f"{axis}.0"]
            tile.insert(0, f"{axis}.1")
        self.write(Reorder(inner, (*over, *tile)), *in_vectors(inner, *tile))
        return over[-1]

    def _parts(self, part: str) -> str:
        """Makes the loops of the inner sum around a tile, with some steps unrolled. Returns the innermost
        loop of steps."""
        op, v, packed = self.nest.inner.op, self.nest.name_of[self.nest.roles.vector.name], self.nest.packed
        if self.nest.together is not None:  # vectors of several sums lie in a buffer of registers
            self.write(Storage(part, (*(a.name for a in op.axes if a.name != v), v), 0))
        self.split(part, v, self.nest.roles.lanes)
        around, written = self._steps(part)
        tile = [*(a.name for a in op.axes if a.name != v), f"{v}.0", f"{v}.1"]
        group = [] if packed is None else [packed.loops[-1]]
        self.write(Reorder(part, (*around, *written, *tile, *group)))
        *unrolled, vector = in_vectors(part, *written, *tile)
        self.write(*unrolled, vector if packed is None else Tensorize(part, f"{v}.1", packed.dot.name))
        return written[-1]

    def _numbers(self, packed: _Packed) -> None:
        """Computes the numbers of one step in registers, by a shift and a mask for each vector of words."""
        op, name = packed.numbers.op, packed.numbers.name
        v = self.nest.name_of[self.nest.roles.vector.name]
        self.split(name, v, self.nest.roles.lanes)
        *others, group = (a.name for a in op.axes if a.name != v)
        self.write(Reorder(name, (*others, f"{v}.0", f"{v}.1", group)))
        vector = self.fuse(name, (f"{v}.1", group))
        self.write(*in_vectors(name, *others, f"{v}.0", vector))

    def _steps(self, part: str) -> tuple[list[str], list[str]]:
        """The loops of the inner sum, and its unrolled loops: whole loops, and a part of the next one."""
        around, steps = list(self.nest.inner.op.reduce_axes), 1
        most = WRITTEN if self.nest.together is None else cpu_of(self.target).written
        if self.nest.packed is not None:
            around.pop()  # the group
        written: list[str] = []
        while around and steps * around[-1].extent <= most:
            steps *= around[-1].extent
            written.insert(0, around.pop().name)
        loops = [a.name for a in around]
        if around:
            options = divisors(around[-1].extent, 4 * most // steps)
            own = max(n for n in options if n * steps <= max(most, steps))
            self.hole(f"{part}/unroll", singles(options), (own,))
            self.split(part, loops[-1], Ref(f"{part}/unroll"))
            loops[-1:], written = [f"{loops[-1]}.0"], [f"{loops[-1]}.1", *written]
        return loops, written
