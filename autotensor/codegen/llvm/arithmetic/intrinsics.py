"""Mathematical functions in LLVM IR: a native intrinsic, a polynomial, or the C library's function per lane.

`emit(writer, name, type, args)` writes the code for scalars or vectors and returns the operand with the
result.
The formulas are written with the small algebra of math.py, so that they read as in the papers. Errors in
units in the last place, measured in tests/codegen/llvm/test_intrinsics.py against extended precision on dense
samples (float64 erf against Python's math.erf):

    float32   exp exp2 expm1 log log2 log10 log1p sigmoid tanh erf sin cos tan pow    <= 2.5, polynomials
    float64   exp exp2 expm1 log log2 log10 log1p sigmoid tanh                        <= 2.5, polynomials
    both      sqrt floor ceil trunc round abs isnan isinf      exact; round is half to even
    both      rounded                                          its argument
    both      fmod floormod floordiv                           exact remainders; NumPy's quotient bit by bit
    both      asin acos atan atan2 sinh cosh asinh acosh atanh                        C library
    float64   erf sin cos tan pow fmod                                                C library
    float32   sin cos tan beyond 2**30, fmod of quotients beyond 2**29                C library
    integers  pow                                              by squaring, wraps

The error of erf in float32 is 3.1 on machines that do not fuse x·y + z. sigmoid(x) and exp(x) lose digits
where they are below the least normal number. For 16-bit floats the caller computes in float32.

Source: coefficients of Cephes (Moshier) and fdlibm (Sun 1993). The coefficients of erf were fitted for
autotensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from autotensor.base.dtype import DType, float64
from autotensor.base.errors import CodegenError
from autotensor.codegen.llvm.arithmetic import exponentials, helpers
from autotensor.codegen.llvm.arithmetic.math import M, X
from autotensor.codegen.llvm.function_writer import FunctionWriter, suffix, ty

Formula = Callable[..., Any]


def emit(w: FunctionWriter, name: str, dtype: DType, args: list[str]) -> str:
    """The operand that holds `name(args)`. dtype: the type of the arguments."""
    if name == "abs" and not dtype.is_float:
        return _abs_int(w, dtype, args[0])
    if name == "pow" and dtype.is_int:
        return helpers.power(w, dtype, *args)
    if dtype.kind != "float" or dtype.bits not in (32, 64):
        raise CodegenError(f"function {name!r} is not defined for {dtype}.")
    # this call stands between product and sum: expr.py fuses x*y + z only if the product is an operand of the
    # sum
    if name == "rounded":
        return args[0]
    m = M(w, dtype)
    xs = [X(m, a) for a in args]
    if name in _NATIVE:
        return m.native(_NATIVE[name], *xs).v
    if name == "isnan":
        return m.test("uno", xs[0], 0.0)
    if name == "isinf":
        return m.test("oeq", m.native("fabs", xs[0]), float("inf"))
    formula = (_DOUBLE if m.double else _SINGLE).get(name) or _BOTH.get(name)
    return formula(m, *xs).v if formula is not None else _library(w, name, dtype, args)


_NATIVE = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "round": "roundeven",
    "trunc": "trunc",
    "abs": "fabs",
}


def _abs_int(w: FunctionWriter, t: DType, x: str) -> str:
    if t.kind != "int":
        return x
    name = f"llvm.abs.{suffix(t)}"
    w.declared.setdefault(name, f"declare {ty(t)} @{name}({ty(t)}, i1)")
    return w.op(f"call {ty(t)} @{name}({ty(t)} {x}, i1 false)")


def _library(w: FunctionWriter, name: str, t: DType, args: list[str]) -> str:
    """The C library's function, lane by lane."""
    symbol = name + ("f" if t.bits == 32 else "")
    one = t.element
    if t.lanes == 1:
        return w.call(symbol, one, *((one, a) for a in args))
    result = "poison"
    for k in range(t.lanes):
        parts = [(one, w.op(f"extractelement {ty(t)} {a}, i64 {k}")) for a in args]
        result = w.op(f"insertelement {ty(t)} {result}, {ty(one)} {w.call(symbol, one, *parts)}, i64 {k}")
    return result


# -- erf, circular functions, powers ---------------------------------------------------------------------


# erf(x) = x/4 + x·p(x²)/q(x²) up to the end where erf is 1; minimax, relative error 1.4e-8. x/4 is exact, and
# near the end it is close to erf. So p/q is small there, and its rounding errors hardly count. p and q have a
# common factor with which their coefficients round well.
_ERF_END = 3.85
_ERF_P = (
    -1.04039518e-5, -9.67665528e-7, -3.05505455e-5, 3.32356989e-2, 8.64441171e-2, 1.20646799,
)  # fmt: skip
_ERF_Q = (
    5.31987062e-5, 1.57339638e-3, 2.03075688e-2, 1.55385822e-1, 6.86558962e-1, 1.3735162,
)  # fmt: skip


def _erf_single(m: M, x: X) -> X:
    x = m.clamp(x, -_ERF_END, _ERF_END)
    z = x * x
    return m.fma(m.poly(z, *_ERF_P) / m.poly(z, *_ERF_Q), x, x * 0.25)


def _widened(m: M, *xs: X) -> tuple[M, list[X]]:
    wide = M(m.w, float64.with_lanes(m.dtype.lanes))
    return wide, [X(wide, m.w.op(f"fpext {m.t} {x.v} to {wide.t}")) for x in xs]


def _narrowed(m: M, x: X) -> X:
    return X(m, m.w.op(f"fptrunc {x.m.t} {x.v} to {m.t}"))


_SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(6, 0, -1))
_COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(6, 0, -1))


# Up to this argument the reduction in float64 is accurate enough. The C library reduces larger arguments,
# with as many digits of 2/π as they need (Payne and Hanek, 1983)
_CIRCULAR_END = 2.0**30


def _far_circular(name: str, near: Formula) -> Formula:
    def formula(m: M, x: X) -> X:
        cond = m.test("ogt", m.native("fabs", x), _CIRCULAR_END)
        return X(m, helpers.far(m.w, name, m.dtype, cond, near(m, x).v, [x.v]))

    return formula


def _circular(m: M, x: X) -> tuple[M, X, X, X]:
    """The operations in float64, the quadrant 0…3 (as float), sin r and cos r, with x = quadrant·π/2 + r."""
    d, (y,) = _widened(m, x)
    n = d.native("roundeven", y * 0.6366197723675814)
    r = d.fma(n, -6.123233995736766e-17, d.fma(n, -1.5707963267948966, y))
    quadrant = n - 4.0 * d.native("floor", n * 0.25)
    z = r * r
    # Taylor to r**13: below 2e-12 on |r| <= π/4, far inside float32
    sine, cosine = d.poly(z, *_SINE), d.poly(z, *_COSINE)
    return d, quadrant, d.fma(sine * z, r, r), d.fma(cosine, z, 1.0)


def _turned(d: M, quadrant: X, even: X, odd: X, first_negative: float) -> X:
    """`even` in quadrants 0 and 2, `odd` in 1 and 3. Its sign is changed in the quadrant `first_negative` and
    in the one after it."""
    half = quadrant * 0.5
    is_odd = d.test("une", d.native("floor", half), half)
    value = d.pick(is_odd, odd, even)
    q = quadrant if first_negative == 2.0 else quadrant + 1.0
    flip = d.test("oge", q, 2.0)
    if first_negative != 2.0:  # quadrants 1, 2 of 0…3 become 2, 3; 3 becomes 4 and is positive
        flip = d.w.op(f"and {d.cond} {flip}, {d.test('olt', q, 4.0)}")
    return d.pick(flip, -value, value)


def _sin_single(m: M, x: X) -> X:
    d, quadrant, s, c = _circular(m, x)
    result = _narrowed(m, _turned(d, quadrant, s, c, 2.0))
    return m.pick(m.test("oeq", x, 0.0), x, result)


def _cos_single(m: M, x: X) -> X:
    d, quadrant, s, c = _circular(m, x)
    return _narrowed(m, _turned(d, quadrant, c, s, 1.0))


def _tan_single(m: M, x: X) -> X:
    d, quadrant, s, c = _circular(m, x)
    half = quadrant * 0.5
    is_odd = d.test("une", d.native("floor", half), half)
    result = _narrowed(m, d.pick(is_odd, -c, s) / d.pick(is_odd, s, c))
    return m.pick(m.test("oeq", x, 0.0), x, result)


def _pow_single(m: M, x: X, y: X) -> X:
    """exp2(y·log2|x|) in float64, then the signs and special cases of C99."""
    d, (a, b) = _widened(m, m.native("fabs", x), y)
    magnitude = exponentials.exp2(d, b * exponentials.log2(d, a))
    magnitude = d.pick(d.test("oeq", b, 0.0), 1.0, magnitude)
    result = _narrowed(m, d.pick(d.test("oeq", a, 1.0), 1.0, magnitude))
    half = y * 0.5
    is_whole = m.test("oeq", m.native("floor", y), y)
    is_odd = m.w.op(f"and {m.cond} {is_whole}, {m.test('une', m.native('floor', half), half)}")
    signed = m.pick(is_odd, m.native("copysign", result, x), result)
    ok = m.w.op(f"or {m.cond} {is_whole}, {m.test('oeq', m.native('fabs', x), float('inf'))}")
    signed = m.pick(m.both(m.test("olt", x, 0.0), m.neither(ok)), float("nan"), signed)
    # NaN**0 and 1**NaN are 1; otherwise a NaN stays
    nan = m.w.op(f"fcmp uno {m.t} {x.v}, {y.v}")
    one = m.w.op(f"or {m.cond} {m.test('oeq', y, 0.0)}, {m.test('oeq', x, 1.0)}")
    return m.pick(one, 1.0, m.pick(nan, x + y, signed))


# -- remainders ------------------------------------------------------------------------------------------


def _fmod(m: M, x: X, y: X) -> X:
    """The remainder of x / y with the sign of x, exact.

    float32: x - trunc(x/y)·y in float64, whose product is exact while the quotient has less than 29 bits. If
    x/y was rounded up to a whole number, the quotient is one too large.
    """
    if m.double:
        return X(m, _library(m.w, "fmod", m.dtype, [x.v, y.v]))
    d, (a, b) = _widened(m, m.native("fabs", x), m.native("fabs", y))
    quotient = d.native("trunc", a / b)
    rest = d.fma(-quotient, b, a)
    rest = d.pick(d.test("olt", rest, 0.0), rest + b, rest)
    rest = d.pick(d.test("oeq", b, float("inf")), a, rest)
    near = m.native("copysign", _narrowed(m, rest), x)
    cond = d.test("uge", a, b * 2.0**29)  # also true for an infinite x, a y of 0, and NaN
    return X(m, helpers.far(m.w, "fmod", m.dtype, cond, near.v, [x.v, y.v]))


def _apart(m: M, rest: X, y: X) -> str:
    """Whether a remainder is not 0 and its sign differs from the divisor's."""
    signs = m.w.op(f"xor {m.cond} {m.test('olt', rest, 0.0)}, {m.test('olt', y, 0.0)}")
    return m.both(m.test("une", rest, 0.0), signs)


def _floormod(m: M, x: X, y: X) -> X:
    """The remainder with the sign of the divisor, as NumPy's `remainder`."""
    rest = _fmod(m, x, y)
    moved = m.pick(_apart(m, rest, y), rest + y, rest)
    return m.pick(m.test("oeq", rest, 0.0), m.native("copysign", m.const(0.0), y), moved)


def _floordiv(m: M, x: X, y: X) -> X:
    """NumPy's `floor_divide`, step by step: x minus its remainder, divided by y and rounded to a whole
    number.

    Source: npy_divmod in numpy/_core/src/npymath/npy_math_internal.h.src.
    """
    rest = _fmod(m, x, y)
    quotient = x / y
    div = (x - rest) / y
    div = m.pick(_apart(m, rest, y), div - 1.0, div)
    low = m.native("floor", div)
    low = m.pick(m.test("ogt", div - low, 0.5), low + 1.0, low)
    low = m.pick(m.test("oeq", div, 0.0), m.native("copysign", m.const(0.0), quotient), low)
    return m.pick(m.test("oeq", y, 0.0), quotient, low)


_BOTH: dict[str, Formula] = {
    "exp": exponentials.exp,
    "exp2": exponentials.exp2,
    "expm1": exponentials.expm1,
    "log": exponentials.log,
    "log2": exponentials.log2,
    "log10": exponentials.log10,
    "log1p": exponentials.log1p,
    "sigmoid": exponentials.sigmoid,
    "rsqrt": lambda m, x: 1.0 / m.native("sqrt", x),
    "fmod": _fmod,
    "floordiv": _floordiv,
    "floormod": _floormod,
}
_SINGLE: dict[str, Formula] = {
    "tanh": exponentials.tanh_single,
    "erf": _erf_single,
    "sin": _far_circular("sin", _sin_single),
    "cos": _far_circular("cos", _cos_single),
    "tan": _far_circular("tan", _tan_single),
    "pow": _pow_single,
}
_DOUBLE: dict[str, Formula] = {"tanh": exponentials.tanh_double}
__all__ = ["emit"]
