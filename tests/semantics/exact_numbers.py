"""The right results, by NumPy, Python's integers and mpmath alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from autotensor.base.dtype import DType, dtype_of

Array = np.ndarray[Any, Any]
mpmath.mp.prec = 160


def shape_of(t: DType) -> tuple[int, int, int]:
    """(digits of the significand, least exponent of normal numbers, greatest) of a float type, in base 2."""
    if t.kind == "bfloat":
        return 8, -126, 127
    return {16: (11, -14, 15), 32: (24, -126, 127), 64: (53, -1022, 1023)}[t.bits]


def nearest(value: Fraction, t: DType) -> float:
    """A rational number rounded to a float type, halves to even."""
    if value == 0:
        return 0.0
    digits, least, greatest = shape_of(t)
    size = abs(value)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e -= size < Fraction(2) ** e
    unit = Fraction(2) ** (max(e, least) - digits + 1)
    units = size / unit
    whole = units.numerator // units.denominator
    rest = units - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    rounded = whole * unit
    if rounded >= Fraction(2) ** (greatest + 1):
        return float("inf") if value > 0 else float("-inf")
    return float(rounded) if value > 0 else -float(rounded)


# -- casts ---------------------------------------------------------------------------------------------------


def cast(x: Array, name: str) -> Array:
    """As docs/numerics.md says."""
    t = dtype_of(name)
    return np.array([_cast(v, t) for v in x.tolist()], t.numpy)


def _cast(v: Any, t: DType) -> Any:
    if t.is_bool:
        return v != 0
    if t.is_float:
        if isinstance(v, float) and (v != v or v in (float("inf"), float("-inf")) or v == 0):
            return v
        return nearest(Fraction(v), t)
    if isinstance(v, float):
        bits = 64 if t.bits == 64 or t == dtype_of("uint32") else 32
        least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        if t == dtype_of("uint64"):
            most = (1 << 64) - 1
        finite = v == v and abs(v) != float("inf")
        v = int(v) if finite and least <= int(v) <= most else least
    v = int(v) % (1 << t.bits)
    return v - (1 << t.bits) if t.kind == "int" and v >> (t.bits - 1) else v


def integer_power(x: Array, y: Array) -> Array:
    """x**y, wrapped around; 1/x without its fraction for negative y."""
    info = np.iinfo(x.dtype)

    def one(a: int, b: int) -> int:
        if b < 0:
            return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
        value = pow(a, b, 1 << info.bits)
        return value - (1 << info.bits) if info.min < 0 and value >> (info.bits - 1) else value

    return np.array([one(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], x.dtype)


def compare(fn: Callable[[Any, Any], bool]) -> Callable[[Array, Array], Array]:
    """Compares values of any types: Python's integers have no limits."""
    return lambda x, y: np.array([fn(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)])


# -- functions -----------------------------------------------------------------------------------------------


def _sigmoid(v: Any) -> Any:
    return 1 / (1 + mpmath.exp(-v))


def _erf(x: Array) -> Array:
    return np.copysign([float(mpmath.erf(v)) for v in x.tolist()], x)


MP: dict[str, Callable[..., Any]] = {
    **{n: getattr(mpmath, n) for n in ("exp", "expm1", "log", "log1p", "sin", "cos", "tan", "sqrt", "erf")},
    **{
        n: getattr(mpmath, n)
        for n in ("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
    },
    "exp2": lambda v: mpmath.mpf(2) ** v,
    "log2": lambda v: mpmath.log(v) / mpmath.log(2),
    "log10": lambda v: mpmath.log10(v),
    "rsqrt": lambda v: 1 / mpmath.sqrt(v),
    "sigmoid": _sigmoid,
    "pow": mpmath.power,
    "atan2": mpmath.atan2,
}
_ARC = {n: "arc" + n[1:] for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")}
NP: dict[str, Callable[..., Any]] = {
    **{n: getattr(np, _ARC.get(n, n)) for n in MP if n not in ("rsqrt", "sigmoid", "pow", "erf")},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "pow": np.power,
    "erf": _erf,
}
VANISHES = ("sigmoid",)  # what is below the least normal number may be 0
_FAR = 20_000.0  # of exponents of 2: no type has them


def function_errors(name: str, got: Array, *arrays: Array) -> Array:
    """How far results are from the exact ones, in units in the last place of their type; inf where one is
    another kind of number (NaN, infinity, a zero of another sign)."""
    t = dtype_of(got.dtype)
    with np.errstate(all="ignore"):
        wide = [a.astype(np.float64) for a in arrays]
        kinds = np.asarray(NP[name](*wide))
    plain = functools.reduce(np.logical_and, (np.isfinite(a) & (a != 0) for a in wide)) & ~np.isnan(kinds)
    rows = zip(*(a.tolist() for a in (got.astype(np.float64), kinds, plain, *wide)), strict=True)
    return np.array([_error(name, t, *row) for row in rows])


def _error(name: str, t: DType, got: float, kind: float, plain: bool, *values: float) -> float:
    """kind: NumPy's result in float64. Its sign is right, and it is right if an operand is 0 or not a
    number."""
    if kind != kind:
        return 0.0 if got != got else np.inf
    if got != got:
        return np.inf
    exact = _exact(name, *values) if plain else mpmath.mpf(kind)
    digits, least, greatest = shape_of(t)
    if exact == 0:
        return 0.0 if got == 0 and np.signbit(got) == np.signbit(kind) else np.inf
    if name in VANISHES and abs(exact) < mpmath.mpf(2) ** least:
        return 0.0 if 0 <= got <= 2.0**least else np.inf
    end = mpmath.mpf(2) ** (greatest + 1)
    if mpmath.isinf(exact):
        return 0.0 if got == exact else np.inf
    place = min(max(int(mpmath.floor(mpmath.log(abs(exact), 2))), least), greatest) - digits + 1
    shown = got if abs(got) != np.inf else np.sign(got) * end
    exact = min(max(exact, -end), end)  # what is further comes to the same
    return float(abs(mpmath.mpf(shown) - exact) / mpmath.mpf(2) ** place)


def _exact(name: str, *values: float) -> Any:
    numbers = [mpmath.mpf(v) for v in values]
    if name == "pow":
        a, b = numbers
        exponent = b * mpmath.log(abs(a), 2) if abs(a) != 1 else mpmath.mpf(0)
        if abs(exponent) > _FAR:
            sign = -1 if a < 0 and b % 2 == 1 else 1
            return sign * mpmath.mpf(2) ** (_FAR if exponent > 0 else -_FAR)
        size = abs(a) ** b
        return -size if a < 0 and b % 2 == 1 else size
    if name in ("exp", "exp2", "expm1", "sinh", "cosh", "sigmoid") and abs(numbers[0]) > _FAR:
        big = mpmath.mpf(2) ** _FAR
        low = {"expm1": mpmath.mpf(-1), "sinh": -big, "cosh": big}.get(name, 1 / big)
        high = mpmath.mpf(1) if name == "sigmoid" else big
        return high if numbers[0] > 0 else low
    if name == "tanh" and abs(numbers[0]) > _FAR:
        return mpmath.sign(numbers[0])
    if name in ("sin", "cos", "tan"):
        with mpmath.workprec(1300):  # 1e308 has as many digits before the point
            return +MP[name](*numbers)
    return MP[name](*numbers)
