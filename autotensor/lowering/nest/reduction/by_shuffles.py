"""shuffle: joins the partial results of a reduction by exchanging values within warps.

    P = …                                            each thread has its own part
    P += shuffle_xor(P, 16); P += shuffle_xor(P, 8); … P += shuffle_xor(P, 1)
                                                     now all lanes have the sum of their warp
    if tx % 32 < 1: R[tx // 32] = P                  several warps need one step through shared memory
    P = 0; if tx % 32 % 4 < 4: P = R[tx % 32 % 4]
    P += shuffle_xor(P, 2); P += shuffle_xor(P, 1)

Afterwards every thread has the result in a register. If the target has no shuffle instructions, or if some
threads of a warp do not take part, the parts are joined in shared memory (`by_threads.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from autotensor.ir.expr import Call, Cmp, Expr, compare, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.stmt import If, Stmt, seq
from autotensor.lowering.device_features import Device
from autotensor.lowering.nest.reduction.by_threads import Across
from autotensor.lowering.nest.update import Place, allocated, loaded, store_all, update

LANE_AXIS = "threadIdx.x"
SHUFFLE = "shuffle_xor"  # takes a value and a mask; returns the value of lane (own lane xor mask)


@dataclass(frozen=True, slots=True)
class WarpLanes:
    """The threads of a row that exchange values."""

    count: int  # threads of a row in one warp; a power of two
    warps: int  # warps of a row


def warp_lanes(across: Across, block: Mapping[str, int], device: Device) -> WarpLanes | None:
    """How the threads that join their parts form warps; None if they cannot exchange values.

    Rows of threads must be whole warps or divide one, and all threads of the block must take part, because an
    absent lane has no value to give.
    """
    if device.warp < 2 or len(across.joining) != 1 or across.joining[0].axis != LANE_AXIS:
        return None
    extent = across.joining[0].extent
    if any(row.extent != block[row.axis] for row in (*across.rows, *across.joining)):
        return None
    if prod(block.values()) % device.warp or extent < 2:
        return None
    if extent % device.warp == 0:
        return WarpLanes(device.warp, extent // device.warp)
    return WarpLanes(extent, 1) if extent < device.warp and extent & (extent - 1) == 0 else None


@dataclass(frozen=True, slots=True)
class Shuffled(Across):
    """The partial results of one reduction, joined without a tree in shared memory."""

    lanes: WarpLanes = WarpLanes(1, 1)

    @property
    def count(self) -> int:
        """The number of elements of shared memory for a row."""
        return self.lanes.warps

    @property
    def results(self) -> tuple[Expr, ...]:
        return loaded(self.parts)

    @property
    def other(self) -> list[Place]:
        """For each output, the place for the value that a thread receives."""
        return [(Buffer(f"{b.name}.other", (), b.dtype, Scope.LOCAL), ()) for b in self.op.buffers]

    def join(self, name: str) -> Stmt:
        """The statements that join the parts. name: the stage's name, for names of temporary variables."""
        steps = self._exchanged(name, self.lanes.count)
        if self.lanes.warps > 1:
            assert self.op.combiner is not None
            size = self.lanes.count
            around = 1 << (self.lanes.warps - 1).bit_length()  # number of lanes that join the warps' results
            lane = self.number % size
            first = If(
                compare(Cmp.LT, lane, const(1)),
                store_all(self.shared(self.number // size), self.results),
            )
            mine = lane % around
            fetch = store_all(self.parts, loaded(self.shared(mine)))
            if around > self.lanes.warps:
                fetch = If(compare(Cmp.LT, mine, const(self.lanes.warps)), fetch)
            steps += [
                first,
                store_all(self.parts, self.op.combiner.identity),
                fetch,
                *self._exchanged(f"{name}:warps", around),
            ]
        return self._all(seq(*steps))

    def _exchanged(self, name: str, count: int) -> list[Stmt]:
        """Exchanges after which each of `count` neighbouring lanes has the joined result."""
        assert self.op.combiner is not None
        steps: list[Stmt] = []
        while count > 1:
            count //= 2
            values = tuple(Call(SHUFFLE, (x, const(count)), x.dtype) for x in self.results)
            steps.append(store_all(self.other, values))
            got = loaded(self.other)
            steps.append(update(f"{name}:{count}", self.op.combiner, self.parts, got))
        return steps

    def around(self, body: Stmt) -> Stmt:
        """The body inside the allocation of the parts, and of the shared rows if there are any."""
        shared = self.shared(const(0)) if self.lanes.warps > 1 else []
        return allocated((*self.other, *shared, *self.parts), body)


__all__ = ["SHUFFLE", "Shuffled", "WarpLanes", "warp_lanes"]
