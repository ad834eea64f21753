"""Sums of products with a comparison's 0 or 1, if one pass over the remaining terms can compute all elements.

The sum as it is written is needed only for operands that are not finite. It is rarely computed, so it gets
plain loops.
"""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.state import Stage, State
from schedules.algorithms.chosen_products import NAME, chosen
from schedules.kit.stage_analysis import read_by_choice, undecided
from schedules.registry import Extension
from schedules.rules.one_pass import is_one_pass


def chosen_products(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if not undecided(state, stage):
        return ()
    found = chosen(stage.op)
    if found is None or not is_one_pass(found.op) or read_by_choice(state, stage):
        return ()
    step = UseAlgorithm(stage.name, NAME)
    new = [s.name for s in step.apply(state).stages if s.name not in state.names]
    if not new:
        return (Extension((step,), again=(stage.name,)),)
    harm, each, left = new
    first = stage.op.axes[0].name
    plain = (Parallel(each, first), Pragma(each, first, "skip_unread", "1"))  # no other rule changes it
    return (Extension((step, *plain), done=(each,), again=(harm, left, stage.name)),)
