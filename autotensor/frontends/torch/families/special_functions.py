"""Special functions of one number, computed in float64 and rounded to the type of the tensor.

    erfc erfcx erfinv   gamma's logarithm and its derivatives   normal quantile   Bessel functions

Series in Chebyshev's polynomials are summed as powers: their arguments lie in [-2, 2], and float64 has more
digits than needed. Coefficients are in `cephes.py`; other sources are named at the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import float64
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch import cephes
from autotensor.frontends.torch.families.elementwise import floats
from autotensor.frontends.torch.registry import converts
from autotensor.graph.build import call
from autotensor.graph.ir import GraphNode
from autotensor.operators.operator_helpers import broadcast, stage
from autotensor.te import Expr, Tensor

Value = Callable[[Expr], Any]


def _f(value: float) -> Expr:
    return te.const(value, float64)


def _mapped(x: GraphNode, value: Value, name: str) -> Any:
    """The function of every element."""

    def compute(t: Tensor) -> Tensor:
        return stage(t.shape, lambda *i: te.cast(t.dtype, value(te.cast(float64, t[i]))), name)

    return call(compute, floats(x), name=name)


def _special(*targets: str, name: str = "") -> Callable[[Value], Value]:
    """Registers a function of one number as the converter of these operators."""

    def file(value: Value) -> Value:
        @converts(*targets)
        def convert(x: GraphNode) -> Any:
            return _mapped(x, value, name or value.__name__)

        return value

    return file


def _horner(v: Expr, coefficients: Sequence[float]) -> Any:
    """The polynomial's value, by Horner's rule; the coefficient of the highest power comes first."""
    total: Any = _f(coefficients[0])
    for c in coefficients[1:]:
        total = total * v + _f(c)
    return total


def _chebyshev(v: Expr, coefficients: Sequence[float]) -> Any:
    """sum' c[n] T_n(v/2), highest order first, the last one halved; |v| <= 2."""
    series = list(reversed(coefficients))
    series[0] /= 2
    powers = np.polynomial.chebyshev.cheb2poly(series)
    return _horner(v * 0.5, [float(c) for c in powers[::-1]])


def _near(v: Expr, low: float, high: float) -> Expr:
    """v, clipped to the range of a formula, so that the formula cannot overflow where it is not used."""
    return te.minimum(te.maximum(v, _f(low)), _f(high))


NAN, INF = _f(math.nan), _f(math.inf)


# -- the error function and similar ones -------------------------------------------------------------------

# Source: W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969).
_MIDDLE_P: tuple[float, ...] = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594,
    6.61191906371416295e1,
)
_MIDDLE_P += (2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3)
_MIDDLE_P += (1.23033935479799725e3,)
_MIDDLE_Q: tuple[float, ...] = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
)
_MIDDLE_Q += (3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3)
_FAR_P: tuple[float, ...] = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
)
_FAR_P += (1.60837851487422766e-2, 6.58749161529837803e-4)
_FAR_Q: tuple[float, ...] = (
    1.0,
    2.56852019228982242,
    1.87295284992346725,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
)
_FAR_Q += (2.33520497626869185e-3,)


def _scaled_tail(size: Expr) -> Any:
    """exp(v²) * erfc(v) for v >= 0.46875."""
    v = te.maximum(size, _f(0.46875))
    middle = _horner(v, _MIDDLE_P) / _horner(v, _MIDDLE_Q)
    z = 1.0 / (v * v)
    far = (_f(1 / math.sqrt(math.pi)) - z * _horner(z, _FAR_P) / _horner(z, _FAR_Q)) / v
    return te.select(v <= 4.0, middle, far)


@_special("aten.erfc.default")
def erfc(v: Expr) -> Any:
    size = te.abs(v)
    tail = te.exp(-(v * v)) * _scaled_tail(size)
    return te.select(size < 0.46875, 1.0 - te.erf(v), te.select(v > 0.0, tail, 2.0 - tail))


@_special("aten.special_erfcx.default")
def erfcx(v: Expr) -> Any:
    """exp(v²) * erfc(v)."""
    size, square = te.abs(v), v * v
    tail = _scaled_tail(size)
    near = te.exp(square) * (1.0 - te.erf(v))
    return te.select(size < 0.46875, near, te.select(v > 0.0, tail, 2.0 * te.exp(square) - tail))


@_special("aten.erfinv.default")
def erfinv(v: Expr) -> Any:
    """A rational first value and two steps of Newton's method. Source: G. L. Pavlis 1996, as in torch."""
    size = te.abs(v)
    z = v * v
    central = v * _horner(z, (-0.140543331, 0.914624893, -1.645349621, 0.886226899))
    central = central / _horner(z, (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0))
    r = te.sqrt(-te.log((1.0 - _near(size, 0.0, 1 - 1e-16)) * 0.5))
    tail = _horner(r, (1.641345311, 3.429567803, -1.624906493, -1.970840454))
    tail = tail / _horner(r, (1.637067800, 3.543889200, 1.0))
    x: Any = te.select(size <= 0.7, central, te.select(v < 0.0, -tail, tail))
    for _ in range(2):
        x = x - (te.erf(x) - v) / (te.exp(-(x * x)) * (2 / math.sqrt(math.pi)))
    ends = te.select(v < 0.0, -INF, INF)
    return te.select(size > 1.0, NAN, te.select(size >= 1.0, ends, x))


@_special("aten.special_ndtri.default")
def ndtri(p: Expr) -> Any:
    """The normal distribution's quantile."""
    cut = 0.13533528323661269189  # exp(-2)
    upper = p > 1 - cut
    y = te.select(upper, 1.0 - p, p)
    d = y - 0.5
    square = d * d
    middle = d + d * (square * _horner(square, cephes.NDTRI_P0) / _horner(square, cephes.NDTRI_Q0))
    x = te.sqrt(-2.0 * te.log(_near(y, 1e-300, 1.0)))
    z = 1.0 / te.maximum(x, _f(1e-3))
    near = z * _horner(z, cephes.NDTRI_P1) / _horner(z, cephes.NDTRI_Q1)
    far = z * _horner(z, cephes.NDTRI_P2) / _horner(z, cephes.NDTRI_Q2)
    tail = x - te.log(te.maximum(x, _f(1e-3))) * z - te.select(x < 8.0, near, far)
    found = te.select(y > cut, middle * math.sqrt(2 * math.pi), te.select(upper, tail, -tail))
    found = _positive(p, found)
    return te.select(p >= 1.0, te.select(p > 1.0, NAN, INF), found)


# -- gamma -------------------------------------------------------------------------------------------------

# Source: C. Lanczos 1964 with g = 7 and nine terms (P. Godfrey's numbers): 15 digits.
_LANCZOS: tuple[float, ...] = (
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
)
_LANCZOS += (12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)


def _sine_of_pi(v: Expr) -> Any:
    """sin(pi * v) up to its sign."""
    return te.sin((v - te.round(v)) * math.pi)


@_special("aten.lgamma.default")
def lgamma(v: Expr) -> Any:
    left = v < 0.5
    z = te.select(left, 1.0 - v, v) - 1.0
    series: Any = _f(0.99999999999980993)
    for n, c in enumerate(_LANCZOS, 1):
        series = series + c / (z + float(n))
    t = z + 7.5
    right = (z + 0.5) * te.log(t) - t + te.log(series) + 0.5 * math.log(2 * math.pi)
    found = te.select(left, te.log(math.pi / te.abs(_sine_of_pi(v))) - right, right)
    pole = te.all(v <= 0.0, te.floor(v).equal(v))
    return te.select(te.any(pole, te.isinf(v)), INF, found)


_DIGAMMA: tuple[float, ...] = (
    8.33333333333333333333e-2,
    -2.10927960927960927961e-2,
    7.57575757575757575758e-3,
)
_DIGAMMA += (-4.16666666666666666667e-3, 3.96825396825396825397e-3, -8.33333333333333333333e-3)
_DIGAMMA += (8.33333333333333333333e-2,)


@_special("aten.digamma.default")
def digamma(v: Expr) -> Any:
    """Ten steps of the recurrence upwards, then the asymptotic series."""
    left = v < 0.0
    x = te.select(left, 1.0 - v, v)
    steps: Any = 1.0 / x
    for n in range(1, 10):
        steps = steps + 1.0 / (x + float(n))
    y = x + 10.0
    z = 1.0 / (y * y)
    right = te.log(y) - 0.5 / y - z * _horner(z, _DIGAMMA) - steps
    rest = v - te.round(v)
    found = te.select(left, right - math.pi * te.cos(rest * math.pi) / te.sin(rest * math.pi), right)
    pole = te.all(left, te.floor(v).equal(v))
    return te.select(v.equal(0.0), -1.0 / v, te.select(pole, NAN, found))


@converts("aten.polygamma.default", "aten.special_polygamma.default")
def polygamma(n: int, x: GraphNode) -> Any:
    if n == 0:
        return _mapped(x, digamma, "digamma")
    return _mapped(x, lambda v: _polygamma(n, v), f"polygamma{n}")


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _polygamma(n: int, v: Expr) -> Any:
    """(-1)^(n+1) n! zeta(n + 1, v), and left of 1/2 by reflection.

    The derivatives of cot(pi v) are polynomials of the cotangent.
    """
    s = n + 1
    left = v < 0.5
    q = te.select(left, 1.0 - v, v)
    total: Any = q_to(q, -s)
    for k in range(1, 10):
        total = total + q_to(q + float(k), -s)
    a = q + 10.0
    total = total + q_to(a, 1 - s) / float(s - 1) + 0.5 * q_to(a, -s)  # Euler and Maclaurin
    factor = float(s)
    for k, b in enumerate(_BERNOULLI, 1):
        total = total + q_to(a, -s - 2 * k + 1) * (b * factor / math.factorial(2 * k))
        factor *= (s + 2 * k - 1) * (s + 2 * k)
    sign = 1 if n % 2 else -1
    right = total * float(sign * math.factorial(n))
    rest = v - te.round(v)
    cotangent = te.cos(rest * math.pi) / te.sin(rest * math.pi)
    turned = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        turned = turned.deriv() * np.polynomial.Polynomial([-math.pi, 0, -math.pi])
    mirrored = float((-1) ** n) * right - math.pi * _horner(cotangent, [float(c) for c in turned.coef[::-1]])
    pole = te.all(v <= 0.0, te.floor(v).equal(v))
    found = te.select(pole, INF if sign > 0 else -INF, te.select(left, mirrored, right))
    return found if n == 1 else te.select(te.all(te.isinf(v), v > 0.0), NAN, found)  # as in torch


def q_to(q: Any, power: int) -> Any:
    """q to a negative whole power."""
    return te.pow(q, _f(float(power)))


# -- Bessel functions --------------------------------------------------------------------------------------


def _i_scaled(size: Expr, order: int) -> Any:
    near_a, far_b = ((cephes.I0_A, cephes.I0_B), (cephes.I1_A, cephes.I1_B))[order]
    near = _chebyshev(_near(size, 0.0, 8.0) * 0.5 - 2.0, near_a)
    v = te.maximum(size, _f(8.0))
    far = _chebyshev(32.0 / v - 2.0, far_b) / te.sqrt(v)
    return te.select(size <= 8.0, near * size if order else near, far)


def _odd(v: Expr, y: Any) -> Any:
    """An odd function of v, where y is its value for |v|."""
    return te.select(v < 0.0, -y, y)


def _positive(v: Expr, y: Any, at_zero: Any = -INF) -> Any:
    """y where v > 0, at_zero where v = 0, not a number where v < 0."""
    return te.select(v <= 0.0, te.select(v < 0.0, NAN, at_zero), y)


@_special("aten.i0.default", "aten.special_modified_bessel_i0.default")
def i0(v: Expr) -> Any:
    size = te.abs(v)
    return te.exp(size) * _i_scaled(size, 0)


@_special("aten.special_i0e.default")
def i0e(v: Expr) -> Any:
    return _i_scaled(te.abs(v), 0)


@_special("aten.special_i1.default", "aten.special_modified_bessel_i1.default")
def i1(v: Expr) -> Any:
    size = te.abs(v)
    return _odd(v, te.exp(size) * _i_scaled(size, 1))


@_special("aten.special_i1e.default")
def i1e(v: Expr) -> Any:
    return _odd(v, _i_scaled(te.abs(v), 1))


def _k(order: int, scaled: bool, v: Expr) -> Any:
    inside, lowest = _near(v, 1e-300, 2.0), te.maximum(v, _f(2.0))
    series = _chebyshev(inside * inside - 2.0, (cephes.K0_A, cephes.K1_A)[order])
    log = te.log(0.5 * inside)
    near = log * i1(inside) + series / inside if order else series - log * i0(inside)
    far = _chebyshev(8.0 / lowest - 2.0, (cephes.K0_B, cephes.K1_B)[order]) / te.sqrt(lowest)
    y = te.select(v <= 2.0, near * te.exp(v) if scaled else near, far if scaled else far * te.exp(-v))
    return _positive(v, y, INF)


for _order in (0, 1):
    _special(f"aten.special_modified_bessel_k{_order}.default", name=f"k{_order}")(partial(_k, _order, False))
    _scaled = f"aten.special_scaled_modified_bessel_k{_order}.default"
    _special(_scaled, name=f"k{_order}e")(partial(_k, _order, True))


def _wave(size: Expr, order: int, second: bool) -> Any:
    """J or Y beyond 5, from amplitude and phase."""
    v = te.maximum(size, _f(5.0))
    z = 25.0 / (v * v)
    tables = (
        (cephes.J0_PP, cephes.J0_PQ, cephes.J0_QP, cephes.J0_QQ),
        (cephes.J1_PP, cephes.J1_PQ, cephes.J1_QP, cephes.J1_QQ),
    )[order]
    pp, pq, qp, qq = (_horner(z, t) for t in tables)
    angle = v - (math.pi / 4 if order == 0 else 3 * math.pi / 4)
    even, odd = pp / pq, 5.0 / v * (qp / qq)
    sine, cosine = te.sin(angle), te.cos(angle)
    y = even * sine + odd * cosine if second else even * cosine - odd * sine
    return y * math.sqrt(2 / math.pi) / te.sqrt(v)


@_special("aten.special_bessel_j0.default")
def j0(v: Expr) -> Any:
    size = te.abs(v)
    z = _near(size, 0.0, 5.0) * _near(size, 0.0, 5.0)
    near = (z - 5.78318596294678452118) * (z - 30.4712623436620863991)
    near = near * _horner(z, cephes.J0_RP) / _horner(z, cephes.J0_RQ)
    return te.select(size <= 5.0, near, _wave(size, 0, False))


@_special("aten.special_bessel_j1.default")
def j1(v: Expr) -> Any:
    size = te.abs(v)
    inside = _near(size, 0.0, 5.0)
    z = inside * inside
    near = _horner(z, cephes.J1_RP) / _horner(z, cephes.J1_RQ) * inside
    near = near * (z - 14.6819706421238932572) * (z - 49.2184563216946036703)
    return _odd(v, te.select(size <= 5.0, near, _wave(size, 1, False)))


@_special("aten.special_bessel_y0.default")
def y0(v: Expr) -> Any:
    inside = _near(v, 1e-300, 5.0)
    z = inside * inside
    near = _horner(z, cephes.Y0_YP) / _horner(z, cephes.Y0_YQ) + 2 / math.pi * te.log(inside) * j0(inside)
    return _positive(v, te.select(v <= 5.0, near, _wave(v, 0, True)))


@_special("aten.special_bessel_y1.default")
def y1(v: Expr) -> Any:
    inside = _near(v, 1e-300, 5.0)
    z = inside * inside
    near = inside * (_horner(z, cephes.Y1_YP) / _horner(z, cephes.Y1_YQ))
    near = near + 2 / math.pi * (j1(inside) * te.log(inside) - 1.0 / inside)
    return _positive(v, te.select(v <= 5.0, near, _wave(v, 1, True)))


@_special("aten.special_spherical_bessel_j0.default")
def spherical_j0(v: Expr) -> Any:
    z = v * v
    near = 1.0 - z / 6.0 * (1.0 - z / 20.0 * (1.0 - z / 42.0 * (1.0 - z / 72.0 * (1.0 - z / 110.0))))
    return te.select(te.isinf(v), _f(0.0), te.select(te.abs(v) < 0.5, near, te.sin(v) / v))


# -- Chebyshev's polynomials -------------------------------------------------------------------------------


def _polynomial(aten: str, value: Callable[[Expr, Expr], Any], shifted: bool) -> None:
    @converts(f"aten.{aten}.default", f"aten.{aten}.n_scalar")
    def convert(x: Any, n: Any) -> Any:
        if not isinstance(x, GraphNode):
            raise Unsupported("a number for x is not supported here.", fix="Give it as a tensor.")
        return _of_order(floats(x), n, value, shifted, aten)


def _of_order(x: GraphNode, n: Any, value: Callable[[Expr, Expr], Any], shifted: bool, name: str) -> Any:
    def at(v: Any, order: Any) -> Any:
        place = te.cast(float64, v)
        whole = te.trunc(te.cast(float64, order))
        y = value(place * 2.0 - 1.0 if shifted else place, whole)
        return te.cast(x.dtype, te.select(whole < 0.0, _f(0.0), y))

    if not isinstance(n, GraphNode):
        return call(lambda t: stage(t.shape, lambda *i: at(t[i], _f(float(n))), name), x, name=name)

    return call(partial(broadcast, name, at), x, n, name=name)


def _sign_of(n: Expr) -> Any:
    """(-1)^n."""
    return te.select(te.abs(n * 0.5 - te.floor(n * 0.5)) > 0.25, _f(-1.0), _f(1.0))


def _angles(v: Expr, n: Expr) -> tuple[Any, Any, Any, Any]:
    """(inside, angle of |v| <= 1, rapidity of |v| > 1, sign of v's n-th power)."""
    size = te.abs(v)
    angle = te.acos(_near(v, -1.0, 1.0))
    rapidity = te.acosh(te.maximum(size, _f(1.0)))
    return size <= 1.0, angle, rapidity, te.select(v < 0.0, _sign_of(n), _f(1.0))


def first_kind(v: Expr, n: Expr) -> Any:
    inside, angle, rapidity, sign = _angles(v, n)
    return te.select(inside, te.cos(n * angle), sign * te.cosh(n * rapidity))


def second_kind(v: Expr, n: Expr) -> Any:
    """sin((n + 1) a) / sin(a)."""
    inside, angle, rapidity, sign = _angles(v, n)
    y = te.select(
        inside,
        te.sin((n + 1.0) * angle) / te.sin(angle),
        sign * te.sinh((n + 1.0) * rapidity) / te.sinh(rapidity),
    )
    at_ends = te.select(v < 0.0, _sign_of(n), _f(1.0)) * (n + 1.0)
    return te.select(te.abs(v).equal(1.0), at_ends, y)


for _prefix, _is_shifted in (("special_", False), ("special_shifted_", True)):
    _polynomial(f"{_prefix}chebyshev_polynomial_t", first_kind, _is_shifted)
    _polynomial(f"{_prefix}chebyshev_polynomial_u", second_kind, _is_shifted)
