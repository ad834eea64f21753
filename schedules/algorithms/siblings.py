"""Independent stages that share work become one stage with several results.

    S[i] = Σ_k w(i, k)               S[i], T[i] = Σ_k (w, w * y[k])     with w = w(i, k), evaluated once
    T[i] = Σ_k w(i, k) * y[k]  ──▶

    A[i, j] = f(x[i, j])             A[i, j], B[i, j] = f(x), g(f(x), x, y[j])     with x = x[i, j], read once
    B[i, j] = g(A[i, j], x[i, j], y[j])  ──▶

Siblings have axes with the same extents. They are reductions of which none needs the result of another, or
pointwise results of the program that only siblings read, at their own points. Each keeps its reducer, its
terms and their order, so the results do not change. The last sibling becomes the joined stage. Readers of the
other siblings come after it.

Shared work counts only if no other element and no other term needs it. For example, an operand of a product
is used by many elements, and register tiles share it better. Pointwise stages that may still be inlined into
a sibling count as parts of the sibling.
"""

from __future__ import annotations

from dataclasses import replace

from autotensor.ir.bounds import is_data
from autotensor.ir.expr import Expr, Select
from autotensor.ir.reducers import beside
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import MOST_NESTED, free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.inlining import inline_into
from autotensor.schedule.state import Root, Stage, State, nested
from autotensor.te.stage import StageOp, evaluated
from autotensor.te.terms import ranking, solutions

NAME = "siblings"
DEEP = 16  # most stages that are counted as parts of a sibling


def siblings(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The joined stage; None if no other stage shares work with the stage."""
    found = siblings_of(state, stage)
    return (together(found, stage.op),) if found else None


def siblings_of(state: State, stage: Stage) -> tuple[StageOp, ...]:
    """The stages before a stage that can be joined with it, and that share work with it or each other."""
    if not _can_join(state, stage) or stage.op.has_open_sum:
        return ()
    found: list[StageOp] = []
    shared = own_work(written_out(state, stage.op))
    for s in reversed(state.stages[: state.names.index(stage.name)]):
        group = (*found, stage.op)
        if not _same_extents(s.op, stage.op) or not _can_join(state, s) or not _fits(state, s, group):
            continue
        mine = own_work(_in_axes_of(written_out(state, s.op), stage.op))
        if mine & shared or any(b in op.reads() for op in group for b in s.op.buffers):
            found.insert(0, s.op)
            shared |= mine
    return tuple(found)


def together(others: tuple[StageOp, ...], op: StageOp) -> StageOp:
    """The stage `op` with the results of the other stages before its own results, in the axes of `op`. If
    a later result reads an earlier one, the earlier one's expression is written in place of the read."""
    ops: list[StageOp] = []
    for o in (*others, op):
        mine = _in_axes_of(o, op)
        for before in ops:
            mine = inline_into(mine, before) if not {*before.buffers}.isdisjoint(mine.reads()) else mine
        ops.append(mine)
    combiners = [o.combiner for o in ops if o.combiner is not None]
    return replace(
        op,
        bodies=tuple(b for o in ops for b in o.bodies),
        combiner=beside(combiners) if combiners else None,
        buffers=tuple(b for o in ops for b in o.buffers),
    )


def own_work(op: StageOp) -> frozenset[Expr]:
    """The operations and loads for one term of one element only: they depend on all axes longer than 1, and
    on the term."""
    axes = {a.var for a in op.axes if a.extent > 1}
    terms = {a.var for a in op.reduce_axes}
    candidates = (*evaluated(op.bodies), *op.loads())
    return frozenset(
        e for e in candidates if axes <= (names := free_vars(e)) and (not terms or terms & names)
    )


def written_out(state: State, op: StageOp) -> StageOp:
    """The op, with expressions in place of the pointwise stages that may be inlined, and that it reads once
    for each of its points or terms."""
    for _ in range(DEEP):
        sources = (p.op for b in op.reads() if (p := state.producer(b)) is not None and _may_vanish(state, p))
        source = next((o for o in sources if _is_read_by_points(op, o)), None)
        if source is None or nested(op, source) > MOST_NESTED:
            break
        op = inline_into(op, source)
    return op


def _may_vanish(state: State, stage: Stage) -> bool:
    plain = stage.op.combiner is None and isinstance(stage.place, Root) and not stage.touched
    return plain and not state.is_output(stage) and stage.name not in state.constant_stages()


def _is_read_by_points(op: StageOp, source: StageOp) -> bool:
    """Whether each point or term of the op reads one element of the source, which no other one reads."""
    axes = {a.var for a in op.all_axes if a.extent > 1}
    read = [x.indices for x in op.loads() if x.buffer in source.buffers]
    return all(axes <= set(indices) for indices in read)


def _can_join(state: State, stage: Stage) -> bool:
    """Whether a stage has no decisions yet, and is a reduction that needs all its terms or a pointwise result
    of the program."""
    op = stage.op
    if stage.touched or not isinstance(stage.place, Root) or state.attached(op.name):
        return False
    if op.name in state.constant_stages():
        return False
    if op.combiner is None:
        return state.is_output(stage) and bool(op.axes) and not state.dag.carried
    return not _leaves_terms_out(op)


def _fits(state: State, stage: Stage, group: tuple[StageOp, ...]) -> bool:
    """Whether a stage can be computed together with a group that comes after it."""
    if stage.op.combiner is not None:
        return not any(stage.name in _needed(state, op) for op in group)
    return all(c.op in group and _is_read_here(c.op, stage.op) for c in state.consumers(stage))


def _is_read_here(reader: StageOp, op: StageOp) -> bool:
    """Whether a reader reads an op with the same extents only at its own point."""
    point = tuple(a.var for a in reader.axes)
    return all(x.indices == point for x in reader.loads() if x.buffer in op.buffers)


def _leaves_terms_out(op: StageOp) -> bool:
    """Whether the terms have a condition that does not depend on data, or that sorts or scatters them. For
    one result, loops over such terms are cut, or become one pass."""
    match op.bodies:
        case (Select(cond, _, _),):
            return not is_data(cond) or bool(solutions(op)) or ranking(op) is not None
    return False


def _same_extents(a: StageOp, b: StageOp) -> bool:
    def extents(op: StageOp) -> tuple[list[Expr], list[Expr]]:
        return [x.size for x in op.axes], [x.size for x in op.reduce_axes]

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
