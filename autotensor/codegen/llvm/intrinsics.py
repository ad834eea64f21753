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
from autotensor.codegen.llvm import helpers
from autotensor.codegen.llvm.function_writer import FunctionWriter, suffix, ty
from autotensor.codegen.llvm.math import M, X

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


# -- exponentials ----------------------------------------------------------------------------------------
# e**x = 2**n · e**r with n = round(x·log2 e), r = x - n·ln 2 in two parts; e**r - 1 = r + r²·q(r) on |r| <=
# ln 2 / 2.

_LOG2E = 1.4426950408889634
_LN2_SINGLE = (0.693359375, -2.12194440e-4)
_LN2_DOUBLE = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_EXP_SINGLE = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_EXP_DOUBLE = tuple(1 / math.factorial(k) for k in range(13, 1, -1))
# e**r itself, minimax of degree 6, relative error 3e-9: one operation less than 1 + r + r²·q(r), where the
# digits of e**r - 1 near 0 do not matter
_EXP_WHOLE = (
    1.382073387503624e-3,
    8.368677459657192e-3,
    4.166826605796814e-2,
    1.666652113199234e-1,
    4.999999403953552e-1,
    1.0,
    1.0,
)
# the same on |r| <= ln 2, relative error 1.5e-8: coefficients of r**7 to r**2; 1 + r is added to them
_EXP_TWICE = (
    1.9611598776990077e-4,
    1.4104470410136252e-3,
    8.33610318028509e-3,
    4.166126840372736e-2,
    1.6666614148516404e-1,
    5.000003463768131e-1,
)
_EXP_ENDS = (-104.0, 89.0)  # for float32, exp is 0 below the first and infinity above the second
# 1.5·2**23: adding it to a small float32 rounds to a whole number, which the last bits of the sum hold
_ROUNDER = 12582912.0
_ROUNDER_BITS = 0x4B400000


def _reduced(m: M, x: X) -> tuple[str, X]:
    """n and e**r - 1, with x = n·ln 2 + r."""
    n, k = m.clean_int(m.native("roundeven", x * _LOG2E))
    high, low = _LN2_DOUBLE if m.double else _LN2_SINGLE
    r = m.fma(n, -low, m.fma(n, -high, x))
    return k, _expm1_small(m, r)


def _expm1_small(m: M, r: X) -> X:
    q = m.poly(r, *(_EXP_DOUBLE if m.double else _EXP_SINGLE))
    return m.fma(r * r, q, r)


def _exp(m: M, x: X) -> X:
    return _exp_whole(m, x) if m.double or m.w.has_ldexp else _exp_twice(m, x)


def _exp_whole(m: M, x: X) -> X:
    """e**x to 0.9 units in the last place."""
    if m.double:
        n, p = _reduced(m, m.clamp(x, -746.0, 710.0))
        return m.scale(p + 1.0, n)
    x = m.clamp(x, *_EXP_ENDS)
    rounded = m.fma(x, _LOG2E, _ROUNDER)
    n = m.int_op("sub", m.bits(rounded), _ROUNDER_BITS)
    whole = rounded - _ROUNDER
    high, low = _LN2_SINGLE
    return m.scale(m.poly(m.fma(whole, -low, m.fma(whole, -high, x)), *_EXP_WHOLE), n)


def _exp_twice(m: M, x: X) -> X:
    """e**x = 2**k · 2**k · e**r with k = round(x·log2 e / 2), to 1.9 units in the last place.

    Without an instruction for 2**n, multiplying by 2**n takes eight operations, because n has twice the range
    of exponents. Multiplying twice by 2**k takes three. The chain of dependent operations is short, too: four
    for the polynomial, with its terms in pairs, instead of seven by Horner's rule (a bilateral filter takes
    0.75 x the time; Zen 3, 2026-11).
    """
    x = m.clamp(x, *_EXP_ENDS)
    biased = _ROUNDER + m.bias  # so that the last bits of `rounded` are 2**k's
    rounded = m.fma(x, _LOG2E / 2, biased)
    power = m.from_bits(m.int_op("shl", m.bits(rounded), m.mantissa))
    whole = rounded - biased
    high, low = _LN2_SINGLE
    r = m.fma(whole, -2 * low, m.fma(whole, -2 * high, x))
    c7, c6, c5, c4, c3, c2 = _EXP_TWICE
    square = r * r
    upper = m.fma(m.fma(r, c7, c6), square, m.fma(r, c5, c4))
    return m.fma(m.fma(upper, square, m.fma(r, c3, c2)), square, r + 1.0) * power * power


def _exp2(m: M, x: X) -> X:
    low, high = (-1080.0, 1025.0) if m.double else (-155.0, 129.0)
    x = m.clamp(x, low, high)
    n, k = m.clean_int(m.native("roundeven", x))
    f = x - n
    # f·ln 2, corrected for the rounding of ln 2
    high_part, low_part = (
        (0.6931471805599453, 2.3190468138462996e-17)
        if m.double
        else (0.693147182464599609375, -1.904654323148236e-09)
    )
    r = f * high_part
    return m.scale(m.fma(f, low_part, _expm1_small(m, r)) + 1.0, k)


def _expm1(m: M, x: X) -> X:
    low, high = (-40.0, 710.0) if m.double else (-20.0, 89.0)
    n, p = _reduced(m, m.clamp(x, low, high))
    half = m.power_of_two(m.int_op("sub", n, 1))  # half of 2**n: 2**128 is not a float32
    result = 2.0 * m.fma(half, p, half - 0.5)
    return m.pick(m.test("oeq", x, 0.0), x, result)  # keeps -0


def _sigmoid(m: M, x: X) -> X:
    return 1.0 / (1.0 + _exp_whole(m, -x))  # the error of exp counts twice here


def _tanh_single(m: M, x: X) -> X:
    a = m.native("fabs", x)
    z = x * x
    p = m.poly(z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
    small = m.fma(p * z, x, x)
    large = 1.0 - 2.0 / (_exp(m, a + a) + 1.0)
    return m.native("copysign", m.pick(m.test("olt", a, 0.625), small, large), x)  # keeps -0


def _tanh_double(m: M, x: X) -> X:
    a = m.native("fabs", x)
    capped = m.clamp(a, 0.0, 22.0)  # beyond 22 the result is 1 to the last bit, and inf/inf cannot occur
    t = _expm1(m, capped + capped)
    return m.native("copysign", t / (t + 2.0), x)


# -- logarithms ------------------------------------------------------------------------------------------
# x = 2**e · (1 + f) with 1 + f in [sqrt ½, sqrt 2]


def _mantissa(m: M, x: X) -> tuple[X, X]:
    """(e, f); subnormal x is scaled up first."""
    tiny = 2.2250738585072014e-308 if m.double else 1.1754943508222875e-38
    small = m.test("olt", x, tiny)
    shift = float(m.mantissa + 2)
    scaled = m.pick(small, x * 2.0**shift, x)
    # subtracting the bits of sqrt ½ makes the exponent field round to this interval
    root = 0x3FE6A09E667F3BCD if m.double else 0x3F3504F3
    off = m.int_op("sub", m.bits(scaled), root)
    e = m.to_float(m.int_op("ashr", off, m.mantissa))
    rest = m.int_op("and", off, (1 << m.mantissa) - 1)
    f = m.from_bits(m.int_op("add", rest, root)) - 1.0
    return e - m.pick(small, shift, 0.0), f


def _log_ends(m: M, x: X, result: X) -> X:
    """log of 0, of negative numbers, of infinity and of NaN."""
    result = m.pick(m.test("oeq", x, float("inf")), x, result)
    result = m.pick(m.test("oeq", x, 0.0), float("-inf"), result)
    return m.pick(m.test("ult", x, 0.0), float("nan"), result)


_LOG_SINGLE = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_LOG_DOUBLE = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
)  # fmt: skip


def _log_parts(m: M, f: X) -> X:
    """log(1 + f) - f."""
    half_square = f * f * 0.5
    if not m.double:
        return m.fma(m.poly(f, *_LOG_SINGLE) * f, f * f, -half_square)
    s = f / (f + 2.0)
    z = s * s
    return m.fma(s, m.fma(m.poly(z, *_LOG_DOUBLE), z, half_square), -half_square)


def _log_finite(m: M, x: X) -> X:
    e, f = _mantissa(m, x)
    high, low = _LN2_DOUBLE if m.double else _LN2_SINGLE
    return m.fma(e, high, f + m.fma(e, low, _log_parts(m, f)))


def _log(m: M, x: X) -> X:
    return _log_ends(m, x, _log_finite(m, x))


def _log_base(m: M, x: X, unit: tuple[float, float], per_e: tuple[float, float]) -> X:
    """(log(1 + f))·unit + e·per_e, both factors in two parts."""
    e, f = _mantissa(m, x)
    y = _log_parts(m, f)
    # The high part of the constant times f is so large that y would be lost in rounding: sum the small terms
    # first.
    small = m.fma(y, unit[0], m.fma(f, unit[1], y * unit[1]))
    if per_e[1]:
        small = m.fma(e, per_e[1], small)
    exact = f * unit[0]
    error = m.exact_fma(f, unit[0], -exact)
    whole = e * per_e[0]
    total = whole + exact
    rest = (whole - total) + exact  # |whole| >= |exact| or whole is 0
    return _log_ends(m, x, total + (rest + (error + small)))


def _log2(m: M, x: X) -> X:
    unit = (
        (1.4426950408889634, 2.0355273740931033e-17)
        if m.double
        else (1.44269502162933349609375, 1.925963033500012e-08)
    )
    return _log_base(m, x, unit, (1.0, 0.0))


def _log10(m: M, x: X) -> X:
    if m.double:
        return _log_base(
            m,
            x,
            (0.4342944819032518, 1.098319650216765e-17),
            (3.01029995663611771306e-01, 3.69423907715893078616e-13),
        )
    return _log_base(m, x, (0.4342944920063018798828125, -1.010305007e-08), (0.30078125, 2.48745663981195e-4))


def _log1p(m: M, x: X) -> X:
    """log(u) + (x - (u - 1))/u with u = 1 + x rounded."""
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u
    result = _log_finite(m, u) + lost
    result = m.pick(m.test("oeq", u, 1.0), x, result)
    result = m.pick(m.test("oeq", x, float("inf")), x, result)
    result = m.pick(m.test("oeq", x, -1.0), float("-inf"), result)
    return m.pick(m.test("ult", x, -1.0), float("nan"), result)


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
    """`even` in quadrants 0 and 2, `odd` in 1 and 3; negative in `first_negative` and the next."""
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
    magnitude = _exp2(d, b * _log2(d, a))
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

    float32: x - trunc(x/y)·y in float64, whose product is exact while the quotient has less than 29 bits. The
    quotient is at most one too large, if x/y was rounded up to a whole number.
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
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log2": _log2,
    "log10": _log10,
    "log1p": _log1p,
    "sigmoid": _sigmoid,
    "rsqrt": lambda m, x: 1.0 / m.native("sqrt", x),
    "fmod": _fmod,
    "floordiv": _floordiv,
    "floormod": _floormod,
}
_SINGLE: dict[str, Formula] = {
    "tanh": _tanh_single,
    "erf": _erf_single,
    "sin": _far_circular("sin", _sin_single),
    "cos": _far_circular("cos", _cos_single),
    "tan": _far_circular("tan", _tan_single),
    "pow": _pow_single,
}
_DOUBLE: dict[str, Formula] = {"tanh": _tanh_double}
__all__ = ["emit"]
