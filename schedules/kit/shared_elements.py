"""Whether the elements along short axes share work: made at one place, each operation is done once.

    y[t, c, i] = select(c < 1, f(a, b), select(c < 2, g(a, b), h(a, b)))        a, b: the same for all c

Loops over such an axis stand inside those over vectors, written out; code generation finds what is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from autotensor.ir.expr import Expr, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.te.stage import IterDef, StageOp, float_operations

SHARED = (
    0.6  # of the operations that elements take one by one: so few together are worth it (chosen, 2026-11)
)


def share_work(op: StageOp, axes: Sequence[IterDef], most: int) -> bool:
    """Whether the elements along the axes, `most` at most, take far fewer operations together.

    A condition on the axes alone is settled for each element.
    """
    if not 1 < prod(a.extent for a in axes) <= most or op.is_reduction:
        return False
    elements: list[tuple[Expr, ...]] = []
    for places in product(*(range(a.extent) for a in axes)):
        here: dict[Expr, Expr] = {a.var: const(n) for a, n in zip(axes, places, strict=True)}
        elements.append(tuple(simplify(substitute(b, here)) for b in op.bodies))
    one_by_one = sum(map(float_operations, elements))
    return float_operations([b for e in elements for b in e]) < SHARED * one_by_one


__all__ = ["share_work"]
