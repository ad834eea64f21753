"""Functions of expressions: exponentials, roundings, types, index arithmetic.

Each takes expressions, tensors of rank 0 or numbers. Integers become float32, except in `abs`; numbers take
the type of the other argument. `autotensor/ir/semantics.py` defines each function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from autotensor.base.absent_names import absent
from autotensor.base.dtype import DType, dtype_of, float32, wrap_int
from autotensor.base.errors import TensorError
from autotensor.base.functions import FUNCTIONS, binary, unary
from autotensor.ir import expr as ir
from autotensor.ir.expr import Expr, Op, as_expr, call


def __getattr__(name: str) -> Callable[..., Expr]:
    """The functions of `base/functions.py`: `exp(x)`, `atan2(a, b)`."""
    if name not in FUNCTIONS:
        raise absent("te.math", name, sys.modules[__name__], {})
    return (unary if FUNCTIONS[name].arity == 1 else binary)(name, call)


def floordiv(a: Any, b: Any) -> Expr:
    """Quotient rounded towards minus infinity, as Python's `//`."""
    return ir.binary(Op.FLOORDIV, a, b)


def floormod(a: Any, b: Any) -> Expr:
    """Remainder with the sign of the divisor, as Python's `%`."""
    return ir.binary(Op.MOD, a, b)


power, indexdiv, indexmod = binary("pow", call), floordiv, floormod  # TVM's names


def cast(dtype: DType | str, value: Any) -> Expr:
    """The value converted to `dtype`.

    A float that becomes an integer loses its fraction; bool means `!= 0`.
    """
    return ir.cast(dtype_of(dtype), as_expr(value))


def const(value: float | int | bool, dtype: DType | str | None = None) -> Expr:
    """A number of the given type; without a type, it is bool, int64 or float32.

    Raises TensorError for a number that an integer type cannot hold.
    """
    if dtype is None:
        return as_expr(value)
    t = dtype_of(dtype)
    if t.is_int and (int(value) != value or wrap_int(int(value), t.element) != int(value)):
        raise TensorError(f"{value!r} does not fit in {t.element}.")
    return ir.const(value, t)


def min_value(dtype: DType | str) -> Expr:
    """The least number of the type; -inf for floats."""
    return ir.min_value(dtype_of(dtype))


def max_value(dtype: DType | str) -> Expr:
    """The greatest number of the type; inf for floats."""
    return ir.max_value(dtype_of(dtype))


def requantize(
    total: Any, scale: Any, zero: Any = 0, dtype: DType | str = "uint8", shift: Any = None
) -> Expr:
    """`clamp(rint(float32(total) * scale [+ shift]) + zero)`: a sum of integers as a byte, halves to even.

    The float32 product is rounded, then its sum with `shift` (float32) is rounded; the result is clamped to
    the range of `dtype`, an integer type of at most 16 bits. A scale of NaN gives 0. All schedules and
    backends give the same bits (docs/numerics.md). Raises TensorError for another type.
    """
    t = dtype_of(dtype)
    if not t.is_int or t.bits > 16:
        raise TensorError(f"requantize: {t} is not an integer type of at most 16 bits.")
    return saturated(rescaled(total, scale, shift) + ir.cast(float32, as_expr(zero)), t)


def rescaled(total: Any, scale: Any, shift: Any = None) -> Expr:
    """`rint(float32(total) * scale [+ shift])`, a whole number in float32: see `requantize`."""
    real = ir.cast(float32, as_expr(total)) * scale
    if shift is not None:  # rounded separately: the product must not become part of a multiply-add
        real = call("rounded", real) + call("rounded", as_expr(shift))
    return call("round", real)


def saturated(value: Expr, dtype: DType) -> Expr:
    """A whole number in a float, clamped to an integer type of at most 16 bits; NaN gives 0."""
    low, high = (ir.cast(value.dtype, limit(dtype)) for limit in (min_value, max_value))
    return ir.cast(dtype, ir.minimum(ir.maximum(value, low), high))
