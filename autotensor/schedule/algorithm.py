"""Algorithms: equivalent sub-DAGs by which a stage may be computed.

The registry is here, so that a trace can name an algorithm. The implementations are in
`schedules/algorithms/`. An algorithm takes a state and a stage, and returns the stages that replace it,
producers first. The last of these writes the stage's own buffers under the stage's name. It also writes the
buffers of other stages that the algorithm takes over. Workload and oracle do not change, so algorithms
compete in one task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotensor.base.registry import Registry
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp

Expand = Callable[[State, Stage], tuple[StageOp, ...] | None]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A way to compute a stage.

    `tolerance` is the largest allowed error against float64, relative to the output's largest element. It is
    None if the algorithm only reorders exact operations.
    """

    name: str
    expand: Expand  # returns None if the algorithm does not apply
    tolerance: float | None = None

    def stages(self, state: State, stage: Stage) -> tuple[StageOp, ...] | None:
        """The stages that compute `stage` by this algorithm; None if the algorithm does not apply. Algorithms
        make sums of their own, whose extents must be numbers. So they do not apply if the extent of a sum is
        known only at run time."""
        return None if stage.op.has_open_sum else self.expand(state, stage)


# the smallest share of a workload's counted operations that any algorithm executes: Winograd's F(4x4, 3x3)
# multiplies 36 times instead of 144 times
FEWEST_OPERATIONS = 0.25

ALGORITHMS: Registry[Algorithm] = Registry("algorithm")
