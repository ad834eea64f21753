"""solve, scan, sort: a reduction that does not look at every term for every element."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.axis import Mark
from autotensor.schedule.state import Fuse, Root, Split, Stage, State
from autotensor.schedule.step import AxisName, StageName, step
from autotensor.te.terms import ranking, running, solutions


@step
class Solve:
    """Adds each term of a reduction to the element that it belongs to, instead of testing every element.

        for i: C[i] = 0                                           for i: C[i] = 0
        for i: for k: C[i] += select(p[k] == i, u[k], 0)   ──▶    for k: i = p[k]
                                                                         if 0 <= i < n: C[i] += u[k]

    axis: a spatial loop, whole, or the innermost part of a split. Reorder it inside the reduction and inside
    all loops that its value depends on. Terms are joined in the order of the reduction. Terms for elements
    that do not exist are left out.
    Raises ScheduleError unless three things hold. The reduction's terms are neutral except where the axis
    equals an expression without this axis. The stage is computed at root. The loop is serial.
    """

    stage: StageName
    axis: AxisName

    def apply(self, state: State) -> State:
        stage = _alone(state, self.stage, "solve")
        leaf = stage.leaf(self.axis)
        axis = axis_of(stage, leaf.name)
        found = solutions(stage.op)
        if axis not in found:
            raise ScheduleError(
                f"solve: the terms of stage {stage.name!r} do not say where they are along {leaf.name!r}; "
                f"they do for {', '.join(found) or 'no axis'}."
            )
        if leaf.mark is not Mark.SERIAL:
            raise ScheduleError(f"solve: axis {leaf.name!r} of stage {stage.name!r} is {leaf.mark.value}.")
        return state.with_stage(replace(stage, solved=(*stage.solved, leaf.name)))

    def call(self) -> str:
        return f's["{self.stage}"].solve("{self.axis}")'


@step
class Scan:
    """Computes each element of a running reduction from the element before it.

        for i: C[i] = 0                                        for i: C[i] = C[i-1] if i > 0 else 0
               for k: C[i] += select(k <= i, x[k], 0)   ──▶           C[i] += x[i]

    axis: the spatial loop along which the reduction runs, whole. For `k >= i` it is counted down. It stays
    outside the reduction, and serial. Loops around and inside it have no restrictions.
    Raises ScheduleError unless the stage is a running reduction that is computed at root.
    """

    stage: StageName
    axis: AxisName

    def apply(self, state: State) -> State:
        stage = _alone(state, self.stage, "scan")
        leaf = stage.leaf(self.axis)
        found = running(stage.op)
        if found is None or found.axis != leaf.name:
            raise ScheduleError(
                f"scan: stage {stage.name!r} is not a reduction over all terms before the element along "
                f"{leaf.name!r}.",
                fix="" if found is None else f"It is one along {found.axis!r}.",
            )
        if leaf.mark is not Mark.SERIAL:
            raise ScheduleError(f"scan: axis {leaf.name!r} of stage {stage.name!r} is {leaf.mark.value}.")
        return state.with_stage(replace(stage, scanned=stage.leaf(found.term).name))

    def call(self) -> str:
        return f's["{self.stage}"].scan("{self.axis}")'


@step
class Sort:
    """Ranks elements by sorting them.

        for i: R[i] = 0
               for k: R[i] += select(before(k, i), 1, 0)   ──▶    for n, i in enumerate(sorted(…)): R[i] = n

    axis: the spatial loop along which elements are counted. It is whole, serial, and right outside the
    reduction, which is the innermost loop. Either all elements are sorted (by merging), or only as many as
    affect the stage's readers.
    Raises ScheduleError unless `before` is an order of all elements, and the stage is computed at root.
    """

    stage: StageName
    axis: AxisName

    def apply(self, state: State) -> State:
        stage = _alone(state, self.stage, "sort")
        leaf = stage.leaf(self.axis)
        found = ranking(stage.op)
        if found is None or found.axis != leaf.name:
            raise ScheduleError(
                f"sort: stage {stage.name!r} does not count the elements along {leaf.name!r} that come "
                "before its own in an order of all.",
                fix="" if found is None else f"It counts those along {found.axis!r}.",
            )
        return state.with_stage(replace(stage, sorted=leaf.name))

    def call(self) -> str:
        return f's["{self.stage}"].sort("{self.axis}")'


def _alone(state: State, name: str, step_name: str) -> Stage:
    stage = state.stage(name)
    if not isinstance(stage.place, Root) or state.attached(name):
        raise ScheduleError(
            f"{step_name}: stage {name!r} is not computed by itself.",
            fix="Compute it at root, with no other stage inside.",
        )
    return stage


def axis_of(stage: Stage, leaf: str) -> str:
    """The op's axis that a loop runs over as a whole, or as its innermost part; "" for other loops."""
    for relation in reversed(stage.relations):
        match relation:
            case Split(parent, children, _, _) if leaf in children:
                if leaf != children[-1]:
                    return ""
                leaf = parent
            case Fuse(_, _, fused) if leaf == fused:
                return ""
    return leaf if any(a.name == leaf for a in stage.op.all_axes) else ""
