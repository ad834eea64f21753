"""Lanes from a few stretches of memory: a load for each stretch, then shuffles.

    0, s, 2s, 3s, 1, s+1, …      four rows of bytes, interleaved       4 loads of 16 lanes, joined, permuted
    0, 4, 8, 12, …, 124          every fourth byte of two registers    2 loads of 64 lanes, permuted
    0, 1, 2, 3, s, s+1, …        words of bytes, one from each row     16 loads of 4 lanes, joined
    1, 3, 5, 7, …, 31            every other word, from 0 on           2 loads of 16 lanes, permuted

No instruction gathers lanes of fewer than 32 bits. Loaded one after another, each lane would cost a load and
a move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotensor.base.dtype import DType
from autotensor.codegen.llvm.function_writer import FunctionWriter, ty
from autotensor.codegen.shared_vectors import LEAST_LANES, MOST_LANES, MOST_SOURCES

REGISTER = 64  # bytes that one load may take
LANES_A_LOAD = 4  # least lanes that a load must bring, in the mean


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches of `width` elements that together hold all lanes, and the first element of each stretch."""

    width: int
    starts: tuple[int, ...]

    def part(self, t: DType) -> DType:
        return t.element.with_lanes(self.width)

    def place(self, offset: int) -> int:
        """The position of an element when the stretches are put side by side."""
        n = next(n for n, at in enumerate(self.starts) if at <= offset < at + self.width)
        return n * self.width + offset - self.starts[n]


def narrow_windows(t: DType, offsets: Sequence[int]) -> Windows | None:
    """The fewest stretches, and among these the narrowest; None if lanes are wide or too far apart.

    No stretch reaches beyond the first or the last lane.
    """
    lanes = len(offsets)
    if t.bits >= 32 or t.is_bool or lanes < LANES_A_LOAD:
        return None
    places = sorted(set(offsets))
    best: Windows | None = None
    width = LANES_A_LOAD
    while width * t.element.bytes <= REGISTER and width <= places[-1] - places[0] + 1:
        found = Windows(width, _covered(places, width))
        if lanes >= LANES_A_LOAD * len(found.starts) and (
            best is None or len(found.starts) < len(best.starts)
        ):
            best = found
        width *= 2
    return best


def between_steps(t: DType, start: int, offsets: Sequence[int]) -> Sequence[int]:
    """The offsets of neighbouring vectors of `t` that hold lanes of one step and all elements between these.

    start: the constant that is added to all offsets. The first vector begins at a multiple of the step. So
    A[2i] and A[2i + 1] have the same two vectors, which LLVM then loads once. The vectors may reach beyond
    the first and the last lane. () if lanes are narrow, few or far apart.
    """
    lanes, step = len(offsets), offsets[1] - offsets[0]
    if t.bits < 32 or not LEAST_LANES <= lanes <= MOST_LANES or lanes & (lanes - 1):
        return ()
    if not 1 < step <= MOST_SOURCES or any(b - a != step for a, b in pairwise(offsets)):
        return ()
    first = offsets[0] - (start + offsets[0]) % step
    return range(first, first + step * lanes, lanes)


def _covered(places: Sequence[int], width: int) -> tuple[int, ...]:
    """The first elements of stretches that hold all places."""
    starts: list[int] = []
    for at in places:
        if not starts or at >= starts[-1] + width:
            starts.append(min(at, places[-1] + 1 - width))  # no element beyond the last lane is read
    return tuple(starts)


def picked_from(
    w: FunctionWriter, t: DType, parts: Sequence[str], windows: Windows, offsets: Sequence[int]
) -> str:
    """The lanes at these offsets, from vectors that hold the stretches."""
    width, values = windows.width, list(parts)
    while len(values) > 1:
        kind = ty(t.element.with_lanes(width))
        if len(values) % 2:
            values.append("poison")
        order = ", ".join(f"i32 {k}" for k in range(2 * width))
        values = [
            w.op(f"shufflevector {kind} {a}, {kind} {b}, <{2 * width} x i32> <{order}>")
            for a, b in zip(values[::2], values[1::2], strict=True)
        ]
        width *= 2
    kind, places = ty(t.element.with_lanes(width)), [windows.place(o) for o in offsets]
    if places == list(range(width)):
        return values[0]
    order = ", ".join(f"i32 {k}" for k in places)
    return w.op(f"shufflevector {kind} {values[0]}, {kind} poison, <{len(places)} x i32> <{order}>")
