"""Accumulators of a vectorized reduction loop: one element for each lane, joined after the loop.

    for k1 in vectorized(16):             for k1 in vectorized(16): L[k1] = identity
      for k0: C += f(k0, k1)     ──▶      for k1 in vectorized(16): for k0: L[k1] += f(k0, k1)
                                          for k1 in vectorized(16): C += L[k1]

Spatial loops inside the vectorized one add dimensions to L. The last loop becomes a tree: `join_lanes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.ir.expr import Expr, Var
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.stmt import ForKind, Stmt, for_range
from autotensor.lowering.nest.update import Place, allocated, loaded, store_all
from autotensor.lowering.passes.join_lanes import lanes_name
from autotensor.te.dag import StageOp

Loop = tuple[Var, int, ForKind]  # variable, extent, kind


@dataclass(frozen=True, slots=True)
class LaneAccumulators:
    """The accumulators of a stage. `loops`: the spatial loops inside, and then the vectorized loop."""

    op: StageOp
    loops: tuple[Loop, ...]

    @property
    def index(self) -> tuple[Expr, ...]:
        return tuple(var for var, _, _ in self.loops)

    @property
    def targets(self) -> tuple[Place, ...]:
        """The buffer and indices where the stage accumulates, for each output."""
        shape = tuple(extent for _, extent, _ in self.loops)
        return tuple(
            (Buffer(lanes_name(b), shape, b.dtype, Scope.LOCAL), self.index) for b in self.op.buffers
        )

    @property
    def results(self) -> tuple[Expr, ...]:
        return loaded(self.targets)

    def cleared(self) -> Stmt:
        """Sets all accumulators to the identity."""
        assert self.op.combiner is not None
        identity = self.op.combiner.identity
        body = store_all(self.targets, identity)
        for var, extent, kind in reversed(self.loops):
            body = for_range(var, extent, body, kind)
        return body

    def over_lanes(self, body: Stmt) -> Stmt:
        var, extent, kind = self.loops[-1]
        return for_range(var, extent, body, kind)

    def around(self, body: Stmt) -> Stmt:
        """The statement inside the allocation of the accumulators."""
        return allocated(self.targets, body)
