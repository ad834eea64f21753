"""Where intermediate values live: one arena, shared by values that are not alive together.

    steps      0    1    2    3
    a 0..1   [####|####]
    b 1..3        [####|####|####]          a and c share bytes, b lies next to them
    c 2..3             [####|####]

Several greedy orders are tried, and the smallest arena wins. Its size is reported with the lower bound (the
most bytes alive at one step), which no plan can beat. Source: Pisarchyk and Lee, "Efficient Memory Management
for Deep Neural Net Inference", 2020 (greedy by size, greedy by breadth).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

ALIGNMENT = 64  # one cache line, one AVX-512 register


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value of `bytes` bytes, written at step `first` and read for the last time at step `last`."""

    name: str
    bytes: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """Bytes taken in the arena."""
        return -(-self.bytes // ALIGNMENT) * ALIGNMENT

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`offsets[n]` is the offset at which value n starts."""

    values: tuple[Lifetime, ...]
    offsets: tuple[int, ...]
    arena_bytes: int
    lower_bound_bytes: int  # most bytes alive at one step
    strategy: str
    # Each box lists the positions of values that begin at one offset and are not alive together. Plans for
    # values of known sizes have no boxes: these values may lie anywhere.
    boxes: tuple[tuple[int, ...], ...] = ()

    @property
    def unshared_bytes(self) -> int:
        """Bytes of all values if none of them shared memory."""
        return sum(v.size for v in self.values)

    def __str__(self) -> str:
        return (
            f"arena {self.arena_bytes} bytes ({self.strategy}); "
            f"at least {self.lower_bound_bytes} are alive at once, {self.unshared_bytes} without sharing"
        )


Order = Callable[[Lifetime], tuple[int, ...]]

# Values are placed in this order, each at the best offset that is still free.
ORDERS: tuple[tuple[str, Order], ...] = (
    ("by size", lambda v: (-v.size, v.first)),
    ("by size and lifetime", lambda v: (-v.size * (v.last - v.first + 1), v.first)),
    ("by time", lambda v: (v.first, -v.size)),
    ("by lifetime", lambda v: (v.first - v.last, -v.size)),
)


def plan(values: Sequence[Lifetime]) -> MemoryPlan:
    """The smallest plan that the greedy orders give. Cost O(n²) per order."""
    values = tuple(values)
    bound = lower_bound(values)
    best: MemoryPlan | None = None
    for name, order in (*ORDERS, ("by breadth", _breadth(values))):
        for fit in ("lowest", "tightest"):
            offsets = _place(values, order, tightest=fit == "tightest")
            arena = max((o + v.size for o, v in zip(offsets, values, strict=True)), default=0)
            if best is None or arena < best.arena_bytes:
                best = MemoryPlan(values, offsets, arena, bound, f"greedy {name}, {fit} gap")
            if best.arena_bytes == bound:
                return best
    assert best is not None
    return best


def plan_in_boxes(values: Sequence[Lifetime]) -> MemoryPlan:
    """A plan for values whose sizes change: values that share bytes begin at one offset, whatever their size.

        step      0    1    2    3
        box 0   [a    a  | c    c ]        a box is as large as its largest value, and the
        box 1        [b    b    b ]        boxes lie one after another

    The greatest values come first, each in the smallest box that is free during its lifetime. Source:
    Pisarchyk and Lee, "shared objects, greedy by size". Cost O(n²).
    """
    values = tuple(values)
    boxes: list[list[int]] = []
    for n in sorted(range(len(values)), key=lambda n: (-values[n].size, values[n].first)):
        free = [b for b in boxes if not any(values[m].meets(values[n]) for m in b)]
        if free:
            free[-1].append(n)  # the last box is the smallest one
        else:
            boxes.append([n])
    offsets: dict[int, int] = {}
    end = 0
    for box in boxes:
        offsets |= dict.fromkeys(box, end)
        end += values[box[0]].size
    return MemoryPlan(
        values,
        tuple(offsets[n] for n in range(len(values))),
        end,
        lower_bound(values),
        "boxes, greedy by size",
        tuple(map(tuple, boxes)),
    )


def lower_bound(values: Sequence[Lifetime]) -> int:
    """Most bytes alive at one step. This maximum occurs at a step where some value begins."""
    return max(_alive(values).values(), default=0)


def _alive(values: Sequence[Lifetime]) -> dict[int, int]:
    """The bytes alive at every step where a value begins, in the order of steps."""
    change = Counter[int]()
    for v in values:
        change[v.first] += v.size
        change[v.last + 1] -= v.size
    steps = sorted(change)
    begins = {v.first for v in values}
    return {
        step: size
        for step, size in zip(steps, accumulate(change[s] for s in steps), strict=True)
        if step in begins
    }


def _breadth(values: Sequence[Lifetime]) -> Order:
    """Orders values so that those of the fullest step come first."""
    alive = _alive(values)
    steps, sizes = list(alive), list(alive.values())

    def fullest(value: Lifetime) -> tuple[int, ...]:
        lived = sizes[bisect_left(steps, value.first) : bisect_right(steps, value.last)]
        return -max(lived, default=0), -value.size

    return fullest


def _place(values: Sequence[Lifetime], order: Order, *, tightest: bool) -> tuple[int, ...]:
    """An offset for every value: the lowest free gap that is large enough, or the tightest one."""
    ranked = sorted(range(len(values)), key=lambda n: (*order(values[n]), n))
    lives = np.array([(values[n].first, values[n].last) for n in ranked]).reshape(-1, 2)  # [values, 2]
    places: list[tuple[int, int]] = []  # begin and end of the values placed so far, in the order `ranked`
    for rank, n in enumerate(ranked):
        before, size = lives[:rank], values[n].size
        meeting = (before[:, 0] <= values[n].last) & (before[:, 1] >= values[n].first)
        taken = sorted(places[m] for m in meeting.nonzero()[0])
        begin = _gap(taken, size, tightest=tightest)
        places.append((begin, begin + size))
    offsets = {n: begin for n, (begin, _) in zip(ranked, places, strict=True)}
    return tuple(offsets[n] for n in range(len(values)))


def _gap(taken: Sequence[tuple[int, int]], size: int, *, tightest: bool) -> int:
    """The start of a free gap of this size; the end of all values when there is no gap."""
    end, found = 0, []
    for start, stop in taken:
        if start - end >= size:
            found.append((start - end, end))
        end = max(end, stop)
    if not found:
        return end
    return min(found)[1] if tightest else found[0][1]
