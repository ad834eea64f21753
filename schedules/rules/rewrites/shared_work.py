"""Stages or neighbouring elements that share work do it once, or each of them does it.

    weights = Σ w(i, j, a, b)                         two windows, in which each weight is computed twice
    values  = Σ w(i, j, a, b) * x[i + a, j + b]       ──▶   one window of two results (`siblings`)

    M[i] = max_{r < 9} x[i + r]    ──▶    shorter windows, which neighbours share (`shared_windows`)

The rule runs before any decision, on all stages at once, because places of later stages depend on the result.

Joined siblings are the default if they seem faster. For reductions, the rule counts the operations and loads
of a term, each of them once. The gain must be clear, because in the joined form each sum has fewer registers,
and fewer rules apply. For pointwise results, the rule counts the bytes that are read and written. If all of
them fit into the caches of the cores, joined loops are not faster. The rule joins siblings before it shortens
windows, because joined windows share loads. Shorter windows are the default if they clearly take fewer
operations, loads and stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotensor.base.target import Target
from autotensor.ir.expr import Load
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import StageOp
from schedules.algorithms import shared_windows as windows
from schedules.algorithms import siblings
from schedules.algorithms.written_windows import as_reductions
from schedules.cpu import cpu_of
from schedules.kit.body_work import fused_joins, is_whole, joins, vector_operations
from schedules.kit.stage_analysis import is_constant, lanes_of, second_cache, undecided, walks_one_row
from schedules.registry import Extension, in_turn

# the joined form is the default if separate siblings have at least this many times as much work
SURE = 1.15
# shorter windows are the default if whole ones take this many times as many operations (chosen, 2026-11)
SURE_OF_WINDOWS = 1.2
# The same for sums, whose joins are single operations. Stored parts cost more than the count says: 3x3
# squares are 0.85 times as fast at a count of 1.8; 5x5 1.6 to 1.8, 7x7 3.1, 13x13 4.3 times (Zen 4, 2026-11).
SURE_OF_SUMS = 2.0


def shared_work(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind == "llvm" and stage.name == state.names[-1]:
        yield from in_turn((_siblings, _windows), state, stage, target)


def _offers(found: Mapping[UseAlgorithm, bool], stage: Stage) -> Iterator[Extension]:
    """First the steps of which the rule is sure, then all steps, then no steps."""
    sure = tuple(step for step, is_sure in found.items() if is_sure)
    for steps in dict.fromkeys((sure, tuple(found), ())) if found else ():
        yield Extension(steps, again=(stage.name,)) if steps else Extension(onward=True)


def _siblings(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if state == State.initial(state.dag):
        yield from _offers({step: gain >= SURE for step, gain in _joins(state, target)}, stage)


def _joins(state: State, target: Target) -> Iterator[tuple[UseAlgorithm, float]]:
    """The steps that join siblings, the last stage first; each with the work without the step, divided by the
    work with it."""
    for name in reversed(state.names):
        if not state.has(name):
            continue
        stage = state.stage(name)
        others = siblings.siblings_of(state, stage)
        if others:
            step = UseAlgorithm(name, siblings.NAME)
            yield step, _gain(state, others, stage.op, target)
            state = step.apply(state)


def _gain(state: State, others: tuple[StageOp, ...], op: StageOp, target: Target) -> float:
    """The work of separate siblings, divided by the work if they are joined."""
    apart = [siblings.written_out(state, o) for o in (*others, op)]
    joined = siblings.written_out(state, siblings.together(others, op))
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
    read = {e.buffer for e in siblings.own_work(op) if isinstance(e, Load)}
    return float(sum(b.bytes for b in (*read, *op.buffers)))


def _work(op: StageOp, called: float) -> float:
    """The vector operations and loads for one term of one element only, including joins."""
    own = siblings.own_work(op)
    loads = sum(isinstance(e, Load) for e in own)
    operations = sum(vector_operations(e, called) for e in own if not is_whole(e))
    return operations + loads + joins(op, called) - fused_joins(op)


def _windows(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    found: dict[UseAlgorithm, bool] = {}
    for s in state.stages:
        if gain := _shorter(state, s):
            least = SURE_OF_SUMS if windows.is_sum(s.op) else SURE_OF_WINDOWS
            found[UseAlgorithm(s.name, windows.NAME)] = gain >= least
    yield from _offers(found, stage)


def _shorter(state: State, stage: Stage) -> float:
    """The operations of a stage as it is, divided by those with shared windows; 0 if nothing is shared."""
    if not undecided(state, stage) or is_constant(state, stage):
        return 0.0
    names = frozenset(state.names)
    made = windows.parts_of(stage.op, names)
    return 0.0 if made is None else windows.work(as_reductions(stage.op, names)) / windows.work(made)
