"""Scans: each step reads values that earlier steps wrote, so the steps run one after another.

    y[t, i] = 0.9 * y.before[t - 1, i] + x[t, i]      ──▶     for t: for i: y[t, i] = 0.9 * y[t - 1, i] + …

Loops over axes along which the steps are independent may be anywhere. All other loops, and the intermediate
values of a step, are inside the loop over steps.
"""

from __future__ import annotations

from math import prod

from autotensor.base.errors import ScheduleError
from autotensor.ir.expr import Load, Select
from autotensor.ir.func import Buffer
from autotensor.ir.visit import collect
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import is_within
from autotensor.schedule.state import Fuse, Split, Stage, State
from autotensor.te.dag import StageOp
from autotensor.te.look_ahead import least_distance
from autotensor.te.scan import first_steps, steps_of


def check_scans(state: State) -> None:
    """Raises ScheduleError if the loops do not run the steps of a scan in order."""
    if not state.dag.carried:
        return
    live = state.live()
    for host in live:
        inside = steps_of(host.op, [s.op for s in live], state.dag.carried)
        if inside:
            _check(state, host, inside)


def _check(state: State, host: Stage, inside: tuple[StageOp, ...]) -> None:
    t = host.op.axes[0].name
    steps = steps_loop(host)
    leaf = next((a for a in host.leaves if a.name == steps), None)
    if leaf is None or leaf.mark not in (Mark.SERIAL, Mark.UNROLLED) or not _is_apart(state, host, inside):
        raise ScheduleError(
            f"stage {host.name!r} carries state along axis {t!r}: that loop stays whole and serial.",
            fix="Schedule its other axes.",
        )
    at = host.position(leaf.name)
    free = {a.name for n, a in enumerate(host.op.axes) if n in apart(host.op, inside, state.dag.carried)}
    for other in host.leaves[:at]:
        if not axes_of(host, other.name) <= free:
            raise ScheduleError(
                f"reorder: axis {other.name!r} of stage {host.name!r} is outside {t!r}, but steps read "
                "others along it.",
                fix=f"Put {t!r} outside.",
            )
    for op in inside[:-1]:
        if not is_within(state, state.stage(op.name), host.name, at):
            raise ScheduleError(
                f"stage {op.name!r} reads the state of {host.name!r}; it is computed inside {t!r}.",
                fix=f's["{op.name}"].compute_at(s["{host.name}"], "{t}"), or compute_inline().',
            )


def steps_loop(host: Stage) -> str:
    """The loop over the steps of a scan, or, if it was split, the loop over groups of independent steps."""
    split = _split_of_steps(host)
    return split.children[0] if split else host.op.axes[0].name


def _split_of_steps(host: Stage) -> Split | None:
    t = host.op.axes[0].name
    return next((r for r in host.relations if isinstance(r, Split) and r.parent == t), None)


def _is_apart(state: State, host: Stage, inside: tuple[StageOp, ...]) -> bool:
    """Whether the steps of each group, if the loop is split into groups, read no step of their own group."""
    split = _split_of_steps(host)
    if split is None:
        return True
    sizes = [f for f in split.factors if isinstance(f, int)]
    t, outer = host.op.axes[0].name, split.children[0]
    parts = [a.name for a in host.leaves if t in axes_of(host, a.name)]
    return (
        split.nparts is None
        and len(sizes) == len(split.factors)
        and prod(sizes) <= least_distance(host.op, inside, state.dag.carried)
        and parts[0] == outer  # the outer part is whole, and outside of the loops inside a group
    )


def steps_given(state: State, stage: Stage, axis: str) -> int:
    """In a scan's loop over steps, the number of first turns that differ from the others. These are the steps
    that init gives, and groups that would read steps before those. The result is 0 for other loops."""
    carries = any(after in stage.op.buffers for _, after in state.dag.carried)
    if not carries or steps_loop(stage) != axis:
        return 0
    return first_steps(stage.op)


def of_given_steps(state: State, stage: Stage, axis: str) -> frozenset[str]:
    """The stages from which the given first steps are computed; none if the loop is not a loop over the
    steps."""
    if not steps_given(state, stage, axis):
        return frozenset()
    bodies = (b for b in stage.op.bodies if isinstance(b, Select))  # select(t < given, init[t], update[t])
    stack: list[Buffer] = [load.buffer for b in bodies for load in collect(b.then, Load)]
    found: set[str] = set()
    while stack:
        producer = state.producer(stack.pop())
        if producer is not None and producer.name not in found:
            found.add(producer.name)
            stack += producer.op.reads()
    return frozenset(found)


def apart(host: StageOp, inside: tuple[StageOp, ...], carried: tuple[tuple[object, object], ...]) -> set[int]:
    """Dimensions along which each step reads only its own index."""
    ours = {before for before, after in carried if after in host.buffers}
    ours |= {b for op in inside for b in op.buffers}
    rank = len(host.axes)
    found = set(range(1, rank))
    for op in inside:
        for load in op.loads():
            if load.buffer in ours:
                found &= {
                    n
                    for n in found
                    if n < len(load.indices) and n < len(op.axes) and load.indices[n] is op.axes[n].var
                }
    return found


def axes_of(stage: Stage, leaf: str) -> set[str]:
    """The axes of the stage that a loop runs over, at least in part."""
    for relation in stage.relations:
        match relation:
            case Split(parent, children, _, _) if leaf in children:
                return axes_of(stage, parent)
            case Fuse(a, b, fused) if fused == leaf:
                return axes_of(stage, a) | axes_of(stage, b)
    return {leaf}


def vector_along(stage: Stage, axis: str) -> str | None:
    """The loop of a stage whose vectors run along one of the stage's axes; None if no loop does."""
    loops = (a.name for a in stage.leaves if a.mark is Mark.VECTORIZED)
    return next((name for name in loops if axis in axes_of(stage, name)), None)
