"""Marks of loops: the kind of loop that each becomes, and checks.

A parallel loop must be the outermost one. At most one loop is vectorized. No stage is computed inside this
loop, and it does not run along the rows of a ring.
"""

from __future__ import annotations

from math import prod

from autotensor.base.errors import ScheduleError
from autotensor.ir.stmt import ForKind
from autotensor.lowering.nest.reduction.by_threads import is_private
from autotensor.schedule.axis import Axis, Mark
from autotensor.schedule.carried import vector_along
from autotensor.schedule.extents import Extents
from autotensor.schedule.state import Root, Stage, State
from autotensor.te.tensor import AxisKind

KINDS = {
    Mark.SERIAL: ForKind.SERIAL,
    Mark.PARALLEL: ForKind.PARALLEL,
    Mark.VECTORIZED: ForKind.VECTORIZED,
    Mark.UNROLLED: ForKind.UNROLLED,
    Mark.BOUND: ForKind.THREAD,
}
ENDING = (ForKind.SERIAL, ForKind.PARALLEL)  # loops that end at their run-time extents; others have guards


def kind_of(stage: Stage, leaf: Axis, extents: Extents) -> ForKind:
    """The kind of loop for a mark; a pragma further out unrolls loops of few iterations."""
    at = stage.leaves.index(leaf)
    steps = prod(int(extents[stage.name, a.name]) for a in stage.leaves[at:])
    if leaf.mark is Mark.SERIAL and any(
        key == "auto_unroll_max_step" and stage.position(axis) <= at and steps <= int(value)
        for axis, key, value in stage.pragmas
    ):
        return ForKind.UNROLLED
    return KINDS[leaf.mark]


def check_marks(state: State, stage: Stage) -> None:
    """Raises ScheduleError, which names the axis, for a mark that the loops around or inside it forbid."""
    for n, leaf in enumerate(stage.leaves):
        if leaf.thread.startswith("threadIdx") and leaf.kind is AxisKind.SPATIAL and is_private(stage):
            raise ScheduleError(
                f"bind: axis {leaf.name!r} of stage {stage.name!r} is bound to {leaf.thread}, but what "
                "the stage computes is kept by each thread for itself.",
                fix=f's[{stage.name!r}].set_scope("shared"), or leave the axis unbound.',
            )
        if leaf.mark is Mark.PARALLEL and (n > 0 or not isinstance(stage.place, Root)):
            outside = ", ".join(a.name for a in stage.leaves[:n]) or stage.name
            raise ScheduleError(
                f"parallel: axis {leaf.name!r} of stage {stage.name!r} is not outermost "
                f"({outside} is outside it).",
                fix=f"Reorder so that {leaf.name!r} comes first, or fuse it with the loops outside.",
            )
        if leaf.mark is Mark.VECTORIZED:
            for inner in stage.leaves[n:]:
                if hosted := state.attached(stage.name, inner.name):
                    raise ScheduleError(
                        f"vectorize: stage {hosted[0].name!r} is computed inside axis {leaf.name!r} "
                        f"of stage {stage.name!r}.",
                        fix="Attach it further out.",
                    )
                if inner is not leaf and inner.mark is Mark.VECTORIZED:
                    raise ScheduleError(
                        f"vectorize: axes {leaf.name!r} and {inner.name!r} of stage {stage.name!r} "
                        "are both vectorized.",
                        fix="Fuse them, or vectorize one.",
                    )


def check_ring(stage: Stage, extents: Extents) -> None:
    """Raises ScheduleError if a vector would run along the rows of a ring: vectors cannot wrap around."""
    window = extents.windows.get(stage.name)
    if window is None:
        return
    axis = stage.op.axes[window.along].name
    if vector := vector_along(stage, axis):
        raise ScheduleError(
            f"store_at: axis {vector!r} of stage {stage.name!r} is vectorized, but the region moves along "
            f"{axis!r} from iteration to iteration.",
            fix="Vectorize another axis.",
        )


__all__ = ["ENDING", "check_marks", "check_ring", "kind_of"]
