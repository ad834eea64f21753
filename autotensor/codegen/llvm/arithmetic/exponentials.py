"""Exponentials and logarithms as formulas of `math.py`; `intrinsics.py` says how exact they are."""

from __future__ import annotations

import math

from autotensor.codegen.llvm.arithmetic.math import M, X

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


def exp(m: M, x: X) -> X:
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


def exp2(m: M, x: X) -> X:
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


def expm1(m: M, x: X) -> X:
    low, high = (-40.0, 710.0) if m.double else (-20.0, 89.0)
    n, p = _reduced(m, m.clamp(x, low, high))
    half = m.power_of_two(m.int_op("sub", n, 1))  # half of 2**n: 2**128 is not a float32
    result = 2.0 * m.fma(half, p, half - 0.5)
    return m.pick(m.test("oeq", x, 0.0), x, result)  # keeps -0


def sigmoid(m: M, x: X) -> X:
    return 1.0 / (1.0 + _exp_whole(m, -x))  # the error of exp counts twice here


def tanh_single(m: M, x: X) -> X:
    a = m.native("fabs", x)
    z = x * x
    p = m.poly(z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
    small = m.fma(p * z, x, x)
    large = 1.0 - 2.0 / (exp(m, a + a) + 1.0)
    return m.native("copysign", m.pick(m.test("olt", a, 0.625), small, large), x)  # keeps -0


def tanh_double(m: M, x: X) -> X:
    a = m.native("fabs", x)
    capped = m.clamp(a, 0.0, 22.0)  # beyond 22 the result is 1 to the last bit, and inf/inf cannot occur
    t = expm1(m, capped + capped)
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


def log(m: M, x: X) -> X:
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


def log2(m: M, x: X) -> X:
    unit = (
        (1.4426950408889634, 2.0355273740931033e-17)
        if m.double
        else (1.44269502162933349609375, 1.925963033500012e-08)
    )
    return _log_base(m, x, unit, (1.0, 0.0))


def log10(m: M, x: X) -> X:
    if m.double:
        return _log_base(
            m,
            x,
            (0.4342944819032518, 1.098319650216765e-17),
            (3.01029995663611771306e-01, 3.69423907715893078616e-13),
        )
    return _log_base(m, x, (0.4342944920063018798828125, -1.010305007e-08), (0.30078125, 2.48745663981195e-4))


def log1p(m: M, x: X) -> X:
    """log(u) + (x - (u - 1))/u with u = 1 + x rounded."""
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u
    result = _log_finite(m, u) + lost
    result = m.pick(m.test("oeq", u, 1.0), x, result)
    result = m.pick(m.test("oeq", x, float("inf")), x, result)
    result = m.pick(m.test("oeq", x, -1.0), float("-inf"), result)
    return m.pick(m.test("ult", x, -1.0), float("nan"), result)
