"""Decides whether the elements along short axes share work.

If they are computed together, each common operation is done once.

    y[t, c, i] = select(c < 1, f(a, b), select(c < 2, g(a, b), h(a, b)))        a, b: the same for all c

Loops over such an axis are inside the loops over vectors and are unrolled. Code generation finds the equal
operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from autotensor.ir.expr import Call, Expr, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.te.stage import IterDef, StageOp, evaluated, float_operations

CALLED = 16.0  # approximate operations of an exponential or a sine
# sharing is worth it below this share of the operations of elements computed one by one (chosen, 2026-11)
SHARED = 0.6


def share_work(op: StageOp, axes: Sequence[IterDef], most: int, least: float = 0.0) -> bool:
    """Whether the elements along the axes, of which there may be `most`, take far fewer operations if they
    are computed together: at least `least` fewer for each of them.

    A condition on the axes alone is constant for each element.
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
    """The float operations of bodies that are computed together."""
    calls = sum(isinstance(e, Call) and e.dtype.is_float for e in evaluated(bodies))
    return float_operations(bodies) + (CALLED - 1.0) * calls


__all__ = ["share_work"]
