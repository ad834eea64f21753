"""solve, scan, sort: a reduction by fewer looks at its terms than one for every element."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.axis import Mark
from autotensor.schedule.state import Fuse, Root, Split, Stage, State
from autotensor.schedule.step import AxisName, StageName, step
from autotensor.te.terms import ranking, running, solutions


@step
class Solve:
    """Give each term of a reduction to the element that it is for, instead of asking every element.

        for i: C[i] = 0                                           for i: C[i] = 0
        for i: for k: C[i] += select(p[k] == i, u[k], 0)   ──▶    for k: i = p[k]
                                                                         if 0 <= i < n: C[i] += u[k]

    axis: a spatial loop, whole or the innermost part of a split. Reorder it behind the reduction and behind
    all loops that tell its value. Terms are joined in the order of the reduction; those for elements that do
    not exist are left out.
    Raises ScheduleError unless the reduction's terms are neutral except where the axis equals something that
    does not depend on it, the stage is computed by itself, and the loop is serial.
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
    """Continue each element of a running reduction from the one before it.

        for i: C[i] = 0                                        for i: C[i] = C[i-1] if i > 0 else 0
               for k: C[i] += select(k <= i, x[k], 0)   ──▶           C[i] += x[i]

    axis: the spatial loop along which the reduction runs, whole; for `k >= i` it is counted down. It stays
    outside the reduction and serial; loops around and inside it are as they are elsewhere.
    Raises ScheduleError unless the stage is such a reduction, computed by itself.
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
                f"{leaf.name!r}."
            )
        if leaf.mark is not Mark.SERIAL:
            raise ScheduleError(f"scan: axis {leaf.name!r} of stage {stage.name!r} is {leaf.mark.value}.")
        return state.with_stage(replace(stage, scanned=stage.leaf(found.term).name))

    def call(self) -> str:
        return f's["{self.stage}"].scan("{self.axis}")'


@step
class Sort:
    """Rank elements by sorting them.

        for i: R[i] = 0
               for k: R[i] += select(before(k, i), 1, 0)   ──▶    for n, i in enumerate(sorted(…)): R[i] = n

    axis: the spatial loop along which elements are counted, whole, serial, right outside the reduction, which
    is the innermost loop. Sorted are all (by merging), or only as many as the stage's readers can tell apart.
    Raises ScheduleError unless `before` is an order of all elements, and the stage is computed by itself.
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
                "before its own in an order of all."
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
    """The op's axis of which a loop is the whole or the innermost part; "" for other loops."""
    for relation in reversed(stage.relations):
        match relation:
            case Split(parent, children, _, _) if leaf in children:
                if leaf != children[-1]:
                    return ""
                leaf = parent
            case Fuse(_, _, fused) if leaf == fused:
                return ""
    return leaf if any(a.name == leaf for a in stage.op.all_axes) else ""
