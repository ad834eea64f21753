"""A copy of a tensor with each element converted. Several algorithms need such copies of their operands."""

from __future__ import annotations

from collections.abc import Callable

from autotensor.ir.expr import Expr, Load
from autotensor.ir.func import Buffer
from autotensor.schedule.axis import fresh
from autotensor.te.stage import StageOp, axes_over, buffer_over


def converted(old: Buffer, suffix: str, convert: Callable[[Load], Expr], names: set[str]) -> StageOp:
    """The stage of the copy, named by the tensor and the suffix. Its name is added to `names`."""
    axes = axes_over(old)
    value = convert(Load(old, tuple(a.var for a in axes)))
    new = buffer_over(axes, fresh(f"{old.name}.{suffix}", names), value.dtype)
    names.add(new.name)
    return StageOp(new.name, axes, (), (value,), None, (new,))
