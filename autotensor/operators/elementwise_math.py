"""More elementwise operators: signs, bits, tests of floats, and division of whole numbers.

divide_trunc[i…] = a[i…] / b[i…] without its fraction         mod_trunc: the remainder, with the sign of a
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.elementwise import INTEGER, binary, of_floats, pairs, samples, unary
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import require, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def _sign(v: Expr) -> Any:
    one, zero = te.const(1, v.dtype), te.const(0, v.dtype)
    if v.dtype.kind == "uint":
        return te.select(v > 0, one, zero)
    rest = te.select(v.equal(zero), zero, v) if v.dtype.is_float else zero  # NaN stays NaN
    return te.select(v > 0, one, te.select(v < 0, -one, rest))


unary("sign", _sign, np.sign, samples(-4, 4, INTEGER))
unary("reciprocal", lambda v: te.const(1, v.dtype) / v, of_floats(np.reciprocal), samples(0.5, 4))


def _isinf_reference(x: Array, positive: bool = True, negative: bool = True) -> Array:
    return (np.isposinf(x) & positive) | (np.isneginf(x) & negative)


@operator(
    "isinf",
    kind=Kind.ELEMENTWISE,
    reference=_isinf_reference,
    cases=(*samples(), *samples(negative=False)[2:3], *samples(positive=False)[2:3]),
)
def isinf(x: Tensor, positive: bool = True, negative: bool = True) -> Tensor:
    """Whether x is infinite, for the selected signs."""

    def value(v: Expr) -> Any:
        sides = ([v > 0] if positive else []) + ([v < 0] if negative else [])
        return te.all(te.isinf(v), te.any(*sides)) if sides else te.const(False, "bool")

    return stage(x.shape, lambda *i: value(x[i]), "isinf")


@operator(
    "bitwise_not",
    kind=Kind.ELEMENTWISE,
    reference=np.bitwise_not,
    cases=tuple(Case(((7, 17),), dtypes=(t,), low=0, high=100) for t in ("int32", "uint8")),
)
def bitwise_not(x: Tensor) -> Tensor:
    require(x.dtype.is_int, f"bitwise_not: x is {x.dtype}, expected integers.")
    return stage(x.shape, lambda *i: ~x[i], "bitwise_not")


# -- two operands --------------------------------------------------------------------------------------------


def _divide_trunc(a: Expr, b: Expr) -> Expr:
    quotient = te.floordiv(a, b)
    if quotient.dtype.kind == "uint":
        return quotient
    inexact = ~te.floormod(a, b).equal(0)
    return te.select(te.all(inexact, (a < 0) ^ (b < 0)), quotient + 1, quotient)


def _mod_trunc(a: Expr, b: Expr) -> Expr:
    if a.dtype.is_float or b.dtype.is_float:
        return te.fmod(a, b)
    rest = te.floormod(a, b)
    if rest.dtype.kind == "uint":
        return rest
    return te.select(te.all(~rest.equal(0), (a < 0) ^ (b < 0)), rest - b, rest)


def _trunc_quotient(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    return np.asarray(np.where((np.mod(a, b) != 0) & ((a < 0) != (b < 0)), quotient + 1, quotient)).astype(
        quotient.dtype
    )


def _whole_pairs(low: int, *types: str) -> tuple[Case, ...]:
    return tuple(
        Case(((2, 1, 33), (3, 1)), dtypes=(t, t), low=low if t[0] == "i" else 1, high=9) for t in types
    )


DIVISORS = _whole_pairs(1, "int32", "uint8", "int64")
NEGATIVE = (Case(((7, 17), (7, 1)), dtypes=("int32", "int32"), low=-9, high=0),)
BITS = _whole_pairs(-9, "int32", "uint8")
SHIFTS = (
    *(Case(((7, 17), (17,)), dtypes=(t, t), low=0, high=12) for t in ("uint8", "uint32")),
    Case(((7, 17), (17,)), dtypes=("int8", "int8"), low=-12, high=12),
)

# name, value from two elements, reference, cases
BINARY: tuple[tuple[str, Callable[[Any, Any], Any], Callable[..., Any], tuple[Case, ...]], ...] = (
    ("divide_trunc", _divide_trunc, _trunc_quotient, DIVISORS + NEGATIVE),
    ("mod_trunc", _mod_trunc, np.fmod, DIVISORS + NEGATIVE + pairs(0.5)),
    ("floor_divide", te.floordiv, np.floor_divide, DIVISORS + NEGATIVE + pairs(0.5)),
    ("mod_floor", te.floormod, np.mod, DIVISORS + NEGATIVE + pairs(0.5)),
    ("bitwise_and", lambda a, b: a & b, np.bitwise_and, BITS),
    ("bitwise_or", lambda a, b: a | b, np.bitwise_or, BITS),
    ("bitwise_xor", lambda a, b: a ^ b, np.bitwise_xor, BITS),
    ("shift_left", lambda a, b: a << b, np.left_shift, SHIFTS),
    ("shift_right", lambda a, b: a >> b, np.right_shift, SHIFTS),
)


for _row2 in BINARY:
    binary(*_row2)
