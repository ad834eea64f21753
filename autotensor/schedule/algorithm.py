"""Algorithms: equivalent sub-DAGs that a stage may be computed by.

The registry is here, so that a trace can name an algorithm; implementations are in `schedules/algorithms/`.
An algorithm takes a state and a stage and answers with stages that replace it: producers first, the last of
them writing the stage's own buffers under its name, and those of stages that it takes in. Workload and oracle
stay, so algorithms race in one task.
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

    `tolerance` is the error against float64 that it may have, relative to the output's largest element; None
    when it only reorders exact operations.
    """

    name: str
    expand: Expand  # None where it does not apply
    tolerance: float | None = None

    def stages(self, state: State, stage: Stage) -> tuple[StageOp, ...] | None:
        """The stages that compute a stage by it; None where it does not apply. Algorithms make sums of their
        own, which are over numbers: they do not apply where an extent that is summed over is known at run
        time only."""
        return None if stage.op.has_open_sum else self.expand(state, stage)


# the least share of a workload's counted operations that any algorithm executes: Winograd's F(4x4, 3x3)
# multiplies 36 times instead of 144
FEWEST_OPERATIONS = 0.25

ALGORITHMS: Registry[Algorithm] = Registry("algorithm")
