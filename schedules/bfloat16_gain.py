"""Decides whether bfloat16 dot instructions make a product faster than float32, even than Winograd's method.

pays_in_bfloat16(dag, parse("llvm -mcpu=znver4"))       ResNet's 1x1 convolutions yes, 3x3 of 56x56x64 no
"""

from __future__ import annotations

from autotensor.base.dtype import bfloat16
from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import available
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.kit.dot_uses import gain
from schedules.rules.tiles.winograd import winograd_gain


def pays_in_bfloat16(dag: ComputeDAG, target: Target) -> bool:
    """Whether, by the processor's record, its bfloat16 instruction is faster than every method in float32."""
    state = State.initial(dag)
    direct = max((gain(dot, target) for dot in available(target) if dot.a.dtype == bfloat16), default=0.0)
    sums = [s for s in state.stages if s.op.is_reduction]
    return direct > max([1.0, *(winograd_gain(state, s, target) for s in sums)])
