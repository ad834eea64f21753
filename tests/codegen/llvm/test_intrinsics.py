"""Errors of the mathematical functions against extended precision, and their ends: 0, infinity, NaN,
subnormals."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_kernels import elementwise, ulps

from autotensor.base.dtype import bfloat16, float16
from autotensor.base.target import parse
from autotensor.ir.expr import call

COUNT = 1 << 16
ENDS = (
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    1e-40,
    -1e-40,
    1e-30,
    5e-324,
    88.8,
    -87.5,
    103.9,
    -103.9,
    1e4,
    -1e4,
    0.5,
)

RANGES = {
    "exp": (-110, 95),
    "exp2": (-152, 130),
    "expm1": (-20, 90),
    "log": (1e-38, 1e38),
    "log2": (0, 1e4),
    "log10": (0, 1e6),
    "log1p": (-0.9999, 100),
    "sigmoid": (-87, 30),
    "tanh": (-10, 10),
    "erf": (-5, 5),
    "sin": (-1e4, 1e4),
    "cos": (-1e4, 1e4),
    "tan": (-1e3, 1e3),
    "sqrt": (0, 1e4),
    "rsqrt": (1e-6, 1e4),
    "floor": (-100, 100),
    "ceil": (-100, 100),
    "round": (-100, 100),
    "trunc": (-100, 100),
    "abs": (-100, 100),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atan": (-50, 50),
    "sinh": (-80, 80),
    "cosh": (-80, 80),
    "asinh": (-1e3, 1e3),
    "acosh": (1, 1e3),
    "atanh": (-0.999, 0.999),
}
SPELLED = {name: "arc" + name[1:] for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")}
SPELLED["round"] = "rint"
LIMIT = {"sqrt": 0.5, "floor": 0, "ceil": 0, "round": 0, "trunc": 0, "abs": 0}


def exact(name: str, x):
    x = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        if name == "erf":
            from math import erf

            return np.array([erf(float(v)) for v in x], np.longdouble)
        if name == "sigmoid":
            return 1 / (1 + np.exp(-x))
        if name == "rsqrt":
            return 1 / np.sqrt(x)
        return getattr(np, SPELLED.get(name, name))(x)


def samples(name: str, dtype, count: int = COUNT):
    rng = np.random.default_rng(1)
    low, high = RANGES[name]
    uniform = rng.uniform(low, high, count // 2)
    near = np.clip(rng.uniform(-1.0, 1.0, count // 4), low, high)
    tiny = np.clip(np.exp2(rng.uniform(-20, 4, count // 4)) * rng.choice((-1, 1), count // 4), low, high)
    return np.concatenate([uniform, near, tiny]).astype(dtype)


@pytest.mark.parametrize("name", sorted(RANGES))
def test_float32_is_within_two_and_a_half_ulps(name: str) -> None:
    x = samples(name, np.float32)
    got = elementwise(lambda v: call(name, v), [x], lanes=16)
    assert ulps(got, exact(name, x)) <= LIMIT.get(name, 2.5)


@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "sigmoid", "tanh"])
def test_machines_that_cannot_scale_by_powers_of_two_in_one_instruction(name: str) -> None:
    x = samples(name, np.float32)
    got = elementwise(lambda v: call(name, v), [x], lanes=8, target=parse("llvm -mcpu=x86-64-v3"))
    assert ulps(got, exact(name, x)) <= LIMIT.get(name, 2.5)


# the second rounds products before it adds to them
@pytest.mark.parametrize(("cpu", "limit"), [("x86-64-v3", 2.5), ("x86-64", 3.1)])
def test_erf_keeps_its_error_over_all_of_its_range(cpu: str, limit: float) -> None:
    first, last = np.array([2.0**-30, 4.0], np.float32).view(np.int32)
    x = np.arange(first, last, 509, dtype=np.int32).view(np.float32)  # 525 thousand numbers
    x = x[: x.size // 16 * 16]
    got = elementwise(lambda v: call("erf", v), [x], lanes=8, target=parse(f"llvm -mcpu={cpu}"))
    assert ulps(got, exact("erf", x)) <= limit
    assert got.max() == 1  # and never more


def test_erf_is_one_where_it_rounds_to_one() -> None:
    x = np.array(
        [
            3.92,
            3.95,
            4.0,
            5.5,
            1e10,
            np.inf,
            -3.92,
            -4.0,
            -np.inf,
            1.0,
            np.nextafter(np.float32(1), np.float32(2)),
        ],
        np.float32,
    )
    got = elementwise(lambda v: call("erf", v), [x])
    assert (got[:9] == [1] * 6 + [-1] * 3).all()
    assert ulps(got[9:], exact("erf", x[9:])) <= 2


@pytest.mark.parametrize("name", sorted(RANGES))
def test_float64_is_within_two_and_a_half_ulps(name: str) -> None:
    x = samples(name, np.float64, COUNT if name != "erf" else 4096)
    got = elementwise(lambda v: call(name, v), [x], lanes=8)
    assert ulps(got, exact(name, x)) <= LIMIT.get(name, 2.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends_behave_as_numpy(dtype) -> None:
    x = np.array((*ENDS, *(-e for e in ENDS)), np.float64)
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
    names = sorted(RANGES)
    got = {}
    for lanes in (1, 4):
        for name in names:
            got[name, lanes] = elementwise(lambda v, name=name: call(name, v), [x], lanes=lanes)
    for (name, lanes), y in got.items():
        if name in ("sigmoid", "exp", "exp2") and dtype is np.float32:
            want = exact(name, x)
            with np.errstate(all="ignore"):
                finite = np.abs(want.astype(dtype))
            normal = (finite > 1.2e-38) | (finite == 0) | np.isnan(finite)
            y, want = y[normal], want[normal]
        else:
            want = exact(name, x)
        assert ulps(y, want) <= 4, (name, lanes)
        if name not in ("cos", "cosh", "acosh"):
            zero = np.array([0.0, -0.0], dtype)
            with np.errstate(all="ignore"):
                signs = np.signbit(exact(name, zero))
            assert (np.signbit(elementwise(lambda v, name=name: call(name, v), [zero])) == signs).all(), name


def test_pow_covers_signs_and_specials() -> None:
    rng = np.random.default_rng(2)
    special = np.array(
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-3, 41.0, -7.0],
        np.float32,
    )
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    a = np.concatenate([a, rng.uniform(0, 20, 4096).astype(np.float32)])
    b = np.concatenate([b, rng.uniform(-10, 10, 4096).astype(np.float32)])
    for dtype, lanes in ((np.float32, 16), (np.float64, 8)):
        x, y = a.astype(dtype), b.astype(dtype)
        with np.errstate(all="ignore"):
            want = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        got = elementwise(lambda p, q: call("pow", p, q), [x, y], lanes=lanes)
        assert ulps(got, want) <= 4


def test_two_argument_library_functions() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-5, 5, (2, 64)).astype(np.float32)
    for name, fn in (("atan2", np.arctan2), ("fmod", np.fmod)):
        got = elementwise(lambda p, q, name=name: call(name, p, q), [a, b], lanes=8)
        np.testing.assert_allclose(got, fn(a, b), rtol=1e-6)


@pytest.mark.parametrize("lanes", [1, 4])
def test_classification(lanes: int) -> None:
    for dtype in (np.float16, np.float32, np.float64, bfloat16.numpy):
        x = np.array([0, 1, np.inf, -np.inf, np.nan, -np.nan, 3, 4], dtype)
        assert (elementwise(lambda v: call("isnan", v), [x], lanes=lanes) == np.isnan(x)).all()
        assert (elementwise(lambda v: call("isinf", v), [x], lanes=lanes) == np.isinf(x)).all()


def test_sixteen_bit_floats_compute_in_float32() -> None:
    x = np.linspace(-4, 4, 64, dtype=np.float32)
    for t in (float16, bfloat16):
        small = x.astype(t.numpy)
        got = elementwise(lambda v: call("exp", v), [small], lanes=8)
        assert got.dtype == t.numpy
        assert (got == np.exp(small.astype(np.float32)).astype(t.numpy)).mean() > 0.98


def test_abs_of_integers() -> None:
    for dtype in (np.int8, np.int32, np.int64, np.uint8):
        x = np.array([0, 1, 5, 100], dtype) * np.array([1, -1, 1, -1]).astype(dtype)
        assert (elementwise(lambda v: call("abs", v), [x], lanes=4) == np.abs(x)).all()
