"""Products with the 0 or 1 of a comparison, as terms that are left out where the comparison fails.

    C[i] = Σ_k f32(p[k] == i) * u[k]

        ──▶   C.harm[]    = Σ_k u[k] * 0                      (NaN where an element is infinite or NaN)
              C.each[i]   = Σ_k f32(p[k] == i) * u[k]
              C.chosen[i] = Σ_k select(p[k] == i, u[k], 0)
              C[i]        = select(C.harm == 0, C.chosen[i], C.each[i])

One pass over such terms serves all elements. 0 * x is 0 for finite x only, so the program has both sums, and
`C.harm` decides which one is computed (`skip_unread`). Adding ±0 changes no sum that begins with 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import isfinite

from autotensor.ir.expr import Binary, Cmp, Const, Expr, Load, Op, Select, all_of, compare, const
from autotensor.ir.func import Buffer
from autotensor.ir.visit import contains, free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.choices import choice
from autotensor.te.dag import StageOp
from autotensor.te.tensor import AxisKind
from schedules.algorithms.factored import product_of
from schedules.algorithms.late_choice import is_safe

NAME = "chosen_products"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A sum of products in which a factor is 0 where a choice fails."""

    op: StageOp  # with such terms left out
    other: Expr  # the factor that is multiplied by 0 there


def chosen(op: StageOp) -> Chosen | None:
    """The sum and the other factors; None where no factor is such a choice."""
    c = op.combiner
    if c is None or c.name != "sum" or len(op.bodies) != 1 or op.is_open or not op.buffers[0].dtype.is_float:
        return None
    (zero,), (body,) = c.identity, op.bodies
    factors = [*product_of(body)]
    choices = [x for f in factors if (x := choice(f, zero)) is not None]
    if not choices or len(factors) < 2:
        return None
    others = [f for f in factors if choice(f, zero) is None]
    terms = [x.then for x in choices if not isinstance(x.then, Const)]
    # where one choice fails, 0 meets the terms of all others
    other = _product(zero, [*others, *(terms if len(choices) > 1 else ())])
    if not is_safe(op, other) or any(isinstance(f, Const) and not isfinite(f.value) for f in factors):
        return None
    term = _product(zero, [*(x.then for x in choices), *others])
    return Chosen(replace(op, bodies=(Select(all_of(*(x.cond for x in choices)), term, zero),)), other)


def _product(zero: Expr, factors: Sequence[Expr]) -> Expr:
    """The factors joined, without those that are 1; 1 of the type of `zero` where none is left."""
    one = const(1, zero.dtype)
    return reduce(lambda a, b: Binary(Op.MUL, a, b), [f for f in factors if f != one] or [one])


def chosen_products(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The stages; None where the algorithm does not apply."""
    op, found = stage.op, chosen(stage.op)
    if found is None:
        return None
    if not contains(found.other, Load):
        return (found.op,)  # numbers alone do no harm
    (wide,), names = op.buffers, set(state.names)

    def named(suffix: str, shape: tuple[int, ...]) -> Buffer:
        return Buffer(fresh(f"{op.name}.{suffix}", names), shape, wide.dtype)

    harm, each, left = named("harm", ()), named("each", wide.shape), named("chosen", wide.shape)
    here = tuple(a.var for a in op.axes)
    over = tuple(replace(a, kind=AxisKind.REDUCE) for a in op.all_axes if a.var in free_vars(found.other))
    harms = (Binary(Op.MUL, found.other, const(0.0, wide.dtype)),)
    harmless = compare(Cmp.EQ, Load(harm, ()), const(0.0, wide.dtype))
    result = (Select(harmless, Load(left, here), Load(each, here)),)
    return (
        StageOp(harm.name, (), over, harms, op.combiner, (harm,)),
        replace(op, name=each.name, buffers=(each,)),
        replace(found.op, name=left.name, buffers=(left,)),
        StageOp(op.name, op.axes, (), result, None, op.buffers, op.tag),
    )


ALGORITHMS.add(NAME, Algorithm(NAME, chosen_products))
