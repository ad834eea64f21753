"""The loops of each stage as text, also of a state that cannot be lowered.

s[C].parallel("j")     ──▶     # C
                               for i:
                                 for j in parallel:
                                   C = ...
"""

from __future__ import annotations

from autotensor.schedule.axis import Axis, Mark
from autotensor.schedule.state import At, Stage, State


def plain_loops(state: State) -> str:
    """The loops and marks of all stages that are computed, each stage by itself."""
    return "\n".join(line for stage in state.live() for line in _lines(stage))


def _lines(stage: Stage) -> list[str]:
    where = ""
    if isinstance(stage.place, At):
        where = f", computed in loop {stage.place.axis} of {stage.place.stage}"
    loops = [f"{'  ' * n}for {a.name}{_mark(a)}:" for n, a in enumerate(stage.leaves)]
    return [f"# {stage.name}{where}", *loops, f"{'  ' * len(loops)}{stage.name} = ..."]


def _mark(axis: Axis) -> str:
    how = axis.thread or ("" if axis.mark is Mark.SERIAL else axis.mark.value)
    return f" in {how}" if how else ""
