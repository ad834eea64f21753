"""Sliding windows: a stage keeps the rows that earlier iterations have computed, and computes only new rows.

    for i.1: reads P[i.1 … i.1 + 2]     computes P[i.1 + 2]       P[r] is kept at index r % 3

    turn v reads      [low + c*v, low + c*v + e)              the window: e rows, which move by c
    turn v computes   [low + c*v + e - c, low + c*v + e)      the new rows
    turns -m … -1     compute their rows, and nothing else      they warm up: m = ceil((e - c) / c)

If a sliding stage reads another stage that slides along the same loop, only the elements that it computes
count as its reads, not all that it keeps. The reader warms up itself, and the stage that it reads warms up
before that, as many turns earlier.
Source: sliding windows and storage folding of Halide (Ragan-Kelley et al., PLDI 2013).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotensor.base.errors import ScheduleError
from autotensor.ir.expr import const
from autotensor.ir.func import Scope
from autotensor.schedule.axis import Mark
from autotensor.schedule.formulas import any_of
from autotensor.schedule.index_regions import (
    NEAR,
    PRIME,
    Number,
    Span,
    both,
    ceil_div,
    divisor,
    least,
    modular,
    plus,
    where,
)
from autotensor.schedule.state import At, Fuse, Root, Stage, State
from autotensor.te.tensor import AxisKind


@dataclass(frozen=True, slots=True)
class Window:
    """The region of a stage that one iteration reads, if the stage's storage is outside of the loop."""

    box: tuple[Span, ...]  # one span per axis of the stage
    along: int  # the axis along which the region moves
    new: Number  # extent of the part along that axis that no earlier iteration has computed

    @property
    def rows(self) -> Number:
        """Number of rows in the ring."""
        return self.box[self.along].extent

    @property
    def kept(self) -> Number:
        """The part of the extent that earlier iterations have computed."""
        return self.rows - self.new

    @property
    def early(self) -> Number:
        """Number of extra iterations before the first one. They compute the kept rows that the first one
        reads."""
        return ceil_div(self.kept, self.new)

    def computed(self) -> tuple[Span, ...]:
        """The new part, at the end of the box."""
        whole, by = self.box[self.along], self.kept
        base = None if whole.base is None else plus(whole.base, const(int(by)))
        step, gap = divisor(whole.step, by), divisor(whole.gap, by)
        new = Span(self.new, modular(whole.at + by), step, base, gap)
        return (*self.box[: self.along], new, *self.box[self.along + 1 :])


def window_of(stage: Stage, box: Sequence[Span], later: Sequence[Span]) -> Window:
    """The window of a stage of which one iteration reads `box`, and the next one reads `later`.

    Raises ScheduleError unless the window moves forwards along one axis, by the same step in every iteration.
    For a population, it raises only if this holds for no candidate; candidates for which it fails keep
    nothing.
    """
    steps = [_moved(now, then) for now, then in zip(box, later, strict=True)]
    moving = [n for n, step in enumerate(steps) if any_of(step != 0)]
    along = moving[0] if moving else 0
    forwards = both(steps[along] > 0, steps[along] < NEAR) if steps else False
    if not any_of(forwards) or (len(moving) > 1 and isinstance(forwards, bool)):
        raise _unsteady(stage, [steps[n] for n in moving])
    rows = box[along].extent
    return Window(tuple(box), along, where(forwards, least(steps[along], rows), rows))


def _unsteady(stage: Stage, steps: Sequence[Number]) -> ScheduleError:
    assert isinstance(stage.place, At)
    loop = f"loop {stage.place.axis!r} of {stage.place.stage!r}"
    if not steps:
        return ScheduleError(
            f"store_at: all iterations of {loop} read the same of stage {stage.name!r}.",
            fix=f"Compute it at loop {stage.place.store!r}.",
        )
    how = "along several axes" if len(steps) > 1 else "backwards or by unequal steps"
    return ScheduleError(
        f"store_at: what {loop} reads of stage {stage.name!r} moves {how}; nothing of it can be kept.",
        fix="Leave store_at out.",
    )


def _moved(now: Span, later: Span) -> Number:
    """The distance by which a span moves; something large if the distance is not a constant."""
    apart = modular(later.at - now.at)
    return where(apart > PRIME // 2, apart - PRIME, apart)


def check_storage_loop(state: State, stage: Stage) -> None:
    """Raises ScheduleError unless a stage's storage is at a loop where it may be: directly outside a plain
    loop of a stage at root."""
    place = stage.place
    assert isinstance(place, At)
    host, start = state.stage(place.stage), f"store_at: loop {place.axis!r} of {place.stage!r}"
    at = host.position(place.axis)
    if at == 0 or host.leaves[at - 1].name != place.store:
        outside = host.leaves[at - 1].name if at else ""
        raise ScheduleError(
            f"store_at: loop {place.store!r} of {host.name!r} is not right outside {place.axis!r}, where "
            f"stage {stage.name!r} is computed.",
            fix=f"Store it at {outside!r}." if outside else f"Split {place.axis!r} first.",
        )
    if not isinstance(host.place, Root) or host.carries or host.solved or host.scanned or host.sorted:
        raise ScheduleError(
            f"store_at: stage {host.name!r} is not computed by itself, loop by loop; its iterations may be "
            "left out.",
            fix=f"Compute {stage.name!r} in a stage at root.",
        )
    loop = host.leaves[at]
    if loop.mark not in (Mark.SERIAL, Mark.UNROLLED):
        raise ScheduleError(
            f"{start} is {loop.mark.value}; its iterations do not follow one another.",
            fix=f"Compute {stage.name!r} at a plain loop.",
        )
    if any(a.kind is AxisKind.REDUCE for a in host.leaves[: at + 1]):
        raise ScheduleError(f"{start} runs over terms of a reduction.", fix="Reorder it outwards.")
    if any(isinstance(r, Fuse) and r.fused == loop.name for r in host.relations):
        raise ScheduleError(f"{start} is a fused loop; what it reads does not move by equal steps.")
    if stage.scope is Scope.SHARED or stage.turns > 1:
        raise ScheduleError(f"store_at: stage {stage.name!r} is in shared memory; no ring is kept there.")


__all__ = ["Window", "check_storage_loop", "window_of"]
