"""Independent reductions that share work become one reduction with several results.

    S[i] = Σ_k w(i, k)               S[i], T[i] = Σ_k (w, w * y[k])     with w = w(i, k), evaluated once
    T[i] = Σ_k w(i, k) * y[k]  ──▶

Siblings have axes with the same extents, and none needs the result of another. Each keeps its reducer, its
terms and their order, so the results do not change. The last sibling becomes the joined reduction. Readers of
the other siblings come after it.

Shared work counts only if no other element and no other term needs it. For example, an operand of a product
is used by many elements, and register tiles share it better.
"""

from __future__ import annotations

from dataclasses import replace

from autotensor.ir.bounds import is_data
from autotensor.ir.expr import Expr, Select
from autotensor.ir.reducers import beside
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.state import Root, Stage, State
from autotensor.te.stage import StageOp, evaluated
from autotensor.te.terms import ranking, solutions

NAME = "siblings"


def siblings(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The joined reduction; None if no other reduction shares work with the stage."""
    found = siblings_of(state, stage)
    return (together(found, stage.op),) if found else None


def siblings_of(state: State, stage: Stage) -> tuple[StageOp, ...]:
    """The reductions before a stage that can be joined with it, and that share work with it or each other."""
    if not _can_join(state, stage) or stage.op.has_open_sum:
        return ()
    found: list[StageOp] = []
    shared = own_work(stage.op)
    for s in reversed(state.stages[: state.names.index(stage.name)]):
        if not _same_extents(s.op, stage.op) or not _can_join(state, s):
            continue
        needed = [_needed(state, op) for op in (stage.op, *found)]
        if any(s.name in names for names in needed):
            continue
        mine = own_work(_in_axes_of(s.op, stage.op))
        if mine & shared:
            found.insert(0, s.op)
            shared |= mine
    return tuple(found)


def together(others: tuple[StageOp, ...], op: StageOp) -> StageOp:
    """The reduction `op` with the results of the other reductions before its own results, in the axes of
    `op`."""
    ops = [*(_in_axes_of(o, op) for o in others), op]
    return replace(
        op,
        bodies=tuple(b for o in ops for b in o.bodies),
        combiner=beside([o.combiner for o in ops if o.combiner is not None]),
        buffers=tuple(b for o in ops for b in o.buffers),
    )


def own_work(op: StageOp) -> frozenset[Expr]:
    """The operations and loads for one term of one element only: they depend on all axes longer than 1, and
    on the term."""
    axes = {a.var for a in op.axes if a.extent > 1}
    terms = {a.var for a in op.reduce_axes}
    candidates = (*evaluated(op.bodies), *op.loads())
    return frozenset(e for e in candidates if axes <= (names := free_vars(e)) and terms & names)


def _can_join(state: State, stage: Stage) -> bool:
    """Whether a stage is a reduction that has no decisions yet and needs all its terms."""
    op = stage.op
    if op.combiner is None or stage.touched or not isinstance(stage.place, Root) or state.attached(op.name):
        return False
    return op.name not in state.constant_stages() and not _leaves_terms_out(op)


def _leaves_terms_out(op: StageOp) -> bool:
    """Whether the terms have a condition that does not depend on data, or that sorts or scatters them. For
    one result, loops over such terms are cut, or become one pass."""
    match op.bodies:
        case (Select(cond, _, _),):
            return not is_data(cond) or bool(solutions(op)) or ranking(op) is not None
    return False


def _same_extents(a: StageOp, b: StageOp) -> bool:
    def extents(op: StageOp) -> tuple[list[int], list[int]]:
        return [x.extent for x in op.axes], [x.extent for x in op.reduce_axes]

    return extents(a) == extents(b)


def _in_axes_of(op: StageOp, other: StageOp) -> StageOp:
    """The op rewritten to the axes of another op, which have the same extents."""
    names = {a.var: b.var for a, b in zip(op.all_axes, other.all_axes, strict=True)}
    bodies = tuple(substitute(b, names) for b in op.bodies)
    return replace(op, axes=other.axes, reduce_axes=other.reduce_axes, bodies=bodies)


def _needed(state: State, op: StageOp) -> frozenset[str]:
    """The names of the stages on which an op depends."""
    found: set[str] = set()
    waiting = [op]
    while waiting:
        for buffer in waiting.pop().reads():
            producer = state.producer(buffer)
            if producer is not None and producer.name not in found:
                found.add(producer.name)
                waiting.append(producer.op)
    return frozenset(found)


ALGORITHMS.add(NAME, Algorithm(NAME, siblings))
