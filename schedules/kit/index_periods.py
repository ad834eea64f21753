"""The period of an axis: after how many elements its quotients and remainders by numbers repeat.

    y[t] = x[t * 2 // 3] * h[t * 2 % 3]      after 3 elements, t * 2 // 3 has grown by 2 and t * 2 % 3 by 0

If a tile is a multiple of the period, each of its vectors reads memory in a pattern that is known when the
kernel is compiled. Then a few loads and shuffles take the place of a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, lcm

from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Const, Expr, Op, Var
from autotensor.ir.visit import collect
from autotensor.te.stage import IterDef

MOST = 8  # most vectors of a tile that is a multiple of a period (chosen, 2026-12)


def vectors_of_period(values: Sequence[Expr], axes: Sequence[IterDef], lanes: int) -> int:
    """The least number of vectors along these axes, as one loop, that are a multiple of the period of these
    values; 1 if that is more than MOST, or longer than the loop.

    >>> from autotensor import te
    >>> from autotensor.te.dag import ComputeDAG
    >>> x = te.placeholder((100,), name="x")
    >>> (stage,) = ComputeDAG.of([x, te.compute((150,), lambda t: x[t * 2 // 3], name="y")]).stages
    >>> vectors_of_period(stage.bodies, stage.axes, 16)
    3
    """
    period, inner = 1, 1
    for a in reversed(axes):
        period = lcm(period, inner * _period(values, a.var))
        inner *= a.extent
    count = period // gcd(period, lanes)
    return count if count <= min(MOST, inner // lanes) else 1


def _period(values: Sequence[Expr], axis: Var) -> int:
    parts = (e for value in values for e in collect(value, Binary))
    return lcm(*(_repeats(e, axis) for e in parts if e.op in (Op.FLOORDIV, Op.MOD)))


def _repeats(e: Binary, axis: Var) -> int:
    """After how many elements of the axis a quotient or remainder repeats; 1 if the axis is not in it."""
    dividend = affine(e.a) if e.dtype.is_int else None
    if dividend is None or not isinstance(e.b, Const) or e.b.value < 1:
        return 1
    by = int(e.b.value)
    return by // gcd(by, dividend.coefficient(axis))
