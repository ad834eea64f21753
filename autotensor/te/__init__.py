"""Tensor expressions: what is computed, in the spelling that TVM's users know.

    from autotensor import te
    A = te.placeholder((1024, 1024), name="A")
    B = te.compute((1024, 1024), lambda i, j: te.exp(A[i, j]) + 1.0, name="B")

Start reading at `te/compute.py`, then `te/dag.py` (what the rest of the system sees of an expression).
"""

from __future__ import annotations

from functools import partial as _partial

from autotensor.ir.expr import MATH as _MATH
from autotensor.ir.expr import Expr, call, cast, const, max_value, maximum, min_value, minimum, select
from autotensor.te.compute import Compute, all, any, comm_reducer, compute, max, min, prod, reduce_axis, sum
from autotensor.te.tensor import AxisKind, IterVar, Placeholder, Tensor, placeholder

if_then_else = select  # both evaluate only the side they take

for _name in _MATH:
    globals()[_name] = _partial(call, _name)
power = _partial(call, "pow")
floordiv = Expr.__floordiv__
floormod = Expr.__mod__


def indexdiv(a: Expr, b: object) -> Expr:
    """Floor division of indices (TVM's name)."""
    return a // b


def indexmod(a: Expr, b: object) -> Expr:
    """Floor modulo of indices (TVM's name)."""
    return a % b


__all__ = [
    "AxisKind",
    "Compute",
    "Expr",
    "IterVar",
    "Placeholder",
    "Tensor",
    "all",
    "any",
    "call",
    "cast",
    "comm_reducer",
    "compute",
    "const",
    "floordiv",
    "floormod",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "max",
    "max_value",
    "maximum",
    "min",
    "min_value",
    "minimum",
    "placeholder",
    "power",
    "prod",
    "reduce_axis",
    "select",
    "sum",
    *_MATH,
]
