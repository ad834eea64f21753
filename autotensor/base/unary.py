"""Functions of one value: one table of names and sentences for te and both programming styles.

exp = unary("exp", call)         te:          an expression of an expression
exp = unary("exp", operation)    flow:        a node of a node
exp = unary("exp", apply)        imperative:  a tensor of a tensor
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

ABOUT = {
    "exp": "e to the power of x.",
    "exp2": "2 to the power of x.",
    "log": "Natural logarithm.",
    "log2": "Logarithm to base 2.",
    "log10": "Logarithm to base 10.",
    "log1p": "log(1 + x), exact near 0.",
    "expm1": "exp(x) - 1, exact near 0.",
    "sqrt": "Square root.",
    "rsqrt": "1 / sqrt(x).",
    "sin": "Sine of radians.",
    "cos": "Cosine of radians.",
    "tan": "Tangent of radians.",
    "asin": "Inverse sine, in radians.",
    "acos": "Inverse cosine, in radians.",
    "atan": "Inverse tangent, in radians.",
    "sinh": "Hyperbolic sine.",
    "cosh": "Hyperbolic cosine.",
    "tanh": "Hyperbolic tangent.",
    "asinh": "Inverse hyperbolic sine.",
    "acosh": "Inverse hyperbolic cosine.",
    "atanh": "Inverse hyperbolic tangent.",
    "erf": "Error function.",
    "sigmoid": "1 / (1 + exp(-x)).",
    "relu": "max(x, 0).",
    "gelu": "x * Φ(x).",
    "floor": "Greatest whole number not above x.",
    "ceil": "Least whole number not below x.",
    "round": "Nearest whole number; halves to the even one.",
    "trunc": "x without its fraction.",
    "abs": "Magnitude; integers stay integers.",
    "neg": "-x.",
    "identity": "x itself, as a node of its own.",
    "logical_not": "Where x is false.",
    "isnan": "Whether x is not a number; bool.",
    "isinf": "Whether x is infinite; bool.",
    "rounded": "x itself, rounded to its type: a product in it joins no multiply-add.",
}


def unary(name: str, apply: Callable[[str, Any], T]) -> Callable[[Any], T]:
    """`x ──▶ apply(name, x)`, as a function of that name with its sentence."""

    def function(x: Any) -> T:
        return apply(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = ABOUT[name]
    return function
