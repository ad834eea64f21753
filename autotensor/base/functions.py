"""Scalar functions: one row for each, with a sentence about it and its names in NumPy, ONNX and ATen.

    exp = unary("exp", call)           te:          an expression of an expression
    exp = unary("exp", elementwise)    flow:        a node of a node
    exp = unary("exp", apply)          imperative:  a tensor of a tensor

Other facts about a function are in the modules that need them, by its name: derivatives in
`autodiff/derivatives.py`, code in `codegen/`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Ulps = tuple[float, float, float]


# -- functions that NumPy lacks ------------------------------------------------------------------------------


def rsqrt(x: Any) -> Any:
    return x.dtype.type(1) / np.sqrt(x)


def sigmoid(x: Any) -> Any:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


def erf(x: Any) -> Any:
    """The error function, in float64: Taylor's series about the nearest point of a table.

    It takes 20 ns for each element on one core; `math.erf`, called for each element, takes 300 ns (Emerald
    Rapids, 2026-11).
    """
    flat = np.ravel(x)
    values = np.empty(flat.shape, flat.dtype)
    for start in range(0, flat.size, 8192):  # fits into a core's caches
        part = flat[start : start + 8192].astype(np.float64)
        values[start : start + 8192] = np.copysign(_positive_erf(np.abs(part)), part)
    return values.reshape(np.shape(x))[()]


_ERF_POINTS, _ERF_END = 64, 6  # points per unit; the end of the table, where erf is 1 in float64


def _positive_erf(x: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The error function of x: [n]; values are not negative, or NaN."""
    coefficients = _erf_series()  # [degree, points]
    points = np.rint(np.fmin(x, _ERF_END) * _ERF_POINTS).astype(np.int64)
    off = np.minimum(x, _ERF_END) - points * (1 / _ERF_POINTS)  # exact, at most 1/128; NaN for NaN
    y: np.ndarray[Any, np.dtype[np.float64]] = coefficients[-1].take(points)
    for row in coefficients[-2::-1]:
        y *= off
        y += row.take(points)
    return y


@lru_cache(maxsize=1)
def _erf_series() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Taylor's coefficients of erf about each point, up to degree seven; the remainder is less than 1e-18.

    Derivative n + 1 is 2/√π (-1)^n H(n, x) exp(-x²), with Hermite's polynomials H(n + 1) = 2 x H(n) -
    2 n H(n - 1). Source: Abramowitz and Stegun, 7.1.19 and 22.7.13.
    """
    x = np.arange(_ERF_END * _ERF_POINTS + 1) / _ERF_POINTS
    before, now = np.zeros_like(x), 2 / math.sqrt(math.pi) * np.exp(-x * x)
    rows = [np.array([math.erf(v) for v in x.tolist()])]
    for n in range(7):
        rows.append((-1) ** n * now / math.factorial(n + 1))
        before, now = now, 2 * x * now - 2 * n * before
    return np.stack(rows)


def power(a: Any, b: Any) -> Any:
    """Powers. Integers are squared repeatedly and wrap around; a negative power is rounded towards 0."""
    if np.asarray(a).dtype.kind not in "iu":  # as arrays: NumPy takes the root for a scalar 0.5, even of -inf
        return np.power(*np.atleast_1d(a, b)).reshape(np.broadcast_shapes(np.shape(a), np.shape(b)))[()]
    one, zero = np.ones_like(a), np.zeros_like(a)
    if np.asarray(a).dtype.kind == "u":
        return np.power(a, b)
    flipped = np.where(np.equal(a, -1), np.where(np.equal(b & 1, 1), -one, one), zero)
    reciprocal = np.where(np.equal(a, 1), one, flipped)
    return np.where(np.less(b, 0), reciprocal, np.power(a, np.where(np.less(b, 0), zero, b)))


# -- the table -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Function:
    """A function of floats. Its name in ATen is the same as ours.

    ulps: the greatest errors for all arguments, in units in the last place of the result's type: the error of
    our own code, of the interpreter (that is NumPy), and of OpenCL (its specification, section 7.4). None:
    the function is exact. For 16-bit floats, functions are computed in float32 and rounded once. Results of
    sigmoid below the least normal number may be 0.
    """

    about: str
    numpy: Callable[..., Any]
    onnx: str = ""  # "" if ONNX has no function with this meaning
    ulps: Ulps | None = None
    arity: int = 1


FUNCTIONS = {
    "sqrt": Function("Square root.", np.sqrt, "Sqrt", (0.5, 0.5, 3.0)),
    "rsqrt": Function("1 / sqrt(x).", rsqrt, "", (1.5, 1.5, 2.0)),
    "exp": Function("e to the power of x.", np.exp, "Exp", (2.5, 4.0, 3.0)),
    "exp2": Function("2 to the power of x.", np.exp2, "", (2.5, 4.0, 3.0)),
    "expm1": Function("exp(x) - 1, exact near 0.", np.expm1, "", (2.5, 4.0, 3.0)),
    "log": Function("Natural logarithm.", np.log, "Log", (2.5, 4.0, 3.0)),
    "log2": Function("Logarithm to base 2.", np.log2, "", (2.5, 4.0, 3.0)),
    "log10": Function("Logarithm to base 10.", np.log10, "", (2.5, 4.0, 3.0)),
    "log1p": Function("log(1 + x), exact near 0.", np.log1p, "", (2.5, 4.0, 2.0)),
    "pow": Function("a to the power of b.", power, "", (2.5, 4.0, 16.0), arity=2),
    "sigmoid": Function("1 / (1 + exp(-x)).", sigmoid, "Sigmoid", (2.5, 4.0, 6.0)),
    "erf": Function("Error function.", erf, "Erf", (3.1, 4.0, 16.0)),
    "sin": Function("Sine of radians.", np.sin, "Sin", (2.5, 4.0, 4.0)),
    "cos": Function("Cosine of radians.", np.cos, "Cos", (2.5, 4.0, 4.0)),
    "tan": Function("Tangent of radians.", np.tan, "Tan", (2.5, 4.0, 5.0)),
    "asin": Function("Inverse sine, in radians.", np.arcsin, "Asin", (2.5, 4.0, 4.0)),
    "acos": Function("Inverse cosine, in radians.", np.arccos, "Acos", (2.5, 4.0, 4.0)),
    "atan": Function("Inverse tangent, in radians.", np.arctan, "Atan", (2.5, 4.0, 5.0)),
    "atan2": Function("Angle of the point (b, a), in radians.", np.arctan2, "", (2.5, 4.0, 6.0), arity=2),
    "sinh": Function("Hyperbolic sine.", np.sinh, "Sinh", (2.5, 4.0, 4.0)),
    "cosh": Function("Hyperbolic cosine.", np.cosh, "Cosh", (2.5, 4.0, 4.0)),
    "tanh": Function("Hyperbolic tangent.", np.tanh, "Tanh", (2.5, 4.0, 5.0)),
    "asinh": Function("Inverse hyperbolic sine.", np.arcsinh, "Asinh", (2.5, 4.0, 4.0)),
    "acosh": Function("Inverse hyperbolic cosine.", np.arccosh, "Acosh", (2.5, 4.0, 4.0)),
    "atanh": Function("Inverse hyperbolic tangent.", np.arctanh, "Atanh", (2.5, 4.0, 5.0)),
    "floor": Function("Greatest whole number not above x.", np.floor, "Floor"),
    "ceil": Function("Least whole number not below x.", np.ceil, "Ceil"),
    "round": Function("Nearest whole number; halves to the even one.", np.rint, "Round"),
    "trunc": Function("x without its fraction.", np.trunc),
    "abs": Function("Magnitude; integers stay integers.", np.abs, "Abs"),
    "isnan": Function("Whether x is not a number; bool.", np.isnan, "IsNaN"),
    "isinf": Function("Whether x is infinite; bool.", np.isinf),
    "fmod": Function("Remainder of a / b with the sign of a.", np.fmod, arity=2),
    "floordiv": Function("Quotient of floats, rounded down.", np.floor_divide, arity=2),
    "floormod": Function("Remainder of floats with the sign of the divisor.", np.remainder, arity=2),
    # rounds as a store to memory would: no multiply-add fuses a product in it with an addition outside
    "rounded": Function("x itself, rounded to its type: a product in it joins no multiply-add.", np.positive),
}

# sentences about operators of one value that are not functions of floats
ABOUT = {
    "relu": "max(x, 0).",
    "gelu": "x * Φ(x).",
    "neg": "-x.",
    "identity": "x itself, as a node of its own.",
    "logical_not": "Where x is false.",
}


# -- callables of the table's names --------------------------------------------------------------------------


def unary(name: str, apply: Callable[..., T]) -> Callable[..., T]:
    """`x ──▶ apply(name, x)`, as a function with that name and the sentence about it as its docstring."""

    def function(x: Any, **attrs: Any) -> T:
        return apply(name, x, **attrs)

    return _named(function, name)


def binary(name: str, apply: Callable[..., T]) -> Callable[..., T]:
    """`a, b ──▶ apply(name, a, b)`, as a function with that name and docstring."""

    def function(a: Any, b: Any, **attrs: Any) -> T:
        return apply(name, a, b, **attrs)

    return _named(function, name)


def _named(function: F, name: str) -> F:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = FUNCTIONS[name].about if name in FUNCTIONS else ABOUT.get(name)
    return function
