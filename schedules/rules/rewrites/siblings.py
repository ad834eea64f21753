"""Independent reductions that share work: they become one reduction, or stay separate.

    weights = Σ w(i, j, a, b)                         two windows, in which each weight is computed twice
    values  = Σ w(i, j, a, b) * x[i + a, j + b]       ──▶   one window of two results

The rule runs before any decision, on all stages at once, because places of later stages depend on the result.
The joined form comes first if it seems faster, by the operations and loads of a term, each counted once. In
the joined form, each sum has fewer registers, and fewer rules apply.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.ir.expr import Load
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import StageOp
from schedules.algorithms.siblings import NAME, own_work, siblings_of, together
from schedules.cpu import cpu_of
from schedules.kit.body_work import fused_joins, is_whole, joins, vector_operations
from schedules.registry import Extension

# the joined form comes first if separate siblings have this many times as much work
SURE = 1.15


def siblings(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm" or stage.name != state.names[-1] or state != State.initial(state.dag):
        return
    found = dict(_joins(state, target))
    sure = tuple(step for step, gain in found.items() if gain >= SURE)
    if not found:
        return
    for steps in dict.fromkeys((sure, tuple(found), ())):
        yield Extension(steps, again=(stage.name,)) if steps else Extension(onward=True)


def _joins(state: State, target: Target) -> Iterator[tuple[UseAlgorithm, float]]:
    """The steps that join siblings, the last stage first; each with the work without the step, divided by the
    work with it."""
    called = cpu_of(target).called
    for name in reversed(state.names):
        if not state.has(name):
            continue
        stage = state.stage(name)
        others = siblings_of(state, stage)
        if others:
            step = UseAlgorithm(name, NAME)
            apart = sum(_work(op, called) for op in (*others, stage.op))
            yield step, apart / _work(together(others, stage.op), called)
            state = step.apply(state)


def _work(op: StageOp, called: float) -> float:
    """The vector operations and loads for one term of one element only, including joins."""
    own = own_work(op)
    loads = sum(isinstance(e, Load) for e in own)
    operations = sum(vector_operations(e, called) for e in own if not is_whole(e))
    return operations + loads + joins(op, called) - fused_joins(op)


__all__ = ["siblings"]
