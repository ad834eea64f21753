"""The cheapest plans of a pipeline: tiles of its last stage, and a place for every earlier stage.

For each tile, a descent finds the places. It starts once with all stages inlined and once with all stages
kept, and moves one stage at a time as long as this is cheaper. Grouping by an estimated cost is from
Mullapudi et al., "Automatically scheduling Halide image processing pipelines" (SIGGRAPH 2016), which merges
stages greedily; here a descent finds the places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from schedules.placement.cost import Group, Plan, Steps, Tiling, cycles
from schedules.placement.sides import mean_evaluation

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
COLUMNS = (64, 128, 256, 512)
PLANES = (1, 4, 16)
STRIPS = (1, 2, 4, 8)  # numbers of strips for each core, for a tensor that is computed in steps
STEP = 4  # rows of a step; a step of planes has 1
SWEEPS = 4  # sweeps of the descent over all stages


@dataclass(frozen=True, slots=True)
class Placed:
    """A plan with its best tile, and their cost."""

    plan: Plan
    tile: tuple[int, ...]  # extents of the tile along the last stage's axes
    cycles: float
    # the steps in which the tile is computed, if the plan keeps the rows that steps share
    steps: Steps | None = None


def _columns(group: Group) -> int:
    """The index of the last axis that is at least as long as a vector."""
    columns = len(group.last.axes) - 1
    return columns - 1 if group.last.axes[columns].extent < group.lanes and columns else columns


def tiles_of(group: Group) -> list[tuple[int, ...]]:
    """The tiles that are tried: rows and columns along the last two long axes, planes along the axis before
    them."""
    extents, columns = [a.extent for a in group.last.axes], _columns(group)
    found: list[tuple[int, ...]] = []
    widths = [extents[columns], *(c for c in COLUMNS if c < extents[columns])]
    heights = [r for r in ROWS if r <= extents[columns - 1]] if columns else [1]
    depths = [p for p in PLANES if p <= extents[columns - 2]] if columns > 1 else [1]
    for width in widths:
        for height in heights:
            for depth in depths:
                tile = [1] * columns + extents[columns:]
                tile[columns] = width
                if columns:
                    tile[columns - 1] = height
                if columns > 1:
                    tile[columns - 2] = depth
                found.append(tuple(tile))
    return found


def strips_of(group: Group) -> list[tuple[tuple[int, ...], Steps]]:
    """Tiles that are computed in steps along their rows or planes. They have whole rows, and are as long as
    the cores' shares. Narrow tiles that run down an image would begin a new page in every row, and
    prefetchers cannot follow them."""
    found: list[tuple[tuple[int, ...], Steps]] = []
    extents, columns = [a.extent for a in group.last.axes], _columns(group)
    for at, rows in ((columns - 1, STEP), (columns - 2, 1)):
        if at < 0:
            continue
        parts = (ceil(extents[at] / (n * group.target.num_cores)) for n in STRIPS)
        lengths = dict.fromkeys(ceil(n / rows) * rows for n in parts if n > rows)
        heights = [r for r in (*ROWS, extents[columns - 1]) if r <= extents[columns - 1]]
        for length in lengths:
            tile = [1] * at + [length] + extents[at + 1 :]
            for height in heights if at < columns - 1 else [length]:
                tile[columns - 1] = height
                found.append((tuple(tile), (group.last.axes[at].name, rows)))
    return found


class Places:
    """The plans of one group, with the costs that are known."""

    def __init__(self, group: Group, free: Mapping[str, frozenset[str]]) -> None:
        """free: for each stage before the last one, its possible places: "inline", "tile", "whole", and
        "term" for a stage that only one sum reads, once."""
        self.group, self.free = group, free
        self._each: dict[frozenset[str], Mapping[str, float]] = {}
        self._consumers = _consumers(group)
        whole = [Tiling.of(group, t) for t in tiles_of(group)]
        self._tilings = [*whole, *(Tiling.of(group, t, steps) for t, steps in strips_of(group))]

    def legal(self, where: Mapping[str, str]) -> bool:
        """Whether every stage in a tile is read only inside the tile, and terms are read only by sums in the
        tile."""
        for name, place in where.items():
            if place == "tile" and any(not self._inside(c, where) for c in self._consumers[name]):
                return False
            if place == "term" and not all(self._adds(c, where) for c in self._consumers[name]):
                return False
        return True

    def _adds(self, reader: str, where: Mapping[str, str]) -> bool:
        """Whether the reader of a term is a sum in the tile, or is itself a term."""
        if where.get(reader) == "term":
            return True
        near = reader == self.group.last.name or where[reader] == "tile"
        return near and self.group.op(reader).is_reduction

    def _inside(self, name: str, where: Mapping[str, str]) -> bool:
        if name == self.group.last.name or where[name] == "tile":
            return True
        return where[name] == "inline" and all(self._inside(c, where) for c in self._consumers[name])

    def cost(self, where: Mapping[str, str], tiling: Tiling) -> float:
        plan = _plan(where, tiling)
        if not self.legal(where) or (tiling.steps is not None and (not plan.steps or plan.terms)):
            return float("inf")
        return cycles(self.group, plan, tiling, self._evaluations(plan.inlined))

    def _evaluations(self, inlined: frozenset[str]) -> Mapping[str, float]:
        """The cycles for a vector of elements of each stored stage. They are the same for all tiles."""
        if inlined not in self._each:
            self._each[inlined] = {
                o.name: mean_evaluation(self.group, o, inlined)
                for o in self.group.order
                if o.name not in inlined
            }
        return self._each[inlined]

    def best(self) -> list[Placed]:
        """The cheapest tile of every plan that was tried, with the cheapest plan first."""
        found: dict[Plan, Placed] = {}
        starts = [self._start(p) for p in ("inline", "tile", "term", "whole")]
        for tiling in self._tilings:
            for start in starts:
                self._descend(dict(start), tiling, found)
        return sorted(found.values(), key=lambda p: p.cycles)

    def plain(self) -> Placed:
        """The plan in which every stage is inlined if possible, and sums are computed whole, with its
        cheapest tile."""
        where = {n: "inline" if "inline" in free else "whole" for n, free in self.free.items()}
        found = ((self.cost(where, t), t) for t in self._tilings)
        cost, tiling = min(found, key=lambda x: x[0])
        return Placed(_plan(where, tiling), tuple(tiling.tile.values()), cost)

    def _start(self, wanted: str) -> dict[str, str]:
        where = {}
        for name, free in self.free.items():
            where[name] = wanted if wanted in free else "tile" if "tile" in free else "whole"
        return where if self.legal(where) else dict.fromkeys(self.free, "whole")

    def _descend(self, where: dict[str, str], tiling: Tiling, found: dict[Plan, Placed]) -> None:
        now = self._looked_at(where, tiling, found)
        for _ in range(SWEEPS):
            before = now
            for name in reversed([*where]):
                for place in sorted(self.free[name]):
                    if place == where[name]:
                        continue
                    other = {**where, name: place}
                    cost = self._looked_at(other, tiling, found)
                    if cost < now:
                        where, now = other, cost
            if now >= before:
                return

    def _looked_at(self, where: Mapping[str, str], tiling: Tiling, found: dict[Plan, Placed]) -> float:
        cost = self.cost(where, tiling)
        plan = _plan(where, tiling)
        if cost < float("inf") and (plan not in found or cost < found[plan].cycles):
            found[plan] = Placed(plan, tuple(tiling.tile.values()), cost, tiling.steps)
        return cost


def _plan(where: Mapping[str, str], tiling: Tiling) -> Plan:
    tiled = frozenset(n for n, p in where.items() if p == "tile")
    inlined = frozenset(n for n, p in where.items() if p == "inline")
    terms = frozenset(n for n, p in where.items() if p == "term")
    return Plan(inlined, tiled, terms, tiling.steps is not None and bool(tiled))


def _consumers(group: Group) -> dict[str, list[str]]:
    return {
        o.name: [c.name for c in group.order if any(b in c.reads() for b in o.buffers)] for o in group.order
    }
