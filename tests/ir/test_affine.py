"""Index expressions as sums, and back."""

import pytest

from autotensor.base.dtype import int32, int64
from autotensor.ir.affine import Affine, affine, split_by, stride, to_expr
from autotensor.ir.expr import Cast, Load, Ramp, Var, const, minimum
from autotensor.ir.func import Buffer

i, j, k, f = Var("i"), Var("j"), Var("k"), Var("f")
DATA = Buffer("D", (64,), int32)


def round_trip(e):
    return str(to_expr(affine(e)))


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (i * 8 + j, "i * 8 + j"),
        (3 + i, "i + 3"),
        ((i + 2) * 8 - i, "i * 7 + 16"),
        (i - i, "0"),
        (-(i - j), "j - i"),
        (17 - i * 8, "17 - i * 8"),
        (-i, "-i"),
        (-i - 3, "-i - 3"),
        ((i << 3) + j, "i * 8 + j"),
        (minimum(i, 4) * 2 + minimum(i, 4), "min(i, 4) * 3"),
        (i * j + i * j, "i * j * 2"),
    ],
)
def test_a_sum_and_back(e, text):
    assert round_trip(e) == text


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (f // 8 * 8 + f % 8, "f"),
        (f // 8 * 24 + f % 8 * 3, "f * 3"),
        (f // 12 * 12 + f // 4 % 3 * 4 + f % 4, "f"),  # a fused triple, flattened again
        ((i * 4 + j) // 8 * 8 + (i * 4 + j) % 8, "i * 4 + j"),
        (f // 4 % 3 * 4 + f % 4, "f % 12"),
        (f - f // 8 * 8, "f % 8"),
        (f // 8 % 1 + i, "f // 8 % 1 + i"),
        (f // 8 * 9 + f % 8, "f // 8 * 9 + f % 8"),  # a padded row is not a recombination
    ],
)
def test_quotient_and_remainder_join(e, text):
    assert round_trip(e) == text


def test_coefficients():
    a = affine(i * 8 + j + 3)
    assert dict(a.terms) == {i: 8, j: 1}
    assert (a.constant, a.coefficient(i), a.coefficient(k)) == (3, 8, 0)
    assert not a.is_constant
    assert affine(const(3)).is_constant


def test_only_scalar_integers_are_sums():
    assert affine(const(1.0, "float32")) is None
    assert affine(Ramp(i, 1, 4)) is None


def test_order_of_terms():
    a = affine(k + j * 4 + i * 16 + 5)
    assert str(to_expr(a)) == "k + j * 4 + i * 16 + 5"
    assert str(to_expr(a, order=(i, j))) == "i * 16 + j * 4 + k + 5"


def test_division_helpers():
    whole, rest = split_by(affine(i * 16 + k * 3 + 21), 8)
    assert str(to_expr(whole)), str(to_expr(rest)) == ("i * 2 + 2", "k * 3 + 5")


def test_stride():
    e = i * 64 + (j + 1) * 8 + k // 2
    assert (stride(e, i), stride(e, j), stride(e, f)) == (64, 8, 0)
    assert stride(e, k) is None


def test_casts_of_indices_are_looked_through_but_not_those_of_data():
    n = Var("n", int32)
    assert dict(affine(Cast(int64, n * 4 + 1)).terms) == {n: 4}
    wide = Cast(int64, Load(DATA, (i,)) + 1)  # int32 data may wrap around
    assert dict(affine(wide).terms) == {wide: 1}
    assert to_expr(Affine({n: 4}, 0, int64)).dtype == int64


def test_least_numbers_survive_the_round_trip():
    x = Var("x", int32)
    e = to_expr(Affine({x: -(2**31)}, -(2**31), int32))
    a = affine(e)
    assert (a.coefficient(x) % 2**32, a.constant % 2**32) == (2**31, 2**31)


@pytest.mark.parametrize(
    ("e", "divisor"),
    [
        (i * 16 + j * 12 + 8, 4),
        (minimum(i * 8, 12), 4),
        (i * 6 % 9, 3),
        ((i * 8) ^ (j * 4), 4),
        ((i * 6) ^ (j * 3), 1),  # 6 ^ 3 = 5
        (i * 4 * (j * 3), 12),
        (i // 2, 1),
        (const(0), 0),
    ],
)
def test_divisors(e, divisor):
    assert affine(e).divisor == divisor
