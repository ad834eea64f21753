"""Products with the 0 or 1 of a comparison become terms that are left out if the comparison fails.

    C[i] = Σ_k f32(p[k] == i) * u[k]

        ──▶   C.harm[]    = Σ_k u[k] * 0                      (NaN where an element is infinite or NaN)
              C.each[i]   = Σ_k f32(p[k] == i) * u[k]
              C.chosen[i] = Σ_k select(p[k] == i, u[k], 0)
              C[i]        = select(C.harm == 0, C.chosen[i], C.each[i])

One pass over such terms computes all elements. 0 * x is 0 only for a finite x. So the program has both sums,
and `C.harm` decides which one is computed (`skip_unread`). Adding ±0 does not change a sum that begins with
0.
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
    """A sum of products with a factor that is 0 if a condition fails."""

    op: StageOp  # without the terms whose condition fails
    other: Expr  # the factor that is multiplied by 0 in these terms


def chosen(op: StageOp) -> Chosen | None:
    """The sum and its other factors; None if no factor is the 0 or 1 of a condition."""
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
    # if one condition fails, the terms of all other conditions are multiplied by 0
    other = _product(zero, [*others, *(terms if len(choices) > 1 else ())])
    if not is_safe(op, other) or any(isinstance(f, Const) and not isfinite(f.value) for f in factors):
        return None
    term = _product(zero, [*(x.then for x in choices), *others])
    return Chosen(replace(op, bodies=(Select(all_of(*(x.cond for x in choices)), term, zero),)), other)


def _product(zero: Expr, factors: Sequence[Expr]) -> Expr:
    """The product of the factors, without factors 1; 1 of the type of `zero` if no factor is left."""
    one = const(1, zero.dtype)
    return reduce(lambda a, b: Binary(Op.MUL, a, b), [f for f in factors if f != one] or [one])


def chosen_products(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The stages; None if the algorithm does not apply."""
    op, found = stage.op, chosen(stage.op)
    if found is None:
        return None
    if not contains(found.other, Load):
        return (found.op,)  # constants are finite
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
