"""Floats that become integers: one conversion, and the bits of the formula at every end."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor import te

F = np.float32
ENDS = [0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 128.5, 254.5, 255.5, 256.5, -127.5, -128.5, -129.5]
HUGE = [2.0**30, 2.0**31, -(2.0**31), 2.0**31 - 128, 3e9, -3e9, 1e30, -1e30, np.inf, -np.inf, np.nan]
X = np.array([*ENDS, *HUGE, *np.random.default_rng(0).uniform(-300, 300, 100)], F)


def built(value):
    A = te.placeholder(X.shape, "float32", name="A")
    return at.build([A, te.compute(X.shape, lambda i: value(A[i]), name="Y")])


def clamped(x, zero, low, high, dtype):
    """The formula in NumPy, NaN as 0."""
    y = np.minimum(np.maximum(np.rint(x) + F(zero), F(low)), F(high))
    return np.where(np.isnan(y), 0, y).astype(np.int64).astype(dtype)


@pytest.mark.parametrize("zero", [0, 3, 131, 255, -7])
@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("uint8", 0, 255), ("int8", -128, 127), ("uint8", 7, 200), ("int16", -99, 9999)],
)
def test_a_byte_is_clamped_rounded_and_moved(dtype, low, high, zero):
    def value(x):
        y = te.call("round", x) + te.const(float(zero), "float32")
        return te.cast(dtype, te.minimum(te.maximum(y, float(low)), float(high)))

    f = built(value)
    assert np.array_equal(f(X), clamped(X, zero, low, high, dtype))


@pytest.mark.parametrize("dtype", ["int32", "int16", "uint8"])
def test_a_rounded_number_has_the_least_one_where_there_is_no_room(dtype):
    y = np.rint(X.astype(np.float64))
    fits = (y >= -(2.0**31)) & (y < 2.0**31)
    want = np.where(fits, np.where(fits, y, 0), -(2.0**31)).astype(np.int64).astype(dtype)
    assert np.array_equal(built(lambda x: te.cast(dtype, te.call("round", x)))(X), want)


def test_limits_that_are_no_whole_numbers_stay_behind_the_rounding():
    f = built(lambda x: te.cast("int8", te.minimum(te.maximum(te.call("round", x), -1.5), 2.5)))
    assert np.array_equal(f(X), clamped(X, 0, -1.5, 2.5, "int8"))
