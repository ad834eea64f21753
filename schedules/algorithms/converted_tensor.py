"""A copy of a tensor with each element converted. Several algorithms need such copies of their operands."""

from __future__ import annotations

from collections.abc import Callable

from autotensor.ir.expr import Expr, Load
from autotensor.ir.func import Buffer
from autotensor.schedule.axis import fresh
from autotensor.te.dag import StageOp
from autotensor.te.stage import IterDef


def converted(old: Buffer, suffix: str, convert: Callable[[Load], Expr], names: set[str]) -> StageOp:
    """The stage of the copy, named by the tensor and the suffix. Its name is added to `names`."""
    axes = tuple(IterDef(f"d{n}", extent) for n, extent in enumerate(old.shape))
    value = convert(Load(old, tuple(a.var for a in axes)))
    new = Buffer(fresh(f"{old.name}.{suffix}", names), old.shape, value.dtype)
    names.add(new.name)
    return StageOp(new.name, axes, (), (value,), None, (new,))
