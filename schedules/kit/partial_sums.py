"""Long sums in parts: the loops of a reduction are cut so that its rounding errors stay small.

    for k in 2048: acc += …     ──▶     for k.0 in 8: { part = 0;  for k.1 in 256: part += …;  acc += part }

If one accumulator adds n terms one after the other, each addition is rounded at the size of the whole sum. In
parts of m terms, additions are rounded at the size of a part, and only n/m of them at the size of the whole
sum. A part costs an addition, a load and a store of every accumulator, and the end of one more loop (see
lowering/nest/reduction/partial_sums.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, prod

from autotensor.ir.reducers import alone
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.step import Step
from autotensor.te.dag import StageOp
from schedules.kit.stage_analysis import divisors

# terms of a part. With 256, parts cost less than 1 % of a full register tile's time; with 128, 1 to 3 %.
PART = 256  # (Xeon, two FMAs a cycle)
ROW_PART = 64  # the same for a tile of one row, which waits for its operands anyway (2048 x 1000: no cost)
WHOLE = 4  # a sum of up to 4 parts stays whole: 3x3 windows of 64 channels lost 2 % and gained little


@dataclass(frozen=True, slots=True)
class Parts:
    """The reduction loops of a stage, outer to inner, and the steps that make its parts."""

    loops: tuple[str, ...]
    inner: int  # extent of the last loop
    cut: tuple[Step, ...] = ()  # steps that come before the loops are reordered
    mark: tuple[Step, ...] = ()


def at_once(op: StageOp) -> Parts:
    """One accumulator for each result. Products of several rows use this: parts cost 2 to 5 % with 256
    rows."""
    return Parts(tuple(a.name for a in op.reduce_axes), op.reduce_axes[-1].extent)


def in_parts(stage: str, op: StageOp, wanted: int = PART) -> Parts:
    """The parts of a stage's sum: one part if the sum is short or exact, or if the stage has no sum;
    otherwise parts of about `wanted` terms. A part is one iteration of a loop.

    stage: the name of the stage with the loops (the op's own stage, or a copy of it).
    """
    names, extents = [a.name for a in op.reduce_axes], [a.extent for a in op.reduce_axes]
    whole = at_once(op)
    if not _rounds(op) or prod(extents) <= WHOLE * wanted:
        return whole
    loop_of = {prod(extents[n + 1 :]): name for n, name in enumerate(names) if extents[n] > 1}
    lengths = {*loop_of, *divisors(extents[-1], extents[-1])} - {1, prod(extents)}
    if not lengths:
        return whole
    length = min(lengths, key=lambda n: (abs(log(n / wanted)), n))
    if length in loop_of:
        return Parts(whole.loops, whole.inner, (), (_apart(stage, loop_of[length]),))
    outer, inner = f"{names[-1]}.0", f"{names[-1]}.1"
    cut = SplitStep(stage, names[-1], (length,))
    return Parts((*names[:-1], outer, inner), length, (cut,), (_apart(stage, outer),))


def _rounds(op: StageOp) -> bool:
    """Whether at least one result is a sum of floats."""
    reducers = (None if op.combiner is None else alone(op.combiner, n) for n in range(len(op.buffers)))
    return any(
        c is not None and c.name == "sum" and b.dtype.is_float
        for c, b in zip(reducers, op.buffers, strict=True)
    )


def _apart(stage: str, loop: str) -> Step:
    return Pragma(stage, loop, "sum_apart", "1")
