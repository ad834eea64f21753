"""Cheap pointwise stages vanish into their consumers.

Expensive ones (exp) are inlined only into a single pointwise consumer, where nothing is computed twice.
Padding in front of a reduction is left to the rule of that reduction, which decides where to copy it. A chain
is cut where the expression would be nested too deep.
"""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.ir.visit import MOST_NESTED
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.state import Stage, State, nested
from schedules.kit.stage_analysis import is_expensive, is_padding, matches_elementwise, untouched
from schedules.registry import Extension


def inline(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    consumers = state.consumers(stage)
    if (
        op.is_reduction
        or state.is_output(stage)
        or not consumers
        or not untouched(stage)
        or state.attached(stage.name)
        or any(nested(c.op, op) > MOST_NESTED for c in consumers)
    ):
        return ()
    feeds_reduction = any(c.op.is_reduction for c in consumers)
    if is_padding(op) and feeds_reduction:
        return ()
    if is_expensive(op):
        single = len(consumers) == 1 and matches_elementwise(consumers[0].op, op) and not feeds_reduction
        if not single:
            return ()
    return (Extension((Inline(stage.name),), done=(stage.name,)),)
