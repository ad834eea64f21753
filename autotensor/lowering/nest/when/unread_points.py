"""needs: points of a stage that no reader lets through a Select need not be computed.

    C = max_j select(j <= i, S[j, i], -inf)      ──▶     if j <= i: S[j, i] = …

The condition is what all reads of a stage have in common, said of the stage's own axes: reads under it go
through the Select, those under none of it come from points that are not needed themselves. Values at other
points stay whatever memory held: a Select drops them. Asked for by the pragma `skip_unread`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autotensor.ir.expr import Cmp, Compare, Const, Expr, Load, Neg, Unary, Var
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import any_node, free_vars
from autotensor.lowering.nest.guards import Read, reads
from autotensor.lowering.nest.when.skipped_terms import conjuncts
from autotensor.schedule.state import Stage, State

Exprs = tuple[Expr, ...]


def needed(state: State, stage: Stage) -> Exprs:
    """Conditions over the axes of a stage outside of which nobody uses its values; () without the pragma."""
    asked = any(key == "skip_unread" for _, key, _ in stage.pragmas)
    floats = all(b.dtype.is_float for b in stage.op.buffers)  # others may divide by what memory held
    return _common(state, stage) if asked and floats else ()


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
            found.append(
                _implied(substitute(c, axes) for c in said if free_vars(c) <= set(axes) and _plain(c))
            )
    common = [c for c in found[0] if all(c in other for other in found)] if found else []
    return tuple(c for c in common if not any(_or_equal(other) is c for other in common))


def _implied(conditions: Iterable[Expr]) -> Exprs:
    """The conditions, comparisons by less or less-equal; behind each by less, what is weaker than it."""
    found: dict[Expr, None] = {}
    for c in conditions:
        match c:
            case Unary(Neg.NOT, Compare(Cmp.LE | Cmp.LT as op, a, b)) if a.dtype.is_int:  # a NaN fails both
                c = Compare(Cmp.LT if op is Cmp.LE else Cmp.LE, b, a)
        found |= dict.fromkeys(e for e in (c, _or_equal(c)) if e is not None)
    return tuple(found)


def _or_equal(c: Expr) -> Expr | None:
    return Compare(Cmp.LE, c.a, c.b) if isinstance(c, Compare) and c.op is Cmp.LT else None


def _axes_read(stage: Stage, reader: Stage, read: Read) -> Mapping[Var, Expr] | None:
    """The stage's axes by the reader's variables that index them; None where a read says more than axes, or
    decides an address."""
    if any(any_node(i, lambda n: n is read.load) for load in reader.op.loads() for i in load.indices):
        return None
    axes: dict[Var, Expr] = {}
    for index, axis in zip(read.load.indices, stage.op.axes, strict=True):
        if isinstance(index, Var) and index not in axes:
            axes[index] = axis.var
        elif not (isinstance(index, Const) and axis.extent == 1):
            return None
    return axes


def _plain(cond: Expr) -> bool:
    """Reads nothing from memory."""
    return not any_node(cond, lambda n: isinstance(n, Load))
