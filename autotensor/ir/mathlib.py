"""What the functions of `MATH` and the operators are: NumPy functions, on scalars and arrays alike, in the
type of their arguments.

The interpreter and the reference evaluator both take their meaning from here. `round` rounds half to even;
16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor.ir.expr import Cmp, Op


def _wide(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` for 16-bit floats too: in float32, rounded at the end."""

    def wrapped(x: Any) -> Any:
        return fn(x) if x.dtype.itemsize > 2 else fn(x.astype(np.float32)).astype(x.dtype)

    return wrapped


@_wide
def rsqrt(x: Any) -> Any:
    return x.dtype.type(1) / np.sqrt(x)


@_wide
def sigmoid(x: Any) -> Any:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


@_wide
def erf(x: Any) -> Any:
    values = np.array([math.erf(v) for v in np.ravel(x).tolist()], dtype=np.float64)
    return values.astype(x.dtype).reshape(np.shape(x))[()]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "rsqrt": rsqrt,
    "pow": np.power,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "sigmoid": sigmoid,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "abs": np.abs,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "fmod": np.fmod,
    "rounded": np.positive,
}

# of integers; those of bools and, where they have them, of floats are the same
OPERATORS: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.FLOORDIV: np.floor_divide,
    Op.MOD: np.remainder,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.SHL: np.left_shift,
    Op.SHR: np.right_shift,
}
COMPARISONS: dict[Cmp, Callable[[Any, Any], Any]] = {
    Cmp.EQ: np.equal,
    Cmp.NE: np.not_equal,
    Cmp.LT: np.less,
    Cmp.LE: np.less_equal,
    Cmp.GT: np.greater,
    Cmp.GE: np.greater_equal,
}
