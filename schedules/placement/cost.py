"""Cycles of a pipeline under a plan: operations, loads, recomputation, bytes by the cache that holds them.

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

INTEGER = 0.25  # cost of an operation on whole numbers: most are the same for all lanes (chosen, 2026-11)
GATHER = 1.0  # cycles of a lane that is loaded by itself (chosen, 2026-11)
FILLED = 0.8  # share of a cache that a tile's arrays may take and stay there (chosen, 2026-11)
FIRST = 2  # steps of a strip during which nothing is fetched ahead (chosen, 2026-11)
MOST_NODES = 4000  # nodes of an expression after inlining: more compile for seconds

Steps = tuple[str, int]  # along which axis of the last stage, and how many of its rows each computes


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the stages in front of a last one are computed; a stage in none of the sets is computed whole."""

    inlined: frozenset[str]
    tiled: frozenset[str]  # inside a tile of the last stage
    terms: frozenset[str] = frozenset()  # where the sum that reads them adds its terms, in registers
    steps: bool = False  # whether these are kept from one step of the tile to the next


@lru_cache(maxsize=4096)
def weight(op: StageOp, called: float) -> float:
    """Vector operations of one evaluation, each distinct expression once; joins included."""
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
    """The stages whose costs are counted."""

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
    held: Mapping[str, float]  # the bytes that are held at a time
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
    """Cycles until all cores are done; infinite where an expression would grow without bounds.

    each: of a stored stage, cycles for a vector of its elements (`evaluation`).
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
    """Share that is felt of the shorter of two times: in which a tile is computed, and its bytes move.

    Whole rows of a strip follow one another in memory, so that caches fetch the next step's meanwhile, but
    for the first steps.
    """
    if tiling.steps is None:
        return 1.0
    axis, rows = tiling.steps
    first = min(1.0, FIRST * rows / tiling.tile[axis])
    return first + (1.0 - first) * cpu.strips_felt


def evaluation(group: Group, op: StageOp, inlined: frozenset[str], reads: Reads | None) -> float:
    """Cycles of a vector of a stage's elements: its own operations, those of inlined stages, loads, for each
    of its terms, and a store; work that rows written together share is counted once. reads: the points, by
    `points_read`."""
    if reads is None:
        return inf
    called, terms = cpu_of(group.target).called, prod(a.extent for a in op.reduce_axes)
    gone_stages = [group.op(name) for name in inlined if name in reads]
    if nodes(op) + sum(len(reads[p.name]) * nodes(p) for p in gone_stages) > MOST_NODES:
        return inf
    reads = of_all_terms(op, reads)
    written = terms if terms <= WRITTEN_OUT else 1  # the terms that `reads` is of
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
    """The vectors of a part of a stage: a part of its rows is not next to the same part of others, as where
    a reader turns them."""
    if not box or box[-1] == op.axes[-1].extent:
        return vectors(box, lanes)
    return prod(box[:-1]) * ceil(box[-1] / lanes)


def vectors(shape: Sequence[int], lanes: int) -> int:
    """Vectors that hold a box: short rows are taken together with those around."""
    if not shape:
        return 1
    if shape[-1] < lanes and len(shape) > 1:
        return prod(shape[:-2]) * ceil(shape[-2] * shape[-1] / lanes)
    return prod(shape[:-1]) * ceil(shape[-1] / lanes)


def _load(point: Point, along: str, lanes: int) -> float:
    """Cycles of the load of a vector along an axis."""
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
        case Part() | Other():
            return APART


def _moved(group: Group, plan: Plan, tiling: Tiling, whole: Sequence[StageOp]) -> float:
    """Cycles of the bytes between stages, and of the inputs of tiles."""
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
    """Bytes a cycle at which a tile's arrays come back; 0 where they never left the nearest cache."""
    cpu, caches = cpu_of(target), target.cache_bytes
    if held <= FILLED * caches[0]:
        return 0.0
    return cpu.l2_rate if len(caches) > 1 and held <= FILLED * caches[1] else cpu.l3_rate
