"""The points at which one evaluation of a stored stage reads each earlier stage, through inlined stages.

    b[i] = a[i] + a[i+1];  c[i] = b[i-1] + b[i] + b[i+1]       b inlined:  c reads a at {i-1, i, i+1, i+2}

A point is expressed in the axes of the stored stage. So an element that several inlined stages read counts
once. Code generation also loads this element only once.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from autotensor.schedule.extents import Access, access
from autotensor.te.dag import StageOp

MOST_POINTS = 400  # most different points of one stage; with more, it is not inlined
WRITTEN_OUT = 32  # most terms of a reduction that are unrolled


@dataclass(frozen=True, slots=True)
class Sum:
    """An index that is a sum of axes: the coefficients of the axes by name, and a constant."""

    steps: tuple[tuple[str, int], ...]
    constant: int

    def step(self, axis: str) -> int:
        return dict(self.steps).get(axis, 0)


@dataclass(frozen=True, slots=True)
class Part:
    """The quotient (`div`) or remainder (`mod`) of a sum."""

    of: Sum
    div: int
    mod: int


@dataclass(frozen=True, slots=True)
class Other:
    """An index of another form, which is compared only for equality."""

    what: Hashable
    where: Hashable


Index = Sum | Part | Other
Point = tuple[Index, ...]
Points = frozenset[Point]
Reads = Mapping[str, Points]  # by buffer, and for inlined stages also by their names


def itself(op: StageOp) -> Points:
    """The stage's own point: its own axes."""
    return frozenset({tuple(Sum(((a.name, 1),), 0) for a in op.axes)})


def points_read(stored: StageOp, inlined: Collection[str], order: Sequence[StageOp]) -> Reads | None:
    """The points that an evaluation of `stored` reads, by buffer, and for inlined stages also by their names.

    order: all stages, producers first. The result is None if there are more than MOST_POINTS points.
    """
    made = {b.name: op for op in order for b in op.buffers}
    at: dict[str, Points] = {stored.name: itself(stored)}
    found: dict[str, Points] = {}
    for op in reversed(order):
        here = at.get(op.name)
        if here is None or (op.name != stored.name and op.name not in inlined):
            continue
        for name, loads in _by_buffer(op):
            more = frozenset(moved(p, op, indices) for p in here for indices in loads)
            found[name] = found.get(name, frozenset()) | more
            if len(found[name]) > MOST_POINTS:
                return None
            producer = made.get(name)
            if producer is not None and producer.name in inlined:
                at[producer.name] = at.get(producer.name, frozenset()) | more
    return {**found, **{name: points for name, points in at.items() if name != stored.name}}


def of_all_terms(op: StageOp, seen: Reads) -> Reads:
    """The points that all terms of a reduction read, if the terms are unrolled; otherwise those of one term.

    x[i + k] of three terms k: x[i], x[i + 1], x[i + 2]
    """
    if prod(a.extent for a in op.reduce_axes) > WRITTEN_OUT:
        return seen
    for axis in op.reduce_axes:
        places = range(axis.extent)
        seen = {
            name: frozenset(tuple(_at(i, axis.name, k) for i in p) for p in points for k in places)
            for name, points in seen.items()
        }
    return seen


def _at(index: Index, axis: str, k: int) -> Index:
    """The index with the value k for an axis."""
    match index:
        case Sum(steps, constant):
            return Sum(tuple(s for s in steps if s[0] != axis), constant + k * index.step(axis))
        case Part(of, div, mod):
            moved_sum = _at(of, axis, k)
            assert isinstance(moved_sum, Sum)
            return Part(moved_sum, div, mod)
    return Other(index, k)


def shares_rows(op: StageOp, seen: Reads) -> bool:
    """Whether neighbouring rows of a stage read common elements: a tensor is read at several positions along
    the last axis but one. seen: the points that an evaluation reads, with all terms of a reduction."""
    if len(op.axes) < 2 or op.axes[-2].extent == 1:
        return False
    row = op.axes[-2].name
    for points in seen.values():
        places: dict[object, set[int]] = {}
        for p in points:
            for n, index in enumerate(p):
                if isinstance(index, Sum) and index.step(row):
                    rest = (n, index.steps, *(i for m, i in enumerate(p) if m != n))
                    places.setdefault(rest, set()).add(index.constant)
        if any(len(found) > 1 for found in places.values()):
            return True
    return False


@lru_cache(maxsize=4096)
def _by_buffer(op: StageOp) -> tuple[tuple[str, tuple[tuple[Access | Other, ...], ...]], ...]:
    out: dict[str, list[tuple[Access | Other, ...]]] = {}
    for load in op.loads():
        indices = tuple(access(i) or Other(i, ()) for i in load.indices)
        out.setdefault(load.buffer.name, []).append(indices)
    return tuple((name, tuple(loads)) for name, loads in out.items())


def moved(point: Point, op: StageOp, indices: tuple[Access | Other, ...]) -> Point:
    """A read of `op` at one of its points, expressed in the axes of that point."""
    where = dict(zip((a.name for a in op.axes), point, strict=True))
    return tuple(_index(i, where, point) for i in indices)


def _index(index: Access | Other, where: Mapping[str, Index], point: Point) -> Index:
    if isinstance(index, Other):
        return Other(index.what, point)
    steps: dict[str, int] = {}
    constant = index.constant
    for axis, k in index.steps.items():
        form = where.get(axis, Sum(((axis, 1),), 0))  # the axis of a reduction is not replaced
        if not isinstance(form, Sum):
            return Other((tuple(index.steps.items()), index.constant, index.div, index.mod), point)
        constant += k * form.constant
        for name, c in form.steps:
            steps[name] = steps.get(name, 0) + k * c
    total = Sum(tuple(sorted((n, c) for n, c in steps.items() if c)), constant)
    return total if index.is_sum else Part(total, index.div, index.mod)
