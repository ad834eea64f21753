"""Independent stages that share work: they become one stage with several results, or stay separate.

    weights = Σ w(i, j, a, b)                         two windows, in which each weight is computed twice
    values  = Σ w(i, j, a, b) * x[i + a, j + b]       ──▶   one window of two results

The rule runs before any decision, on all stages at once, because places of later stages depend on the result.
The joined form comes first if it seems faster. For reductions, the operations and loads of a term are
counted, each once: in the joined form, each sum has fewer registers, and fewer rules apply. For pointwise
results, the bytes that are read and written are counted. If all of them stay in the caches of the cores,
joined loops are not faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotensor.base.target import Target
from autotensor.ir.expr import Load
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import StageOp
from schedules.algorithms.siblings import NAME, own_work, siblings_of, together, written_out
from schedules.cpu import cpu_of
from schedules.kit.body_work import fused_joins, is_whole, joins, vector_operations
from schedules.kit.stage_analysis import lanes_of, second_cache, walks_one_row
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
    for name in reversed(state.names):
        if not state.has(name):
            continue
        stage = state.stage(name)
        others = siblings_of(state, stage)
        if others:
            step = UseAlgorithm(name, NAME)
            yield step, _gain(state, others, stage.op, target)
            state = step.apply(state)


def _gain(state: State, others: tuple[StageOp, ...], op: StageOp, target: Target) -> float:
    """The work of separate siblings, divided by the work if they are joined."""
    apart, joined = [written_out(state, o) for o in (*others, op)], written_out(state, together(others, op))
    if op.is_reduction:
        called = cpu_of(target).called
        return sum(_work(o, called) for o in apart) / _work(joined, called)
    moved = _moved(joined)
    near = moved <= second_cache(target) * target.num_cores
    return 0.0 if near or _loses_loops(state, apart, joined, target) else sum(map(_moved, apart)) / moved


def _loses_loops(state: State, apart: Sequence[StageOp], joined: StageOp, target: Target) -> bool:
    """Whether separate stages have better loops: more than one is computed in the loops of a reduction, or
    only some are a single row, whose vectors lie at multiples of their size."""
    sums = {p.name for b in joined.reads() if (p := state.producer(b)) is not None and p.op.is_reduction}
    ragged = joined.axes[-1].extent % lanes_of(joined, target) != 0
    return len(sums) > 1 or (ragged and len({walks_one_row(o) for o in apart}) > 1)


def _moved(op: StageOp) -> float:
    """The bytes that a pointwise stage reads and writes, of tensors that have an element for each point."""
    read = {e.buffer for e in own_work(op) if isinstance(e, Load)}
    return float(sum(b.bytes for b in (*read, *op.buffers)))


def _work(op: StageOp, called: float) -> float:
    """The vector operations and loads for one term of one element only, including joins."""
    own = own_work(op)
    loads = sum(isinstance(e, Load) for e in own)
    operations = sum(vector_operations(e, called) for e in own if not is_whole(e))
    return operations + loads + joins(op, called) - fused_joins(op)


__all__ = ["siblings"]
