"""Functions of expressions: exponentials, roundings, types, index arithmetic.

Each takes expressions, tensors of rank 0 or numbers. Integers become float32, except in `abs`; numbers take
the type of the other argument. What each function computes is said in `autotensor/ir/semantics.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotensor.base.dtype import DType, dtype_of, wrap_int
from autotensor.base.errors import TensorError
from autotensor.base.functions import binary, unary
from autotensor.ir import expr as ir
from autotensor.ir.expr import Expr, Op, as_expr, call


def _unary(name: str) -> Callable[[Any], Expr]:
    """The function of that name in `ir.expr.MATH`."""
    return unary(name, call)


exp = _unary("exp")
exp2 = _unary("exp2")
log = _unary("log")
log2 = _unary("log2")
log10 = _unary("log10")
log1p = _unary("log1p")
expm1 = _unary("expm1")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
sinh = _unary("sinh")
cosh = _unary("cosh")
tanh = _unary("tanh")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
erf = _unary("erf")
sigmoid = _unary("sigmoid")
floor = _unary("floor")
ceil = _unary("ceil")
round = _unary("round")
trunc = _unary("trunc")
abs = _unary("abs")
isnan = _unary("isnan")
isinf = _unary("isinf")
rounded = _unary("rounded")
pow = binary("pow", call)
atan2 = binary("atan2", call)
fmod = binary("fmod", call)


def floordiv(a: Any, b: Any) -> Expr:
    """Quotient rounded towards minus infinity, as Python's `//`."""
    return ir.binary(Op.FLOORDIV, a, b)


def floormod(a: Any, b: Any) -> Expr:
    """Remainder with the sign of the divisor, as Python's `%`."""
    return ir.binary(Op.MOD, a, b)


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
