"""apart: sums the terms of one iteration of a reduction loop separately, and then adds them to the rest.

    C = 0                                  C = 0
    for k0: for k1: for j in tile:         for k0:
      C[j] += f(k0, k1, j)         ──▶       P = 0
                                             for k1: for j in tile: P[j] += f(k0, k1, j)
                                             for j in tile: C[j] += P[j]

Long sums lose less to rounding in this way (Higham, "The accuracy of floating point summation", SIAM J. Sci.
Comput. 1993). A register tile P keeps the registers, and the values of C wait on the stack while P is summed.
The pragma `sum_apart` turns this on. It changes nothing inside a vectorized loop, or where lanes are summed
separately anyway (by_lanes.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.ir.expr import Expr, Var
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.stmt import Stmt
from autotensor.lowering.nest.update import Place, allocated, loaded
from autotensor.schedule.axis import Axis, Mark
from autotensor.schedule.state import Stage
from autotensor.te.tensor import AxisKind


def is_apart(stage: Stage, leaf: Axis) -> bool:
    """Whether the terms of an iteration of the loop are summed separately."""
    asked = any(axis == leaf.name and key == "sum_apart" for axis, key, _ in stage.pragmas)
    if not asked or leaf.kind is not AxisKind.REDUCE:
        return False
    outside = stage.leaves[: stage.leaves.index(leaf)]
    lanes = [a for a in stage.leaves if a.mark is Mark.VECTORIZED]
    return not any(a.kind is AxisKind.REDUCE or a in outside for a in lanes)


@dataclass(frozen=True, slots=True)
class Part:
    """The accumulators of one iteration."""

    # the buffers to which the accumulators are added, one for each output; a part may consist of parts
    wholes: tuple[Buffer, ...]
    loops: tuple[tuple[Var, int], ...]  # with their extents

    @property
    def targets(self) -> tuple[Place, ...]:
        """The buffer and indices where the stage accumulates, for each output."""
        index, shape = tuple(var for var, _ in self.loops), tuple(extent for _, extent in self.loops)
        return tuple((Buffer(f"{b.name}.part", shape, b.dtype, Scope.LOCAL), index) for b in self.wholes)

    @property
    def results(self) -> tuple[Expr, ...]:
        return loaded(self.targets)

    def around(self, body: Stmt) -> Stmt:
        """The statement inside the allocation of the accumulators."""
        return allocated(self.targets, body)
