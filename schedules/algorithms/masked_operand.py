"""A product under a condition on data is summed without the condition: one operand is 0 where it fails.

    C[i, j] = Σ_k select(M[i, k] > 0, A[i, k] * B[k, j], 0)

        ──▶   C.masked[i, k] = select(M[i, k] > 0, A[i, k], 0)
              C.harms[j]     = Σ_k B[k, j] * 0                      (NaN where an element is infinite or NaN)
              C.harm[]       = Σ_j C.harms[j]
              C.each[i, j]   = Σ_k select(M[i, k] > 0, A[i, k] * B[k, j], 0)
              C.plain[i, j]  = Σ_k C.masked[i, k] * B[k, j]
              C[i, j]        = select(C.harm == 0, C.plain[i, j], C.each[i, j])

0 * x is 0 only for a finite x. So the program has both sums, and `C.harm` decides which one is computed
(`skip_unread`). Adding ±0 does not change a sum that begins with 0, except the sign of a zero that comes from
an underflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

from autotensor.ir.bounds import is_data
from autotensor.ir.expr import Binary, Cmp, Expr, Load, Op, Select, compare, const
from autotensor.ir.func import Buffer
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp
from autotensor.te.stage import IterDef
from autotensor.te.tensor import AxisKind
from schedules.algorithms.factored import memory_order, product_of
from schedules.algorithms.late_choice import is_safe

NAME = "masked_operand"


@dataclass(frozen=True, slots=True)
class Masked:
    """A sum of products under a condition, and the operand that is masked."""

    masked: Expr  # the operand on which the condition depends
    other: Expr  # the other factor
    masked_axes: tuple[IterDef, ...]
    other_axes: tuple[IterDef, ...]


def masked(op: StageOp) -> Masked | None:
    """The operands; None unless the stage is such a sum, and its condition depends on one operand's axes."""
    c = op.combiner
    if c is None or c.name != "sum" or len(op.bodies) != 1 or op.is_open or not op.buffers[0].dtype.is_float:
        return None
    match op.bodies[0]:
        case Select(cond, Binary(Op.MUL) as product, zero) if zero is c.identity[0] and is_data(cond):
            factors = list(product_of(product))
        case _:
            return None
    wanted = free_vars(cond)
    mine = next((f for f in factors if wanted <= free_vars(f)), None)
    if mine is None:
        return None
    factors.remove(mine)
    other = reduce(lambda a, b: Binary(Op.MUL, a, b), factors)
    if not is_safe(op, other):
        return None
    return Masked(Select(cond, mine, zero), other, _axes(op, mine), _axes(op, other))


def _axes(op: StageOp, e: Expr) -> tuple[IterDef, ...]:
    return tuple(replace(a, kind=AxisKind.SPATIAL) for a in op.all_axes if a.var in free_vars(e))


def masked_operand(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The stages; None if the algorithm does not apply."""
    op = stage.op
    found = masked(op)
    if found is None:
        return None
    t, names = op.buffers[0].dtype, set(state.names)

    def buffer(suffix: str, axes: tuple[IterDef, ...]) -> Buffer:
        name = fresh(f"{op.name}.{suffix}", names)
        names.add(name)
        return Buffer(name, tuple(a.extent for a in axes), t)

    mask = buffer("masked", found.masked_axes)
    each, plain = buffer("each", op.axes), buffer("plain", op.axes)
    harms = tuple(_harms(found, op, buffer))
    here = tuple(a.var for a in op.axes)
    product = Binary(Op.MUL, Load(mask, tuple(a.var for a in found.masked_axes)), found.other)
    harmless = compare(Cmp.EQ, Load(harms[-1].buffers[0], ()), const(0.0, t))
    choice = Select(harmless, Load(plain, here), Load(each, here))
    return (
        StageOp(mask.name, found.masked_axes, (), (found.masked,), None, (mask,)),
        *harms,
        replace(op, name=each.name, buffers=(each,)),
        replace(op, name=plain.name, bodies=(product,), buffers=(plain,)),
        StageOp(op.name, op.axes, (), (choice,), None, op.buffers, op.tag),
    )


def _harms(
    found: Masked, op: StageOp, buffer: Callable[[str, tuple[IterDef, ...]], Buffer]
) -> Iterator[StageOp]:
    """The sums of the other operand times 0: first along its rows in memory, then of these sums."""
    columns = memory_order(found.other, found.other_axes)[-1:]
    rest = tuple(a for a in memory_order(found.other, found.other_axes) if a not in columns)
    body: Expr = Binary(Op.MUL, found.other, const(0.0, op.buffers[0].dtype))
    if rest:
        parts = buffer("harms", columns)
        yield StageOp(parts.name, columns, _summed(rest), (body,), op.combiner, (parts,))
        body = Load(parts, tuple(a.var for a in columns))
    whole = buffer("harm", ())
    yield StageOp(whole.name, (), _summed(columns), (body,), op.combiner, (whole,))


def _summed(axes: tuple[IterDef, ...]) -> tuple[IterDef, ...]:
    return tuple(replace(a, kind=AxisKind.REDUCE) for a in axes)


ALGORITHMS.add(NAME, Algorithm(NAME, masked_operand))
