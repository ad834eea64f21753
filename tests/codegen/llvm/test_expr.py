"""Every expression node on the CPU backend against NumPy: arithmetic, casts, comparisons, all types, scalars
and vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from codegen_kernels import elementwise

from autotensor.base.dtype import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Cmp,
    Compare,
    Const,
    Expr,
    Neg,
    Op,
    Unary,
    cast,
    const,
    select,
)

INTS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
FLOATS = (float16, float32, float64, bfloat16)
LANES = (1, 8)


def data(t: DType, seed: int = 0, count: int = 64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if t.is_bool:
        return rng.integers(0, 2, count).astype(bool)
    if t.is_int:
        low = -100 if t.kind == "int" else 0
        return rng.integers(low, 100, count).astype(t.numpy)
    return rng.uniform(-8, 8, count).astype(np.float32).astype(t.numpy)


def quiet(fn: Callable[..., np.ndarray], *args: Any) -> np.ndarray:
    """NumPy's answer; ml_dtypes warns about NaN."""
    with np.errstate(all="ignore"):
        return fn(*args)


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    wide = got.dtype if got.dtype.kind in "iub" else np.float64
    np.testing.assert_array_equal(got.astype(wide), want.astype(wide))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_float_arithmetic(t: DType, lanes: int) -> None:
    a, b = data(t, 1), data(t, 2)
    for op, fn in ((Op.ADD, np.add), (Op.SUB, np.subtract), (Op.MUL, np.multiply), (Op.DIV, np.divide)):
        same(elementwise(lambda x, y, op=op: Binary(op, x, y), [a, b], lanes), fn(a, b).astype(a.dtype))
    same(elementwise(lambda x: Unary(Neg.NEG, x), [a], lanes), -a)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("t", INTS, ids=str)
@pytest.mark.sample(6)
def test_integer_arithmetic_wraps(t: DType, lanes: int) -> None:
    a, b = data(t, 1), data(t, 2)
    shift = np.random.default_rng(3).integers(0, 7, a.size).astype(a.dtype)
    with np.errstate(over="ignore"):
        for op, fn in (
            (Op.ADD, np.add),
            (Op.SUB, np.subtract),
            (Op.MUL, np.multiply),
            (Op.AND, np.bitwise_and),
            (Op.OR, np.bitwise_or),
            (Op.XOR, np.bitwise_xor),
            (Op.MIN, np.minimum),
            (Op.MAX, np.maximum),
        ):
            same(elementwise(lambda x, y, op=op: Binary(op, x, y), [a, b], lanes), fn(a, b))
        same(elementwise(lambda x, y: x << y, [a, shift], lanes), np.left_shift(a, shift))
        same(elementwise(lambda x, y: x >> y, [a, shift], lanes), np.right_shift(a, shift))
        same(elementwise(lambda x: -x, [a], lanes), np.negative(a))
        same(elementwise(lambda x: ~x, [a], lanes), ~a)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("t", INTS, ids=str)
@pytest.mark.sample(6)
def test_division_rounds_down(t: DType, lanes: int) -> None:
    least = np.iinfo(t.numpy).min
    a = np.concatenate([data(t, 1, 56), np.array([least, least, 0, 1, 7, least, 5, 9]).astype(t.numpy)])
    b = data(t, 2)
    b[-8:] = np.array([-1 if t.kind == "int" else 1, 0, 0, 0, 3, 2, 1, 5]).astype(t.numpy)
    with np.errstate(all="ignore"):
        same(elementwise(lambda x, y: x // y, [a, b], lanes), a // b)
        same(elementwise(lambda x, y: x % y, [a, b], lanes), a % b)
        for divisor in (1, 2, 7, 16, 100, *((-1, -3) if t.kind == "int" else ())):
            d = np.array(divisor).astype(t.numpy)
            same(elementwise(lambda x, d=divisor: x // const(d, x.dtype), [a], lanes), a // d)
            same(elementwise(lambda x, d=divisor: x % const(d, x.dtype), [a], lanes), a % d)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_min_and_max_keep_nan(t: DType, lanes: int) -> None:
    a, b = data(t, 1), data(t, 2)
    a[::5], b[::7] = np.nan, np.nan
    same(elementwise(lambda x, y: Binary(Op.MIN, x, y), [a, b], lanes), quiet(np.minimum, a, b))
    same(elementwise(lambda x, y: Binary(Op.MAX, x, y), [a, b], lanes), quiet(np.maximum, a, b))
    zero = np.zeros(1, a.dtype)
    same(
        elementwise(lambda x: Binary(Op.MAX, x, const(0.0, x.dtype)), [a], lanes), quiet(np.maximum, a, zero)
    )
    same(
        elementwise(lambda x: Binary(Op.MIN, const(0.0, x.dtype), x), [a], lanes), quiet(np.minimum, a, zero)
    )


TREES: dict[str, Callable[..., Any]] = {
    "left": lambda f, a, b, c, d: f(f(f(a, b), c), d),
    "right": lambda f, a, b, c, d: f(a, f(b, f(c, d))),
    "balanced": lambda f, a, b, c, d: f(f(a, b), f(c, d)),
    "inside": lambda f, a, b, c, d: f(f(a, f(b, c)), d),
    "shared": lambda f, a, b, c, d: f(f(f(a, b), c), f(f(a, b), d)),
    "mixed": lambda f, a, b, c, d: f(f(f(a, b), -f(-c, -d)), a),
}


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("t", FLOATS, ids=str)
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.sample(12)
def test_chains_of_min_and_max_keep_nan_and_the_first_zero(tree: str, t: DType, lanes: int) -> None:
    """Two steps of a chain share the instructions that keep NaN."""
    ends = [np.nan, -np.inf, -1.0, -0.0, 0.0, np.inf]
    operands = [v.astype(t.numpy) for v in np.array([*product(ends, repeat=4)]).T]
    for op, beyond in ((Op.MIN, np.less), (Op.MAX, np.greater)):

        def first(a: np.ndarray, b: np.ndarray, beyond: Any = beyond) -> np.ndarray:
            return np.where(beyond(b, a) | np.isnan(b), b, a)

        got = elementwise(lambda *v, op=op: TREES[tree](partial(Binary, op), *v), operands, lanes)
        wanted = quiet(TREES[tree], first, *operands)
        same(got, wanted)
        number = ~np.isnan(wanted)
        same(np.signbit(got[number]), np.signbit(wanted[number]))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("t", [*INTS, *FLOATS], ids=str)
@pytest.mark.sample(8)
def test_comparisons_and_select(t: DType, lanes: int) -> None:
    a, b = data(t, 1), data(t, 2)
    b[::3] = a[::3]
    if t.is_float:
        a[::5] = np.nan
    names = {
        Cmp.EQ: "equal",
        Cmp.NE: "not_equal",
        Cmp.LT: "less",
        Cmp.LE: "less_equal",
        Cmp.GT: "greater",
        Cmp.GE: "greater_equal",
    }
    for op, name in names.items():
        same(
            elementwise(lambda x, y, op=op: Compare(op, x, y), [a, b], lanes), quiet(getattr(np, name), a, b)
        )
    same(elementwise(lambda x, y: select(x < y, x, y), [a, b], lanes), np.where(quiet(np.less, a, b), a, b))


@pytest.mark.parametrize("lanes", LANES)
def test_bool_logic(lanes: int) -> None:
    a, b = data(bool_, 1), data(bool_, 2)
    for op, fn in (
        (Op.AND, np.logical_and),
        (Op.OR, np.logical_or),
        (Op.XOR, np.logical_xor),
        (Op.MIN, np.minimum),
        (Op.MAX, np.maximum),
    ):
        same(elementwise(lambda x, y, op=op: Binary(op, x, y), [a, b], lanes), fn(a, b))
    same(elementwise(lambda x: ~x, [a], lanes), ~a)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("old", [bool_, *INTS, *FLOATS], ids=str)
@pytest.mark.sample(9)
def test_casts(old: DType, lanes: int) -> None:
    a = data(old, 1)
    for new in (bool_, *INTS, *FLOATS):
        x = np.abs(a) if old.is_float and new.kind == "uint" else a
        with np.errstate(all="ignore"):
            want = (
                x.astype(np.float32).astype(new.numpy)
                if new == bfloat16 or old == bfloat16
                else x.astype(new.numpy)
            )
        same(elementwise(lambda v, new=new: cast(new, v), [x], lanes, out=new), want)


@pytest.mark.parametrize("lanes", LANES)
def test_rounding_to_sixteen_bits_is_correct(lanes: int) -> None:
    """Halfway cases, where rounding twice would be wrong; overflow, subnormals, NaN."""
    rng = np.random.default_rng(5)
    half = rng.standard_normal(4096).astype(np.float16).astype(np.float64)
    x = np.concatenate(
        [
            half * (1 + 2.0**-11),
            half * (1 + 2.0**-11 + 2.0**-40),
            half * 1e-5,
            half * 1e5,
            [np.nan, np.inf, -np.inf, 0.0] * 8,
        ]
    )
    with np.errstate(all="ignore"):
        for source in (x, x.astype(np.float32)):
            same(
                elementwise(lambda v: cast(float16, v), [source], lanes, out=float16),
                source.astype(np.float16),
            )
        single = x.astype(np.float32)
        same(
            elementwise(lambda v: cast(bfloat16, v), [single], lanes, out=bfloat16),
            single.astype(bfloat16.numpy),
        )


def test_multiply_add_is_fused_in_all_forms() -> None:
    a, b, c = (data(float32, k) for k in range(3))
    exact = a.astype(np.float64) * b
    for fn, want in (
        (lambda x, y, z: x * y + z, exact + c),
        (lambda x, y, z: z + x * y, exact + c),
        (lambda x, y, z: x * y - z, exact - c),
        (lambda x, y, z: z - x * y, c - exact),
    ):
        for lanes in LANES:
            np.testing.assert_allclose(elementwise(fn, [a, b, c], lanes), want, rtol=1e-6, atol=1e-6)


def test_constants_of_all_types() -> None:
    zero = {t: np.zeros(8, t.numpy) for t in (*INTS, *FLOATS)}
    for t, z in zero.items():
        values: list[float] = [1, 100] if t.is_int else [0.1, -0.0, 1e-40, float("inf"), 3.5]
        for v in values:
            for lanes in LANES:
                fn = lambda x, v=v, t=t: select(x.equal(const(0, x.dtype)), const(v, x.dtype), x)  # noqa: E731
                same(
                    elementwise(fn, [z], lanes),
                    np.full(8, np.float32(v) if t == bfloat16 else v).astype(t.numpy),
                )


def test_shared_subexpressions_are_written_once() -> None:
    """A value used 2**40 times in a DAG of 40 nodes."""

    def tower(x: Expr) -> Expr:
        for _ in range(40):
            x = x * const(0.5, x.dtype) + x * const(0.5, x.dtype)
        return x

    a = data(float32)
    np.testing.assert_allclose(elementwise(tower, [a], 8), a, rtol=1e-5)


def test_broadcast_of_a_scalar_load_and_of_a_bool() -> None:
    a = data(float32)
    got = elementwise(lambda x: select(Broadcast(Const(True, bool_), 8), x, x + x), [a], 8)
    same(got, a)
