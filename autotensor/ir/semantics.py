"""The meaning of every scalar operation, also at the ends of every type; it is defined only here.

    integer(Op.SHL, 1, 40, int32)          0: for Python integers; constants and the interpreter use it
    OPERATORS[Op.SHL](a, b)                the same for NumPy arrays; the reference uses it
    FUNCTIONS["sin"](x)                    mathematical functions, in the type of their arguments
    converted(x, int8)                     casts
    allowed_ulps("sin", float32)           how far a generated function may be from the exact value

The code generators (`codegen/llvm/expr.py` and `arithmetic/`, `codegen/c/expr.py`) write the same
in their languages. `tests/semantics` compares all of them, element by element, with NumPy and mpmath.
docs/numerics.md explains it in words. NumPy's meaning holds wherever NumPy defines one. Otherwise:

* For integers, x // 0 and x % 0 are 0. The least number // -1 is itself (it wraps), and % -1 gives 0.
* A shift by less than 0, or by at least the type's bits, gives 0, or -1 for >> of a negative number. NumPy
  does the same; C and LLVM leave it undefined.
* Floats that become integers lose their fraction. They become int32 first for types up to 32 bits, and int64
  for uint32 and 64 bits; then they are cut to the narrower type, as any integer is. A value out of range, or
  NaN, becomes the least number of this first type (in uint64, values below 2**64 are in range). NumPy and
  torch give the same on x86-64.
* An integer to a negative power is its reciprocal without fraction: 0 unless the base is 1 or -1.
* The minimum or maximum of -0 and 0 may be either zero.
* 16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor.base import functions
from autotensor.base.dtype import DType, wrap_int
from autotensor.ir.ops import Cmp, Op

# -- integers, one by one ------------------------------------------------------------------------------------


def integer(op: Op, a: int, b: int, t: DType) -> int:
    """`a op b` in an integer type, wrapped around.

    >>> from autotensor.base.dtype import int32, uint8
    >>> integer(Op.SHL, 1, 32, int32), integer(Op.SHR, -1, -1, int32), integer(Op.SUB, 0, 1, uint8)
    (0, -1, 255)
    """
    return wrap_int(_INTEGER[op](a, b, t), t)


def shifted_left(a: int, b: int, t: DType) -> int:
    return a << b if 0 <= b < t.bits else 0


def shifted_right(a: int, b: int, t: DType) -> int:
    return a >> (b if 0 <= b < t.bits else t.bits)


_INTEGER: dict[Op, Callable[[int, int, DType], int]] = {
    Op.ADD: lambda a, b, t: a + b,
    Op.SUB: lambda a, b, t: a - b,
    Op.MUL: lambda a, b, t: a * b,
    Op.FLOORDIV: lambda a, b, t: a // b if b else 0,
    Op.MOD: lambda a, b, t: a % b if b else 0,
    Op.MIN: lambda a, b, t: min(a, b),
    Op.MAX: lambda a, b, t: max(a, b),
    Op.AND: lambda a, b, t: a & b,
    Op.OR: lambda a, b, t: a | b,
    Op.XOR: lambda a, b, t: a ^ b,
    Op.SHL: shifted_left,
    Op.SHR: shifted_right,
}


def integer_power(a: int, b: int, t: DType) -> int:
    """`a ** b` in an integer type, wrapped around.

    For negative b, it is the reciprocal without its fraction.
    """
    if b >= 0:
        return wrap_int(pow(a, b, 1 << t.bits), t)
    return (a if b & 1 else 1) if a in (1, -1) else 0


def whole(x: float, t: DType) -> int:
    """A float converted to an integer of the type.

    >>> from autotensor.base.dtype import int32, uint8
    >>> [whole(x, int32) for x in (3e9, -1.5, float("nan"))], whole(300.7, uint8), whole(-1.0, uint8)
    ([-2147483648, -1, -2147483648], 44, 255)
    """
    end = 1 << (stopover(t).bits - 1)
    if abs(x) < end or (t.bits == 64 and t.kind == "uint" and end <= x < 2 * end):
        return wrap_int(int(x), t)
    return wrap_int(-end, t)


# -- operators on arrays ------------------------------------------------------------------------------------


def _by_nonzero(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`fn(a, b)`, but 0 where b is 0."""

    def total(a: Any, b: Any) -> Any:
        zero = np.equal(b, 0)
        with np.errstate(all="ignore"):  # for the least number // -1
            return np.where(zero, np.zeros_like(a), fn(a, np.where(zero, np.ones_like(b), b)))

    return total


def _left_shift(a: Any, b: Any) -> Any:
    a, inside, near = _shift(a, b)
    return np.where(inside, np.left_shift(a, near), np.zeros_like(a))


def _right_shift(a: Any, b: Any) -> Any:
    a, inside, near = _shift(a, b)
    return np.where(inside, np.right_shift(a, near), np.where(a < 0, ~np.zeros_like(a), np.zeros_like(a)))


def _shift(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """The number as an array, whether the shift is less than the type's bits, and the shift (0 if not)."""
    a, b = np.asarray(a), np.asarray(b)
    inside = (b >= 0) & (b < a.dtype.itemsize * 8)
    return a, inside, np.where(inside, b, np.zeros_like(b))


# for integers; the operators for bools, and for floats where they exist, are the same
OPERATORS: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.FLOORDIV: _by_nonzero(np.floor_divide),
    Op.MOD: _by_nonzero(np.remainder),
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.SHL: _left_shift,
    Op.SHR: _right_shift,
}
COMPARISONS: dict[Cmp, Callable[[Any, Any], Any]] = {
    Cmp.EQ: np.equal,
    Cmp.NE: np.not_equal,
    Cmp.LT: np.less,
    Cmp.LE: np.less_equal,
    Cmp.GT: np.greater,
    Cmp.GE: np.greater_equal,
}


# -- casts ---------------------------------------------------------------------------------------------------


def stopover(t: DType) -> DType:
    """The integer type to which floats are first converted: int32, or int64 for uint32 and 64 bits."""
    return DType("int", 64 if t.bits == 64 or (t.kind == "uint" and t.bits == 32) else 32, t.lanes)


def converted(x: Any, t: DType) -> Any:
    """Numbers converted to another type: NumPy arrays and scalars.

    >>> from autotensor.base.dtype import int32, uint8
    >>> converted(np.array([3e9, -1.5, np.nan]), int32).tolist(), converted(np.array([300.7]), uint8).tolist()
    ([-2147483648, -1, -2147483648], [44])
    """
    x = np.asarray(x)
    if t.is_bool:
        return x != 0
    with np.errstate(all="ignore"):
        if x.dtype.kind in "iub" or t.is_float:
            return _rounded_once(x, t) if t.is_half else x.astype(t.numpy)
        wide, via = x.astype(np.float64), stopover(t)
        end = 2.0 ** (via.bits - 1)
        inside = np.abs(wide) < end
        result = np.where(inside, np.where(inside, wide, 0.0).astype(via.numpy), np.iinfo(via.numpy).min)
        if t.bits < 64 or t.kind == "int":
            return result.astype(t.numpy)
        above = (wide >= end) & (wide < 2 * end)
        return np.where(above, np.where(above, wide, 0.0).astype(t.numpy), result.astype(t.numpy))


def _rounded_once(x: Any, t: DType) -> Any:
    """Numbers as 16-bit floats, rounded once: to odd on the way, in float32 (Boldo, Melquiond 2008)."""
    if x.dtype.itemsize < 4 or x.dtype == np.float32:
        return x.astype(np.float32).astype(t.numpy)
    if x.dtype.kind in "iu":
        # bits below 2**(bits - 26) only matter in that some of them are set
        bits = x.astype(np.uint64)
        magnitude = np.where(x < 0, np.uint64(0) - bits, bits)
        shift = np.maximum(np.frexp(magnitude.astype(np.float64))[1] - 26, 0).astype(np.uint64)
        kept = (magnitude >> shift) << shift
        odd = kept | np.where(kept != magnitude, np.uint64(1) << shift, np.uint64(0))
        wide = odd.astype(np.float64)  # 27 bits: exact
        return _rounded_once(np.where(x < 0, -wide, wide), t)
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.int32) - (np.abs(back) > np.abs(x)).astype(np.int32)
    sticky = (bits | ((back != x) & ~np.isnan(x)).astype(np.int32)).view(np.float32)
    return sticky.astype(t.numpy)


# -- functions -----------------------------------------------------------------------------------------------


def _wide(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` for 16-bit floats, too: computed in float32 and rounded at the end."""

    def wrapped(*args: Any) -> Any:
        t = args[0].dtype
        if t.kind in "iub" or t.itemsize > 2:
            return fn(*args)
        result = fn(*(a.astype(np.float32) for a in args))
        return result if result.dtype == np.bool_ else result.astype(t)

    return wrapped


FUNCTIONS: dict[str, Callable[..., Any]] = {name: _wide(f.numpy) for name, f in functions.FUNCTIONS.items()}
ULPS = {"/": (0.5, 0.5, 2.5), **{name: f.ulps for name, f in functions.FUNCTIONS.items() if f.ulps}}
BACKENDS = ("llvm", "interpreter", "opencl")
HALF_ULPS = 0.501  # for 16-bit floats


def allowed_ulps(name: str, t: DType, backend: str = "llvm") -> float:
    """By how many units in the last place a function may be wrong.

    >>> from autotensor.base.dtype import float16, float32
    >>> allowed_ulps("sin", float32), allowed_ulps("sin", float16), allowed_ulps("floor", float32)
    (2.5, 0.501, 0.0)
    """
    if name not in ULPS:
        return 0.0
    return HALF_ULPS if t.is_half else ULPS[name][BACKENDS.index(backend)]
