"""apart: the terms that one iteration of a reduction loop adds are summed by themselves, then added to the
rest.

    C = 0                                  C = 0
    for k0: for k1: for j in tile:         for k0:
      C[j] += f(k0, k1, j)         ──▶       P = 0
                                             for k1: for j in tile: P[j] += f(k0, k1, j)
                                             for j in tile: C[j] += P[j]

Long sums lose less to rounding that way (Higham, "The accuracy of floating point summation", SIAM J. Sci.
Comput. 1993). A register tile P keeps the registers; the values of C wait on the stack while P is summed. The
pragma `sum_apart` turns this on. It changes nothing inside of a vectorized loop, nor where lanes are summed
apart anyway (by_lanes.py).
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
    """Whether the terms that an iteration of the loop adds are to be summed by themselves."""
    asked = any(axis == leaf.name and key == "sum_apart" for axis, key, _ in stage.pragmas)
    if not asked or leaf.kind is not AxisKind.REDUCE:
        return False
    outside = stage.leaves[: stage.leaves.index(leaf)]
    lanes = [a for a in stage.leaves if a.mark is Mark.VECTORIZED]
    return not any(a.kind is AxisKind.REDUCE or a in outside for a in lanes)


@dataclass(frozen=True, slots=True)
class Part:
    """The accumulators of one iteration."""

    # the buffers that they are added to, one per output: a part may be made of parts
    wholes: tuple[Buffer, ...]
    loops: tuple[tuple[Var, int], ...]  # with their extents

    @property
    def targets(self) -> tuple[Place, ...]:
        """Where the stage accumulates, per output."""
        index, shape = tuple(var for var, _ in self.loops), tuple(extent for _, extent in self.loops)
        return tuple((Buffer(f"{b.name}.part", shape, b.dtype, Scope.LOCAL), index) for b in self.wholes)

    @property
    def results(self) -> tuple[Expr, ...]:
        return loaded(self.targets)

    def around(self, body: Stmt) -> Stmt:
        """The statement in which they exist."""
        return allocated(self.targets, body)
