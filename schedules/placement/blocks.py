"""Stages before a product: each block of rows is computed on the core that multiplies this block.

    for blocks of rows, divided among cores:
      the stages before, as much as the block needs        a depthwise convolution, a normalised row, a sum
      the product of these rows

The results of these stages then stay in a core's own cache, and the stages need no parallel region. But cores
can divide only the rows. Stages whose blocks overlap are left out, because the overlap would be computed
twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.sketch import Option
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp
from schedules.cpu import LINE, cpu_of
from schedules.kit.block_grain import cuts, parts_of, slowest
from schedules.kit.operand_roles import Roles
from schedules.kit.stage_analysis import (
    is_constant,
    is_padding,
    lanes_of,
    matches_elementwise,
    reads,
    second_cache,
    untouched,
)
from schedules.kit.tiles import best_tile, tile_quality, tiles_of
from schedules.placement.cost import FILLED, GATHER, Group, Tiling, vectors, weight

# With several cores, the time without blocks is multiplied by WAIT, because the cores wait for each other
# between stages. With one core, the time with blocks must be less than SURE times the time without blocks
# (150 products of nine networks, one and two cores of a Xeon, 2026-11).
WAIT, SURE = 1.05, 0.995
# smaller blocks are taken if they take at most this many times as long as the fastest, because they leave
# more of the caches to other data (Xeon, 2026-11)
NEAR = 1.02
EVEN = 1.08  # the busiest core may have this many times the mean number of lines (chosen, 2026-11)


@dataclass(frozen=True)
class Front:
    """The stages before a product that can be computed for a block of its rows."""

    stages: tuple[StageOp, ...]  # producers first
    product: StageOp
    roles: Roles
    target: Target

    @cached_property
    def handed_on(self) -> tuple[StageOp, ...]:
        """The stages whose values are stored: those that the product reads, and sums that do not stay in
        registers."""
        read = {b.name for b in self.product.reads()}
        ended = {p.name for p in self.stages for s in self.stages if p is not s and matches_elementwise(s, p)}
        return tuple(
            op
            for op in self.stages
            if any(b.name in read for b in op.buffers) or (op.is_reduction and op.name not in ended)
        )

    def overlaps(self, op: StageOp) -> bool:
        """Whether several blocks need the same parts of a stage."""
        rows = self.line.rows[0].extent if self.line is not self.roles else 1
        tiling = self._tiling(rows)
        return tiling.bytes[op.buffers[0].name] * tiling.count > op.buffers[0].bytes

    @cached_property
    def line(self) -> Roles:
        """The roles of the product for the unit of a block: a line of pixels, or any rows.

        A line is the unit if the rows are pixels, if cores can divide the lines evenly, and if a register
        tile divides a line. Otherwise any rows are the unit.
        """
        rows, extent, cores = self.roles.rows, self._extent, self._cores
        lines = {d.div for r in self.roles.standing for d in r.dims if d is not None and 1 < d.div < extent}
        if len(rows) != 1 or not lines:
            return self.roles
        line = min(lines)
        count = extent // line
        if ceil(count / cores) * cores > EVEN * count:
            return self.roles
        of_line = replace(self.roles, rows=(replace(rows[0], extent=line),))
        return of_line if _whole_tiles(of_line, self.target) else self.roles

    @cached_property
    def tiles(self) -> tuple[tuple[Option, ...], Option]:
        """The possible register tiles, and the tile that is taken without measuring. For pixels, they divide
        a line."""
        roles = self.line
        if roles is self.roles:
            return tiles_of(roles, self.target), best_tile(roles, self.target)
        whole = _whole_tiles(roles, self.target)
        return whole, max(whole, key=lambda o: (self._speed(o, roles), o[2]))

    @cached_property
    def _slower(self) -> float:
        """The product's time with tiles that divide a line, divided by its time with the best of all
        tiles."""
        apart = best_tile(self.roles, self.target)
        return max(1.0, self._speed(apart, self.roles) / self._speed(self.tiles[1], self.line))

    def _speed(self, tile: Option, roles: Roles) -> float:
        """Share of peak of a register tile."""
        extents = roles.outer, roles.inner, roles.columns, roles.lanes
        return tile_quality(tile, *extents, self.target, roles.row_bytes, roles.work)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The possible numbers of rows in a block: whole tiles, or whole lines of pixels, with the same
        number in each block."""
        extent, line = self._extent, self.line.rows[0].extent
        if line == extent:
            line = self.tiles[1][0 if len(self.roles.rows) == 2 else 1]
            return tuple(dict.fromkeys(min(n * line, extent) for n in cuts(ceil(extent / line), self._cores)))
        lines = extent // line
        even = {n for n in range(1, lines + 1) if lines % n == 0}
        return tuple(n * line for n in sorted(even | {ceil(lines / self._cores)}))

    @cached_property
    def _cycles(self) -> dict[int, float]:
        """The cycles for each size of blocks."""
        return {rows: self.inside(rows) for rows in self.sizes}

    @cached_property
    def best(self) -> int:
        """The smallest blocks that seem nearly as fast as the fastest."""
        fastest = min(self._cycles.values())
        return min(rows for rows, cycles in self._cycles.items() if cycles <= NEAR * fastest)

    @cached_property
    def seems_faster(self) -> bool:
        """Whether blocks seem faster than one stage after the other.

        If the weights do not fit into a core's second cache, they would be fetched for every block. Then the
        answer is no.
        """
        if self._panels > cpu_of(self.target).panel * second_cache(self.target):
            return False
        return self._cycles[self.best] < self.apart() * (WAIT if self._cores > 1 else SURE)

    def inside(self, rows: int) -> float:
        """The cycles until all cores have finished, with blocks of this many rows."""
        cpu, cores = cpu_of(self.target), self._cores
        tiling, whole = self._tiling(rows), self._tiling(self._extent)
        work = self._slower * self._product() + self._work(tiling) + tiling.count * self._turned
        taken, held = self._taken(tiling), sum(tiling.bytes[op.buffers[0].name] for op in self.handed_on)
        once = self._taken(whole) * whole.count
        work += once / cpu.l3_rate + (taken * tiling.count - once) / cpu.l2_rate
        block = held + taken + sum(b.bytes for b in self.product.buffers) / tiling.count
        if held > FILLED * self.target.cache_bytes[0]:
            work += 2.0 * self._bytes / (cpu.l2_rate if block <= self._kept else cpu.l3_rate)
        times = 1 if self._panels + block <= self._kept else ceil(tiling.count / cores)
        return work * self._busiest(rows) + self._weights(1.0) * times + cpu.region

    def apart(self) -> float:
        """The cycles until all cores have finished, if one stage is computed after the other.

        Either cores divide the rows of all stages; or each stage is divided in its best way, and cores then
        fetch results that other cores wrote.
        """
        cpu, cores = cpu_of(self.target), self._cores
        whole = self._tiling(self._extent)
        work = self._product() + self._work(whole) + whole.count * self._turned
        work += self._taken(whole) * whole.count / cpu.l3_rate
        work += 2.0 * self._bytes / (cpu.l2_rate if self._bytes <= self._kept * cores else cpu.l3_rate)
        by_rows = work * self._busiest(ceil(self._extent / cores)) + self._weights(1.0)
        fetched = self._bytes * (1.0 - 1.0 / cores) / LINE * cpu.line
        freely = work / cores + fetched + self._weights(1.0 / cores)
        return min(by_rows, freely) + (1 + len(self.handed_on)) * cpu.region

    @property
    def _kept(self) -> float:
        """Bytes that stay in a core's second cache."""
        return cpu_of(self.target).l2_share * second_cache(self.target)

    @property
    def _panels(self) -> int:
        """Bytes of the product's other operand."""
        return sum(int(r.load.buffer.bytes) for r in (*self.roles.packed, *self.roles.direct))

    def _weights(self, share: float) -> float:
        """The cycles in which each core fetches this share of the weights from memory, because the weights of
        a network are not in the caches."""
        cpu = cpu_of(self.target)
        return share * self._panels * self._cores * cpu.clock / cpu.memory

    def _busiest(self, rows: int) -> float:
        """The largest share of the work that one core has, with blocks of this many rows."""
        blocks = parts_of(self._extent, rows) * prod(a.extent for a in self.roles.others)
        return slowest(blocks, self._cores) / self._cores

    @property
    def _cores(self) -> int:
        return self.target.num_cores

    @property
    def _extent(self) -> int:
        return self.roles.rows[0].extent

    @property
    def _bytes(self) -> int:
        return sum(b.bytes for op in self.handed_on for b in op.buffers)

    def _product(self) -> float:
        cpu, op = cpu_of(self.target), self.product
        terms = prod(a.extent for a in op.reduce_axes)
        return terms * vectors([a.extent for a in op.axes], self.roles.lanes) / cpu.multiplies

    @property
    def _turned(self) -> float:
        """The cycles for transposing operands, which every block does again."""
        steps = prod(a.extent for a in self.product.reduce_axes)
        return len(self.roles.turned) * steps * self.roles.columns * GATHER

    def _work(self, tiling: Tiling) -> float:
        """The cycles of one core for the stages before the product, for all blocks."""
        called = cpu_of(self.target).called
        return tiling.count * sum(
            tiling.vectors[op.name] * prod(a.extent for a in op.reduce_axes) * weight(op, called)
            for op in self.stages
        )

    def _taken(self, tiling: Tiling) -> float:
        """The bytes of other stages that the stages of a block read."""
        made = {b.name for op in self.stages for b in op.buffers}
        return sum(tiling.bytes[name] for name in {b.name for op in self.stages for b in op.reads()} - made)

    def _tiling(self, rows: int) -> Tiling:
        """The boxes that blocks of this many rows need."""
        ones = {a.name: 1 for a in self.roles.others} | {self.roles.rows[0].name: rows}
        lanes = lanes_of(self.product, self.target)
        group = Group((*self.stages, self.product), lanes, self.target)
        return Tiling.of(group, tuple(ones.get(a.name, a.extent) for a in self.product.axes))


def _whole_tiles(roles: Roles, target: Target) -> tuple[Option, ...]:
    """Register tiles that divide a line of pixels."""
    return tuple(o for o in tiles_of(roles, target) if roles.rows[0].extent % o[1] == 0)


def front_of(state: State, stage: Stage, roles: Roles, target: Target) -> Front | None:
    """The stages that may be computed for each block of a product's rows; None if there are none."""
    if not roles.rows:
        return None
    standing = {r.load.buffer for r in roles.standing}
    before = state.stages[: state.names.index(stage.name)]
    others = _products(state, before)
    inside = {stage.name}
    front = Front((), stage.op, roles, target)
    for s in reversed(before):
        consumers = state.consumers(s)
        if s.name in others or not consumers or not all(c.name in inside for c in consumers):
            continue
        if not _can_join(state, s) or (stage in consumers and not standing.issuperset(s.op.buffers)):
            continue
        more = replace(front, stages=(s.op, *front.stages))
        if is_padding(s.op) or not more.overlaps(s.op):
            inside.add(s.name)
            front = more
    return None if all(map(is_padding, front.stages)) else front


def _can_join(state: State, s: Stage) -> bool:
    return (
        untouched(s)
        and not state.attached(s.name)
        and not state.is_output(s)
        and not is_constant(state, s)
        and len(s.op.buffers) == 1
        and bool(s.op.axes)
        and not s.carries
    )


def _products(state: State, stages: Sequence[Stage]) -> set[str]:
    """The products among the stages (producers first), and the stages after them that use their loops."""
    found: set[str] = set()
    for s in stages:
        ends = not s.op.is_reduction and any(
            p is not None and p.name in found and matches_elementwise(s.op, p.op)
            for p in map(state.producer, s.op.reads())
        )
        if ends or _is_product(s.op):
            found.add(s.name)
    return found


def _is_product(op: StageOp) -> bool:
    """Whether a part of each term is the same for all results along the last axis, as in a product."""
    last = next((a.name for a in reversed(op.axes) if a.extent > 1), None)
    terms = [a.name for a in op.reduce_axes]
    return last is not None and any(not r.uses(last) and any(map(r.uses, terms)) for r in reads(op))


__all__ = ["Front", "front_of"]
