"""split: makes several loops of one loop."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.errors import ScheduleError
from autotensor.schedule.axis import Axis, Mark, split_names
from autotensor.schedule.state import Ref, Size, Split, State
from autotensor.schedule.step import AxisName, StageName, step

LARGEST = (1 << 31) - 1  # of a factor; index arithmetic is int64


@step
class SplitStep:
    """Splits one loop into several loops.

        for i in 0..128: S(i)      ──Split("C", "i", (4, 8))──▶     for i.0 in 0..4:
                                                                      for i.1 in 0..4:
                                                                        for i.2 in 0..8: S(i.0*32 + i.1*8 +
                                                                        i.2)

    factors: extents of the inner loops, outer to inner. The outermost extent is ceil(extent / product).
    nparts: instead of factors, the extent of the outer one of two loops. The inner extent is ceil(extent /
    nparts).
    If the product does not divide the extent, lowering guards the tail (lowering/passes/partition.py).
    Raises ScheduleError if the axis does not exist, has a mark, or hosts another stage, or if a factor is not
    positive.
    Source: `split` of Halide (Ragan-Kelley et al., PLDI 2013).
    """

    stage: StageName
    axis: AxisName
    factors: tuple[Size, ...]
    nparts: Size | None = None

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        axis = stage.leaf(self.axis)
        for f in (*self.factors, *(() if self.nparts is None else (self.nparts,))):
            if not isinstance(f, Ref) and f < 1:
                raise ScheduleError(
                    f"split: factor {f} of axis {axis.name!r} of stage {stage.name!r} is not positive."
                )
            if not isinstance(f, Ref) and f > LARGEST:
                raise ScheduleError(
                    f"split: factor {f} of axis {axis.name!r} of stage {stage.name!r} is more than {LARGEST}."
                )
        if (self.nparts is None) == (not self.factors):
            raise ScheduleError(
                f"split: axis {axis.name!r} of stage {stage.name!r} needs either factors or nparts."
            )
        if axis.mark is not Mark.SERIAL:
            raise ScheduleError(
                f"split: axis {axis.name!r} of stage {stage.name!r} is already {axis.mark.value}.",
                fix="Split before marking it.",
            )
        if inside := state.attached(stage.name, axis.name):
            raise ScheduleError(
                f"split: stage {inside[0].name!r} is computed at axis {axis.name!r} of stage {stage.name!r}.",
                fix="Split before compute_at.",
            )
        parts = 2 if self.nparts is not None else len(self.factors) + 1
        names = split_names(axis.name, parts)
        new = stage.replacing(axis.name, *(Axis(n, axis.kind) for n in names))
        relation = Split(axis.name, names, self.factors, self.nparts)
        return state.with_stage(replace(new, relations=(*stage.relations, relation)))

    def call(self) -> str:
        if self.nparts is not None:
            return f's["{self.stage}"].split("{self.axis}", nparts={self.nparts})'
        return f's["{self.stage}"].split("{self.axis}", factors={list(self.factors)})'
