"""Loops of `solve` and `scan`: variables whose values are known replace these loops.

solved      i.1 = p[k] - i.0*64;  if 0 <= i.1 < 64:  …
scanned     C[i] = C[i-1], or the identity for the first element;  k = i;  …
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.ir.bounds import Interval
from autotensor.ir.expr import Cmp, Expr, Load, Var, compare, const
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import If, Let, Stmt, Store, seq
from autotensor.ir.visit import free_vars
from autotensor.lowering.nest.update import guard
from autotensor.schedule.axis import Axis, Mark
from autotensor.schedule.extents import leaf_var
from autotensor.schedule.primitives.solve import axis_of
from autotensor.schedule.state import Fuse, Root, Split, Stage, State
from autotensor.te.dag import StageOp
from autotensor.te.tensor import AxisKind
from autotensor.te.terms import carried, running, solutions, without

Place = tuple[Buffer, tuple[Expr, ...]]


def check_passes(state: State, stage: Stage) -> None:
    """Raises ScheduleError if a replaced loop is in a place where its value is not known."""
    known = (*stage.solved, *((stage.scanned,) if stage.scanned else ()))
    if not known and not stage.sorted:
        return
    word = "sort" if stage.sorted else "solve" if stage.solved else "scan"
    if not isinstance(stage.place, Root) or state.attached(stage.name):
        raise ScheduleError(f"{word}: stage {stage.name!r} is not computed by itself.")
    for leaf in stage.leaves:
        if (leaf.kind is AxisKind.REDUCE and leaf.mark is not Mark.SERIAL) or leaf.mark is Mark.BOUND:
            raise ScheduleError(
                f"{word}: axis {leaf.name!r} of stage {stage.name!r} is {leaf.mark.value}; terms are taken "
                "one after the other."
            )
    if stage.sorted:
        *_, last = ("", *(a.name for a in stage.leaves[:-1]))
        whole = stage.leaves[-1].name == stage.op.reduce_axes[0].name
        if last != stage.sorted or not whole or stage.leaf(last).mark is not Mark.SERIAL:
            raise ScheduleError(
                f"sort: axis {stage.sorted!r} of stage {stage.name!r} must be serial and stand right outside "
                "the whole reduction, as the last two loops."
            )
    if stage.scanned:
        _check_order(stage)
    for name in known:
        leaf, at = stage.leaf(name), stage.position(name)
        if leaf.mark is not Mark.SERIAL:
            raise ScheduleError(f"{word}: axis {name!r} of stage {stage.name!r} is {leaf.mark.value}.")
        needed = _needed(stage, name)
        for n, other in enumerate(stage.leaves):
            if n > at and origins(stage, other.name) & needed:
                raise ScheduleError(
                    f"{word}: axis {other.name!r} of stage {stage.name!r} tells the value of {name!r} and is "
                    "inside it.",
                    fix=f"Reorder so that {name!r} comes later.",
                )
            if n < at and other.mark is Mark.VECTORIZED:
                raise ScheduleError(
                    f"{word}: axis {other.name!r} of stage {stage.name!r} is vectorized around {name!r}."
                )
    first = next(n for n, a in enumerate(stage.leaves) if a.kind is AxisKind.REDUCE)
    if any(stage.position(name) < first for name in stage.solved):
        raise ScheduleError(
            f"solve: an axis of stage {stage.name!r} is outside its reduction.",
            fix=f"Reorder so that {stage.solved[0]!r} comes after {stage.leaves[first].name!r}.",
        )


def _check_order(stage: Stage) -> None:
    """Raises ScheduleError unless the elements of a running reduction are computed one after the other."""
    found = running(stage.op)
    assert found is not None
    order = [found.axis]
    for relation in stage.relations:
        match relation:
            case Split(parent, children, _, _) if parent in order:
                at = order.index(parent)
                order[at : at + 1] = children
            case Fuse(a, b, fused) if a in order or b in order:
                order = list(dict.fromkeys(fused if name in (a, b) else name for name in order))
    parts = [a for a in stage.leaves if a.name in order]
    if [a.name for a in parts] != order:
        raise ScheduleError(
            f"scan: parts of axis {found.axis!r} of stage {stage.name!r} are in another order: "
            f"{', '.join(a.name for a in parts)}. Each element continues the one before it.",
            fix=f"Reorder: {', '.join(order)}.",
        )
    for leaf in parts:
        if leaf.mark is Mark.PARALLEL:
            raise ScheduleError(
                f"scan: axis {leaf.name!r} of stage {stage.name!r} is parallel, but each element continues "
                "the one before it.",
                fix="Use another axis, which may be outside.",
            )


def _needed(stage: Stage, name: str) -> set[str]:
    """The op's axes that determine the value of a replaced loop."""
    if name == stage.scanned:
        found = running(stage.op)
        assert found is not None
        return {found.axis}
    axis = axis_of(stage, name)
    return {v.name for v in free_vars(solutions(stage.op)[axis])} | {axis}


def origins(stage: Stage, leaf: str) -> set[str]:
    """The op's axes of which a loop is a part."""
    names = {leaf}
    for relation in reversed(stage.relations):
        match relation:
            case Split(parent, children, _, _) if names & set(children):
                names.add(parent)
            case Fuse(a, b, fused) if fused in names:
                names |= {a, b}
    return names & {a.name for a in stage.op.all_axes}


def op_in_one_pass(stage: Stage) -> StageOp:
    """The stage's op, with bodies for only the terms that are taken."""
    if stage.scanned:
        return carried(stage.op)
    return replace(stage.op, bodies=without(stage.op, tuple(axis_of(stage, n) for n in stage.solved)))


def counted(stage: Stage, values: dict[str, Expr]) -> dict[str, Expr]:
    """The op's axes over loop variables. An axis that is scanned from its end is counted down."""
    found = running(stage.op) if stage.scanned else None
    if found is None or not found.reverse:
        return values
    last = next(a.extent for a in stage.op.axes if a.name == found.axis) - 1
    return {**values, found.axis: const(last) - values[found.axis]}


def known(
    stage: Stage,
    leaf: Axis,
    extent: int,
    values: dict[str, Expr],
    redirected: Callable[[Expr], Expr],
    ranges: dict[Var, Interval],
    body: Stmt,
) -> Stmt:
    """The body with the loop's variable bound to its value, if this value is in the loop's range.

    redirected: turns an expression over the op's axes into one over loop variables.
    """
    var = leaf_var(stage.name, leaf.name)
    if leaf.name == stage.scanned:
        found = running(stage.op)
        assert found is not None
        step = (1 if found.reverse else -1) if found.exclusive else 0
        value = values[found.axis] + step
    else:
        axis = axis_of(stage, leaf.name)
        begin = substitute(values[axis], {var: const(0)})
        value = redirected(solutions(stage.op)[axis]) - begin
    inside = (compare(Cmp.LE, const(0), var), compare(Cmp.LT, var, const(extent)))
    return Let(var, simplify(value, ranges), guard(inside, body))


def from_before(
    stage: Stage, values: dict[str, Expr], targets: list[Place], first: Stmt, over: Callable[[Stmt], Stmt]
) -> Stmt:
    """The beginning of a scanned element: the element before it, or `first` if there is none.

    over: puts the loops inside around a statement.
    """
    found = running(stage.op)
    assert found is not None
    at = next(n for n, a in enumerate(stage.op.axes) if a.name == found.axis)
    here = values[found.axis]
    before = here + (1 if found.reverse else -1)
    last = stage.op.axes[at].extent - 1
    there = compare(Cmp.LT, here, const(last)) if found.reverse else compare(Cmp.LT, const(0), here)
    copies = (Store(b, i, Load(b, (*i[:at], before, *i[at + 1 :]))) for b, i in targets)
    return If(there, over(seq(*copies)), over(first))
