"""Functions of expressions: exponentials, roundings, types, index arithmetic.

Each takes expressions, tensors of rank 0 or numbers. Integers become float32, except in `abs`; numbers take
the type of the other argument. What each function computes is said in `autotensor/ir/mathlib.py`.
"""

from __future__ import annotations

from typing import Any

from autotensor.base.dtype import DType, dtype_of
from autotensor.base.errors import TensorError
from autotensor.ir import expr as ir
from autotensor.ir.expr import Expr, Op, as_expr, binary, call


def exp(x: Any) -> Expr:
    """e to the power of x."""
    return call("exp", x)


def exp2(x: Any) -> Expr:
    """2 to the power of x."""
    return call("exp2", x)


def log(x: Any) -> Expr:
    """Natural logarithm."""
    return call("log", x)


def log2(x: Any) -> Expr:
    """Logarithm to base 2."""
    return call("log2", x)


def log10(x: Any) -> Expr:
    """Logarithm to base 10."""
    return call("log10", x)


def log1p(x: Any) -> Expr:
    """log(1 + x), exact near 0."""
    return call("log1p", x)


def expm1(x: Any) -> Expr:
    """exp(x) - 1, exact near 0."""
    return call("expm1", x)


def sqrt(x: Any) -> Expr:
    """Square root."""
    return call("sqrt", x)


def rsqrt(x: Any) -> Expr:
    """1 / sqrt(x)."""
    return call("rsqrt", x)


def pow(x: Any, y: Any) -> Expr:
    """x to the power of y."""
    return call("pow", x, y)


def sin(x: Any) -> Expr:
    """Sine of radians."""
    return call("sin", x)


def cos(x: Any) -> Expr:
    """Cosine of radians."""
    return call("cos", x)


def tan(x: Any) -> Expr:
    """Tangent of radians."""
    return call("tan", x)


def asin(x: Any) -> Expr:
    """Inverse sine, in radians."""
    return call("asin", x)


def acos(x: Any) -> Expr:
    """Inverse cosine, in radians."""
    return call("acos", x)


def atan(x: Any) -> Expr:
    """Inverse tangent, in radians."""
    return call("atan", x)


def atan2(y: Any, x: Any) -> Expr:
    """Angle of the point (x, y), in radians."""
    return call("atan2", y, x)


def sinh(x: Any) -> Expr:
    """Hyperbolic sine."""
    return call("sinh", x)


def cosh(x: Any) -> Expr:
    """Hyperbolic cosine."""
    return call("cosh", x)


def tanh(x: Any) -> Expr:
    """Hyperbolic tangent."""
    return call("tanh", x)


def asinh(x: Any) -> Expr:
    """Inverse hyperbolic sine."""
    return call("asinh", x)


def acosh(x: Any) -> Expr:
    """Inverse hyperbolic cosine."""
    return call("acosh", x)


def atanh(x: Any) -> Expr:
    """Inverse hyperbolic tangent."""
    return call("atanh", x)


def erf(x: Any) -> Expr:
    """Error function."""
    return call("erf", x)


def sigmoid(x: Any) -> Expr:
    """1 / (1 + exp(-x))."""
    return call("sigmoid", x)


def floor(x: Any) -> Expr:
    """Greatest whole number not above x."""
    return call("floor", x)


def ceil(x: Any) -> Expr:
    """Least whole number not below x."""
    return call("ceil", x)


def round(x: Any) -> Expr:
    """Nearest whole number; halves to the even one."""
    return call("round", x)


def trunc(x: Any) -> Expr:
    """x without its fraction."""
    return call("trunc", x)


def abs(x: Any) -> Expr:
    """Magnitude; integers stay integers."""
    return call("abs", x)


def isnan(x: Any) -> Expr:
    """Whether x is not a number; bool."""
    return call("isnan", x)


def isinf(x: Any) -> Expr:
    """Whether x is infinite; bool."""
    return call("isinf", x)


def fmod(x: Any, y: Any) -> Expr:
    """Remainder of x / y with the sign of x."""
    return call("fmod", x, y)


def power(x: Any, y: Any) -> Expr:
    """x to the power of y (TVM's name)."""
    return call("pow", x, y)


def floordiv(a: Any, b: Any) -> Expr:
    """Quotient rounded towards minus infinity, as Python's `//`."""
    return binary(Op.FLOORDIV, a, b)


def floormod(a: Any, b: Any) -> Expr:
    """Remainder with the sign of the divisor, as Python's `%`."""
    return binary(Op.MOD, a, b)


def indexdiv(a: Any, b: Any) -> Expr:
    """Floor division of indices (TVM's name)."""
    return binary(Op.FLOORDIV, a, b)


def indexmod(a: Any, b: Any) -> Expr:
    """Floor modulo of indices (TVM's name)."""
    return binary(Op.MOD, a, b)


def cast(dtype: DType | str, value: Any) -> Expr:
    """The value converted; a float to an integer drops its fraction, anything to bool is `!= 0`."""
    return ir.cast(dtype_of(dtype), as_expr(value))


def const(value: float | int | bool, dtype: DType | str | None = None) -> Expr:
    """A number of the given type; by itself it is bool, int64 or float32.

    Raises TensorError for a number that an integer type cannot hold.
    """
    if dtype is None:
        return as_expr(value)
    t = dtype_of(dtype)
    if t.is_int and (int(value) != value or ir.wrap_int(int(value), t.element) != int(value)):
        raise TensorError(f"{value!r} does not fit in {t.element}.")
    return ir.const(value, t)


def min_value(dtype: DType | str) -> Expr:
    """The least number of the type; -inf for floats."""
    return ir.min_value(dtype_of(dtype))


def max_value(dtype: DType | str) -> Expr:
    """The greatest number of the type; inf for floats."""
    return ir.max_value(dtype_of(dtype))
