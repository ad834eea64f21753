"""Whether the elements along short axes share work: computed at one place, they need each operation once.

    y[t, c, i] = select(c < 1, f(a, b), select(c < 2, g(a, b), h(a, b)))        a, b: the same for all c

Loops over such an axis stand inside the loops over vectors and are written out; code generation finds the
equal operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from autotensor.ir.expr import Call, Expr, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.te.stage import IterDef, StageOp, evaluated, float_operations

CALLED = 16.0  # operations of an exponential or a sine, about
# share of the operations of elements computed one by one; below it, sharing is worth it (chosen, 2026-11)
SHARED = 0.6


def share_work(op: StageOp, axes: Sequence[IterDef], most: int, least: float = 0.0) -> bool:
    """Whether the elements along the axes, `most` at most, take far fewer operations together, `least` fewer
    for each of them.

    A condition on the axes alone is settled for each element.
    """
    if not 1 < prod(a.extent for a in axes) <= most or op.is_reduction:
        return False
    elements: list[tuple[Expr, ...]] = []
    for places in product(*(range(a.extent) for a in axes)):
        here: dict[Expr, Expr] = {a.var: const(n) for a, n in zip(axes, places, strict=True)}
        elements.append(tuple(simplify(substitute(b, here)) for b in op.bodies))
    one_by_one, together = sum(map(_work, elements)), _work([b for e in elements for b in e])
    return together < SHARED * one_by_one and one_by_one - together >= least * len(elements)


def _work(bodies: Sequence[Expr]) -> float:
    """Operations on floats of bodies that are computed together."""
    calls = sum(isinstance(e, Call) and e.dtype.is_float for e in evaluated(bodies))
    return float_operations(bodies) + (CALLED - 1.0) * calls


__all__ = ["share_work"]
