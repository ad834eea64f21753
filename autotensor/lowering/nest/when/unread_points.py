"""needs: leaves out points of a stage if a Select in each reader hides them.

    C = max_j select(j <= i, S[j, i], -inf)      ──▶     if j <= i: S[j, i] = …

The condition is over the stage's own axes. Every read of the stage is in a branch of a Select under this
condition, or is at a point of the reader that is not needed itself. Points that are left out keep the
previous contents of memory, and the Select drops these. The pragma `skip_unread` turns this on.

    C = select(harm[] == 0, P[i, j], E[i, j])            ──▶     if not harm[] == 0: E[i, j] = …

A condition on data counts if it is the same for all points of a stage and is known before the stage runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autotensor.ir.bounds import is_data
from autotensor.ir.expr import Cmp, Compare, Const, Expr, Load, Neg, Unary, Var, conjuncts
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import any_node, collect, free_vars
from autotensor.lowering.nest.guards import Read, reads
from autotensor.schedule.state import Root, Stage, State

Exprs = tuple[Expr, ...]


def needed(state: State, stage: Stage) -> Exprs:
    """Conditions over a stage's axes. The stage's values are used only where the conditions hold. The result
    is () without the pragma."""
    return tuple(c for c in _common(state, stage) if not is_data(c)) if _asked(stage) else ()


def wanted_at_all(state: State, stage: Stage) -> Exprs:
    """Conditions on data; the stage is computed only if they hold.

    () unless the stage, or a stage inside it, has the pragma. () also for a stage inside another stage's
    loops, where the conditions would be tested in every iteration.
    """
    if not isinstance(stage.place, Root) or not any(map(_asked, (stage, *state.attached(stage.name)))):
        return ()
    return tuple(c for c in _common(state, stage) if is_data(c) and _is_before(state, stage, c))


def _asked(stage: Stage) -> bool:
    floats = all(b.dtype.is_float for b in stage.op.buffers)  # readers may divide by integers
    return floats and any(key == "skip_unread" for _, key, _ in stage.pragmas)


def _is_before(state: State, stage: Stage, cond: Expr) -> bool:
    """Whether a condition is the same at all points, and reads only inputs or earlier stages."""
    producers = [state.producer(load.buffer) for load in collect(cond, Load)]
    front = state.names[: state.names.index(stage.name)]
    there = (p is None or (isinstance(p.place, Root) and p.name in front) for p in producers)
    return not free_vars(cond) and all(there)


def _common(state: State, stage: Stage) -> Exprs:
    """The conditions that hold wherever the stage is read by a point that is needed itself."""
    if state.is_output(stage):
        return ()
    found: list[Exprs] = []
    for reader in state.consumers(stage):
        own: Exprs | None = None
        for read in reads(reader.op):
            if read.load.buffer not in stage.op.buffers:
                continue
            axes = _axes_read(stage, reader, read)
            if axes is None:
                return ()
            own = _common(state, reader) if own is None else own
            said = [c for cond in (*own, *read.conditions) for c in conjuncts(cond)]
            found.append(_implied(substitute(c, axes) for c in said if free_vars(c) <= set(axes)))
    common = [c for c in found[0] if all(c in other for other in found)] if found else []
    return tuple(c for c in common if not any(_or_equal(other) is c for other in common))


def _implied(conditions: Iterable[Expr]) -> Exprs:
    """The conditions, with comparisons as `<` or `<=`, and after each `a < b` also the weaker `a <= b`."""
    found: dict[Expr, None] = {}
    for c in conditions:
        match c:
            # with a NaN, neither comparison holds
            case Unary(Neg.NOT, Compare(Cmp.LE | Cmp.LT as op, a, b)) if a.dtype.is_int:
                c = Compare(Cmp.LT if op is Cmp.LE else Cmp.LE, b, a)
        found |= dict.fromkeys(e for e in (c, _or_equal(c)) if e is not None)
    return tuple(found)


def _or_equal(c: Expr) -> Expr | None:
    return Compare(Cmp.LE, c.a, c.b) if isinstance(c, Compare) and c.op is Cmp.LT else None


def _axes_read(stage: Stage, reader: Stage, read: Read) -> Mapping[Var, Expr] | None:
    """The reader's variables that index the stage → the stage's axes.

    None if an index is not a plain variable, or if the value read is part of an address.
    """
    if any(any_node(i, lambda n: n is read.load) for load in reader.op.loads() for i in load.indices):
        return None
    axes: dict[Var, Expr] = {}
    for index, axis in zip(read.load.indices, stage.op.axes, strict=True):
        if isinstance(index, Var) and index not in axes:
            axes[index] = axis.var
        elif not (isinstance(index, Const) and axis.extent == 1):
            return None
    return axes
