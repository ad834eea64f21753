"""tensorize: one instruction computes a loop and everything inside it."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.base.plugins import plugin
from autotensor.codegen.c.tensor_intrinsics import INTRINSICS, Mma, intrinsic
from autotensor.codegen.declared_intrinsics import Declared
from autotensor.codegen.dot_instructions import DotInstruction, known_dots
from autotensor.schedule.axis import Mark
from autotensor.schedule.state import State
from autotensor.schedule.step import AxisName, StageName, Word, step
from autotensor.te.tensor import AxisKind


@step
class Tensorize:
    """Computes a loop, and the loops inside it, by one instruction.

        for k.1 in 0..8: for v in 0..2: for j in 0..2:
          C[v, j] += A[lane//4 + 8*v, k.1] * B[k.1, lane%4*2 + j]
            ──Tensorize("C.local", "k.1", "mma.m16n8k8.tf32")──▶     mma.sync, by all 32 lanes

    The loops keep their meaning, and the interpreter runs them as loops. Lowering refuses a target without
    this instruction, and checks that the loops compute the same as the instruction. threadIdx.x must be a
    warp of 32 threads, and the loop over rows 8 apart must be a virtual thread or serial. tf32 rounds
    operands to 10 bits of mantissa.
    An instruction of a plug-in's target (`codegen/declared_intrinsics.py`) may compute any loop:

        s[C].tensorize("y.1", "vdlc.dma_copy2d")     the loops y.1 and x.1 are one copy

    A dot instruction of a CPU (`codegen/dot_instructions.py`) may also compute a loop. The loop over columns
    becomes a vector. If the last group is not whole, vectors compute the rest:

        for j.1 in 0..16: for k.1 in 0..4: C[j.1] += i32(A[k.1]) * i32(W[j.1, k.1])
          ──Tensorize("C.local", "j.1", "x86.vpdpbusd.512")──▶     vpdpbusd

    Raises ScheduleError for an unknown instruction, a marked loop, or a loop over the rows of a tensor core's
    instruction.
    Source: `tensorize` of TVM (Chen et al., OSDI 2018).
    """

    stage: StageName
    axis: AxisName
    instruction: Word

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        axis = stage.leaf(self.axis)
        meant: Mma | Declared | DotInstruction | None = intrinsic(self.instruction)
        if self.instruction in known_dots():
            meant = known_dots().get(self.instruction)
        if meant is None:
            raise ScheduleError(
                f"tensorize: instruction {self.instruction!r} is unknown.",
                fix=f"Known: {', '.join(_known(self.instruction))}.",
            )
        if isinstance(meant, Mma) and (axis.mark, axis.kind) != (Mark.SERIAL, AxisKind.REDUCE):
            raise ScheduleError(
                f"tensorize: axis {axis.name!r} of stage {stage.name!r} is not a plain reduction loop.",
                fix=f"Split the reduction by {meant.depth}, tensorize the inner loop.",
            )
        combiner = stage.op.combiner
        if isinstance(meant, DotInstruction) and (combiner is None or combiner.name != "sum"):
            raise ScheduleError(
                f"tensorize: stage {stage.name!r} has no sum; {self.instruction} adds products to sums.",
                fix="Tensorize the stage that has the reduction.",
            )
        if axis.mark is not Mark.SERIAL:
            raise ScheduleError(
                f"tensorize: axis {axis.name!r} of stage {stage.name!r} is {axis.mark.value} already.",
                fix="Tensorize plain loops only.",
            )
        mark = Mark.VECTORIZED if isinstance(meant, DotInstruction) else Mark.UNROLLED
        marked = replace(axis, mark=mark, thread=self.instruction)
        return state.with_stage(stage.replacing(axis.name, marked))

    def call(self) -> str:
        return f's["{self.stage}"].tensorize("{self.axis}", "{self.instruction}")'


def _known(name: str) -> tuple[str, ...]:
    """Instructions that `name` may mean: those of tensor cores, CPUs, and the target at its beginning."""
    brought = plugin(name.partition(".")[0])
    return (*INTRINSICS, *known_dots(), *(() if brought is None else brought.intrinsics))
