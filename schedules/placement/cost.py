"""Cycles of a pipeline under a plan, from operations, loads, recomputation, and the bytes in each cache.

Each stored stage is evaluated, with the stages inlined into it, at the points that its reader's tile needs.
Its results are written to and read from the nearest cache into which the tile's arrays fit. This estimate
ranks plans before any loop exists; the prior and the measurements come after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, prod

from autotensor.base.target import Target
from autotensor.ir.bounds import is_data
from autotensor.ir.expr import Binary, Compare, Expr
from autotensor.te.dag import StageOp
from autotensor.te.stage import evaluated
from schedules.cpu import APART, Cpu, cpu_of
from schedules.kit.body_work import joins, vector_operations
from schedules.placement.reads import WRITTEN_OUT, Other, Part, Point, Reads, Sum, of_all_terms
from schedules.placement.regions import extents_of, regions, windows
from schedules.placement.rows import distinct, rows_together

INTEGER = 0.25  # cost of an integer operation; most such operations serve all lanes (chosen, 2026-11)
GATHER = 1.0  # cycles for a lane that is loaded alone (chosen, 2026-11)
FILLED = 0.8  # arrays of a tile stay in a cache if they take at most this share of it (chosen, 2026-11)
FIRST = 2  # first steps of a strip, during which nothing is fetched ahead (chosen, 2026-11)
MOST_NODES = 4000  # nodes of an expression after inlining; more would compile for seconds

Steps = tuple[str, int]  # an axis of the last stage, and the number of rows in each step along it


@dataclass(frozen=True, slots=True)
class Plan:
    """The places of the stages before the last one. A stage that is in none of the sets is computed whole."""

    inlined: frozenset[str]
    tiled: frozenset[str]  # stages inside a tile of the last stage
    terms: frozenset[str] = frozenset()  # stages in registers, where the sum that reads them adds its terms
    steps: bool = False  # whether values are kept from one step of the tile to the next


@lru_cache(maxsize=4096)
def weight(op: StageOp, called: float) -> float:
    """The vector operations of one evaluation, including joins. Equal expressions count once."""
    return sum(_own(e, called) for e in evaluated(op.bodies)) + joins(op, called)


def _own(e: Expr, called: float) -> float:
    match e:
        case Binary(_, a, _) | Compare(_, a, _) if not a.dtype.is_float:
            return INTEGER
    return vector_operations(e, called)


@lru_cache(maxsize=4096)
def nodes(op: StageOp) -> int:
    return len(evaluated(op.bodies)) + len(op.loads())


@dataclass(frozen=True, slots=True)
class Group:
    """A group of stages whose costs are counted together."""

    order: tuple[StageOp, ...]  # producers first; the last one is the host
    lanes: int
    target: Target

    @property
    def last(self) -> StageOp:
        return self.order[-1]

    def op(self, name: str) -> StageOp:
        return next(o for o in self.order if o.name == name)


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tile of the last stage: its extents, the number of such tiles, and the boxes that it needs."""

    tile: Mapping[str, int]
    count: int
    vectors: Mapping[str, int]  # vectors of each stage's box
    bytes: Mapping[str, float]  # bytes of each buffer's box
    held: Mapping[str, float]  # the bytes that must be held at the same time
    steps: Steps | None = None

    @staticmethod
    def of(group: Group, tile: tuple[int, ...], steps: Steps | None = None) -> Tiling:
        """tile: extents along the axes of the group's last stage. steps: the steps in which the tile is
        computed."""
        named = {a.name: t for a, t in zip(group.last.axes, tile, strict=True)}
        count = prod(ceil(a.extent / t) for a, t in zip(group.last.axes, tile, strict=True))
        boxes = {name: extents_of(b) for name, b in regions(group.last, named, group.order).items()}
        sizes = {b.name: b.dtype.bytes for o in group.order for b in (*o.buffers, *o.reads())}
        taken = {name: float(prod(shape) * sizes[name]) for name, shape in boxes.items()}
        held = taken
        if steps is not None:
            at_once = windows(group.last, named, group.order, *steps)
            held = {name: float(prod(extents_of(b)) * sizes[name]) for name, b in at_once.items()}
        each = {o.name: vectors_in_box(o, boxes[o.buffers[0].name], group.lanes) for o in group.order}
        return Tiling(named, count, each, taken, held, steps)


def cycles(group: Group, plan: Plan, tiling: Tiling, each: Mapping[str, float]) -> float:
    """The cycles until all cores have finished; infinite if an expression would become too large.

    each: for each stored stage, the cycles for a vector of its elements (see `evaluation`).
    """
    stored = [o for o in group.order if o.name not in plan.inlined]
    near = plan.tiled | plan.terms | {group.last.name}
    whole = [o for o in stored if o.name not in near]
    work = 0.0
    for op in stored:
        times = tiling.count * tiling.vectors[op.name] if op.name in near else _vectors_of(op, group.lanes)
        work += times * each[op.name]
    moved, cpu, cores = _moved(group, plan, tiling, whole), cpu_of(group.target), group.target.num_cores
    total = max(work, moved) + _felt(tiling, cpu) * min(work, moved)
    busiest = ceil(tiling.count / cores) / tiling.count
    return total * busiest + (1 + len(whole)) * cpu.region


def _felt(tiling: Tiling, cpu: Cpu) -> float:
    """A tile's computation takes a time, and moving its bytes takes a time. This is the share of the shorter
    time that adds to the longer one.

    The rows of a strip follow one another in memory, so the caches fetch the rows of the next step early,
    except in the first steps.
    """
    if tiling.steps is None:
        return 1.0
    axis, rows = tiling.steps
    first = min(1.0, FIRST * rows / tiling.tile[axis])
    return first + (1.0 - first) * cpu.strips_felt


def evaluation(group: Group, op: StageOp, inlined: frozenset[str], reads: Reads | None) -> float:
    """The cycles for a vector of a stage's elements. These are the stage's operations and those of inlined
    stages, the loads for each term, and a store. Work that is shared by rows written together counts once.
    reads: the points, from `points_read`."""
    if reads is None:
        return inf
    called, terms = cpu_of(group.target).called, prod(a.extent for a in op.reduce_axes)
    gone_stages = [group.op(name) for name in inlined if name in reads]
    if nodes(op) + sum(len(reads[p.name]) * nodes(p) for p in gone_stages) > MOST_NODES:
        return inf
    reads = of_all_terms(op, reads)
    written = terms if terms <= WRITTEN_OUT else 1  # the number of terms that `reads` contains
    rows = rows_together(op, reads, group.target, op is group.last)
    vanished = [(p, distinct(reads[p.name], op, rows)) for p in gone_stages]
    gone = {p.name for p, _ in vanished} | {b.name for p, _ in vanished for b in p.buffers}
    along = op.axes[-1].name if op.axes else ""
    total = written * weight(op, called) + sum(count * weight(p, called) for p, count in vanished) / rows
    for points in (points for name, points in reads.items() if name not in gone):
        once = distinct(points, op, rows) / (rows * len(points))
        total += once * sum(_load(p, along, group.lanes) for p in points)
    return terms / written * total + 1.0


@lru_cache(maxsize=4096)
def _vectors_of(op: StageOp, lanes: int) -> int:
    return vectors([a.extent for a in op.axes], lanes)


def vectors_in_box(op: StageOp, box: Sequence[int], lanes: int) -> int:
    """The number of vectors in a box of a stage. If the box has only a part of each row (for example, because
    a reader transposes), vectors end at the ends of these parts."""
    if not box or box[-1] == op.axes[-1].extent:
        return vectors(box, lanes)
    return prod(box[:-1]) * ceil(box[-1] / lanes)


def vectors(shape: Sequence[int], lanes: int) -> int:
    """The number of vectors that hold a box. Short rows are joined with the next ones."""
    if not shape:
        return 1
    if shape[-1] < lanes and len(shape) > 1:
        return prod(shape[:-2]) * ceil(shape[-2] * shape[-1] / lanes)
    return prod(shape[:-1]) * ceil(shape[-1] / lanes)


def _load(point: Point, along: str, lanes: int) -> float:
    """The cycles for loading a vector along an axis."""
    if not point:
        return 1.0
    *outer, last = point
    if any(isinstance(i, Sum) and i.step(along) for i in outer):
        return GATHER * lanes
    match last:
        case Sum():
            step = abs(last.step(along))
            return 1.0 if step <= 1 else APART if step == 2 else GATHER * lanes
        case Other(Expr() as e) if is_data(e):
            return GATHER * lanes
        case Part(of, div, mod) if of.step(along) == 0 or (of.step(along) == 1 and not div and mod > lanes):
            return 1.0  # the same for all lanes, or contiguous except where the loop is cut
        case Part() | Other():
            return APART


def _moved(group: Group, plan: Plan, tiling: Tiling, whole: Sequence[StageOp]) -> float:
    """The cycles for moving the bytes between stages, and the inputs of tiles."""
    cpu, caches = cpu_of(group.target), group.target.cache_bytes
    inside = {b.name: b for o in group.order if o.name in plan.tiled for b in o.buffers}
    made = {b.name for o in group.order for b in o.buffers}
    inputs = {b.name for o in group.order for b in o.reads() if b.name not in made} & tiling.bytes.keys()
    handed_on = sum(tiling.bytes[name] for name in inside)
    taken = sum(tiling.bytes[name] for name in inputs)
    rate = _rate(
        sum(tiling.held[name] for name in (*inside, *inputs, *(b.name for b in group.last.buffers))),
        group.target,
    )
    total = 2.0 * handed_on / rate * tiling.count if rate else 0.0
    total += taken * tiling.count / cpu.l3_rate
    for op in whole:
        size = sum(b.bytes for b in op.buffers)
        slow = cpu.l2_rate if size <= caches[min(1, len(caches) - 1)] else cpu.l3_rate
        total += 2.0 * size / slow
    return total


def _rate(held: float, target: Target) -> float:
    """The bytes per cycle at which a tile's arrays are read again; 0 if they stay in the nearest cache."""
    cpu, caches = cpu_of(target), target.cache_bytes
    if held <= FILLED * caches[0]:
        return 0.0
    return cpu.l2_rate if len(caches) > 1 and held <= FILLED * caches[1] else cpu.l3_rate
