"""Functions of expressions: exponentials, roundings, types, index arithmetic.

Each takes expressions, tensors of rank 0 or numbers. Integers become float32, except in `abs`; numbers take
the type of the other argument. What each function computes is said in `autotensor/ir/mathlib.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotensor.base.dtype import DType, dtype_of, wrap_int
from autotensor.base.errors import TensorError
from autotensor.ir import expr as ir
from autotensor.ir.expr import Expr, Op, as_expr, binary, call


def _unary(name: str, about: str) -> Callable[[Any], Expr]:
    """The function of that name in `ir.expr.MATH`."""

    def function(x: Any) -> Expr:
        return call(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = about
    return function


exp = _unary("exp", "e to the power of x.")
exp2 = _unary("exp2", "2 to the power of x.")
log = _unary("log", "Natural logarithm.")
log2 = _unary("log2", "Logarithm to base 2.")
log10 = _unary("log10", "Logarithm to base 10.")
log1p = _unary("log1p", "log(1 + x), exact near 0.")
expm1 = _unary("expm1", "exp(x) - 1, exact near 0.")
sqrt = _unary("sqrt", "Square root.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
sin = _unary("sin", "Sine of radians.")
cos = _unary("cos", "Cosine of radians.")
tan = _unary("tan", "Tangent of radians.")
asin = _unary("asin", "Inverse sine, in radians.")
acos = _unary("acos", "Inverse cosine, in radians.")
atan = _unary("atan", "Inverse tangent, in radians.")
sinh = _unary("sinh", "Hyperbolic sine.")
cosh = _unary("cosh", "Hyperbolic cosine.")
tanh = _unary("tanh", "Hyperbolic tangent.")
asinh = _unary("asinh", "Inverse hyperbolic sine.")
acosh = _unary("acosh", "Inverse hyperbolic cosine.")
atanh = _unary("atanh", "Inverse hyperbolic tangent.")
erf = _unary("erf", "Error function.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
floor = _unary("floor", "Greatest whole number not above x.")
ceil = _unary("ceil", "Least whole number not below x.")
round = _unary("round", "Nearest whole number; halves to the even one.")
trunc = _unary("trunc", "x without its fraction.")
abs = _unary("abs", "Magnitude; integers stay integers.")
isnan = _unary("isnan", "Whether x is not a number; bool.")
isinf = _unary("isinf", "Whether x is infinite; bool.")
rounded = _unary("rounded", "x itself, rounded to its type: a product in it joins no multiply-add.")


def pow(x: Any, y: Any) -> Expr:
    """x to the power of y."""
    return call("pow", x, y)


def atan2(y: Any, x: Any) -> Expr:
    """Angle of the point (x, y), in radians."""
    return call("atan2", y, x)


def fmod(x: Any, y: Any) -> Expr:
    """Remainder of x / y with the sign of x."""
    return call("fmod", x, y)


def floordiv(a: Any, b: Any) -> Expr:
    """Quotient rounded towards minus infinity, as Python's `//`."""
    return binary(Op.FLOORDIV, a, b)


def floormod(a: Any, b: Any) -> Expr:
    """Remainder with the sign of the divisor, as Python's `%`."""
    return binary(Op.MOD, a, b)


power, indexdiv, indexmod = pow, floordiv, floormod  # TVM's names


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
    if t.is_int and (int(value) != value or wrap_int(int(value), t.element) != int(value)):
        raise TensorError(f"{value!r} does not fit in {t.element}.")
    return ir.const(value, t)


def min_value(dtype: DType | str) -> Expr:
    """The least number of the type; -inf for floats."""
    return ir.min_value(dtype_of(dtype))


def max_value(dtype: DType | str) -> Expr:
    """The greatest number of the type; inf for floats."""
    return ir.max_value(dtype_of(dtype))
