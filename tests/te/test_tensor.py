"""Tensors, axes and the expressions that they make."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.dtype import bool_, dtype_of, float32, int64
from autotensor.base.errors import ScheduleError, TensorError
from autotensor.ir.arithmetic import Equality
from autotensor.ir.expr import MATH, Binary, Call, Cast, Cmp, Compare, Const, Load, Op, as_expr
from autotensor.models import MODELS

A = te.placeholder((4, 8), name="A")
B = te.placeholder((4, 8), dtype="int8", name="B")
F = te.placeholder((4,), dtype="bool", name="F")


class TestTensor:
    def test_indexing_gives_a_load(self) -> None:
        e = A[1, 2]
        assert isinstance(e, Load)
        assert e.dtype == float32
        assert e.buffer is A
        assert [i.dtype for i in e.indices] == [int64, int64]
        assert A(1, 2) is e

    def test_names_and_shapes(self) -> None:
        assert (A.name, A.shape, A.ndim, str(A.dtype)) == ("A", (4, 8), 2, "float32")
        assert te.placeholder(3, name="v").shape == (3,)
        assert te.placeholder(np.array([3, 4]), name="m").shape == (3, 4)
        assert te.placeholder((), name="s").shape == ()
        assert repr(A) == "Tensor(A, shape=(4, 8), float32)"

    def test_tensors_are_compared_by_identity(self) -> None:
        p, q = te.placeholder((2,)), te.placeholder((2,))
        assert p != q
        assert p == p
        assert len({p, q}) == 2

    def test_a_scalar_tensor_is_a_value(self) -> None:
        s = te.placeholder((), name="s")
        assert (s + 1).dtype == float32
        assert as_expr(s) is s()

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (
                lambda: A[1],
                "tensor 'A' of shape (4, 8) was indexed with 1 index; it has 2 axes. Write all indices",
            ),
            (lambda: A[1, 2, 3], "was indexed with 3 indices"),
            (
                lambda: A[1.5, 0],
                "index 0 of tensor 'A' has type float32; indices are integers. Convert it with",
            ),
            (lambda: A[0, A[0, 0]], "index 1 of tensor 'A' has type float32"),
            (lambda: list(A), "tensor 'A' cannot be iterated over. Index it: A[i, j]."),
            (
                lambda: te.reduce_axis(0, 64),
                "reduce_axis takes an extent or a pair, not 0 and 64. Write te.red",
            ),
            (lambda: te.reduce_axis(range(64)), "reduce_axis takes an extent or a pair, not range(0, 64)."),
            (
                lambda: te.compute((4,), lambda i: te.max(A[i, 0], B[i, 0])),
                "[0] is not a reduce axis. Make it with te.reduce_axis. te.maximum",
            ),
            (lambda: te.create_schedule([]), "nothing to compute: no tensor is given."),
            (lambda: len(A), "tensor 'A' has no length. Its extents are in A.shape."),
            (lambda: A + 1, "cannot be part of an expression. Index tensors with all their axes"),
            (
                lambda: te.placeholder((2, -1)),
                "placeholder 'placeholder': shape (2, -1) must consist of non-negative",
            ),
            (
                lambda: te.placeholder((1 << 35, 1 << 35)),
                "'placeholder': shape (34359738368, 34359738368) has more elements than addresses.",
            ),
            (lambda: te.placeholder((2.5,)), "must consist of non-negative integers. Divide by //"),
            (lambda: te.placeholder((True,)), "must consist of non-negative integers"),
            (lambda: te.placeholder((2,), dtype="float8"), "dtype 'float8' is not supported. Known: float16"),
            (lambda: te.placeholder((2,), dtype=[1]), r"[1] is not a dtype. Known: float16"),  # type: ignore[arg-type]
            (lambda: te.cast(A[0, 0], "int64"), "is not a dtype. Known: float16"),  # type: ignore[arg-type]
            (lambda: te.placeholder((2,), name="a.b"), "name 'a.b' must be letters, digits and _"),
            (lambda: te.placeholder((2,), name=""), "name '' must be letters"),
            (lambda: te.placeholder((2,), name=5), "name 5 must be letters"),  # type: ignore[arg-type]
        ],
    )
    def test_refusals(self, make: Any, message: str) -> None:
        with pytest.raises(TensorError) as caught:
            make()
        assert message in str(caught.value)


class TestOperators:
    def test_numbers_take_the_type_of_the_other_side(self) -> None:
        assert (A[0, 0] + 1).dtype == float32
        assert (B[0, 0] + 1).dtype == dtype_of("int8")
        assert (2 * B[0, 0]).dtype == dtype_of("int8")
        assert (B[0, 0] * 0.5).dtype == float32
        assert (F[0] + 1).dtype == int64  # as NumPy: a bool is not a number's type
        assert (F[0] * A[0, 0]).dtype == float32

    @pytest.mark.parametrize("number", [np.float32(2), np.float64(2), np.int64(2), ml_dtypes.bfloat16(2)])
    def test_numpy_scalars_are_numbers(self, number: Any) -> None:
        for e in (A[0, 0] * number, number * A[0, 0]):
            assert isinstance(e, Binary)
            assert e.dtype == float32
        assert isinstance(number < A[0, 0], Compare)
        assert isinstance(number == A[0, 0], Equality)
        assert as_expr(np.bool_(True)).dtype == bool_

    def test_types_are_joined(self) -> None:
        types = {
            ("float16", "bfloat16"): "float32",
            ("int8", "float16"): "float16",
            ("uint8", "int8"): "int16",
            ("int32", "int64"): "int64",
            ("bool", "uint8"): "uint8",
        }
        for (x, y), want in types.items():
            p, q = te.placeholder((1,), dtype=x), te.placeholder((1,), dtype=y)
            assert str((p[0] * q[0]).dtype) == want

    def test_division(self) -> None:
        assert isinstance(B[0, 0] / 2, Binary)
        assert (B[0, 0] / 2).dtype == float32
        assert (B[0, 0] // 2).dtype == dtype_of("int8")
        floor = A[0, 0] // 2
        assert isinstance(floor, Call)
        assert floor.name == "floordiv"

    def test_constants_are_folded(self) -> None:
        assert as_expr(3) + 4 is te.const(7)
        assert te.cast("float32", 3) is te.const(3.0, "float32")
        assert te.cast("bool", 3) is te.const(True, "bool")
        assert te.cast("uint8", -1) is te.const(255, "uint8")

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: F[0] + F[1], "'+' is not defined for bool. Convert it with .astype('int32')."),
            (lambda: -F[0], "'-' is not defined for bool."),
            (lambda: A[0, 0] & 1, "'&' is not defined for float32."),
            (lambda: ~A[0, 0], "'~' is not defined for float32."),
            (lambda: B[0, 0] < 300, "300 does not fit in int8. Convert the other operand with .astype."),
            (lambda: te.const(1.5, "int32"), "1.5 does not fit in int32."),
            (lambda: te.const(-1, "uint8"), "-1 does not fit in uint8."),
            (lambda: A[0, 0] + "1", "'1' cannot be part of an expression."),
            (lambda: A[0, 0] + np.zeros(3), "cannot be part of an expression."),
            (lambda: te.call("fft", A[0, 0]), "function 'fft' is unknown. Known: sqrt, rsqrt, exp,"),
        ],
    )
    def test_refusals(self, make: Any, message: str) -> None:
        with pytest.raises(TensorError) as caught:
            make()
        assert message in str(caught.value)

    @pytest.mark.parametrize("test", [lambda x: not x, lambda x: 1 if x > 0 else 2, lambda x: 0 < x < 1])
    def test_expressions_have_no_truth_value(self, test: Any) -> None:
        with pytest.raises(
            TensorError, match=r"an expression has no truth value .* Use te.if_then_else, te.all"
        ):
            test(A[0, 0])


class TestEquality:
    """`==` builds a comparison if an expression is needed, and tests identity if a bool is needed."""

    P, Q = te.reduce_axis(4, "i"), te.reduce_axis(4, "j")

    @pytest.mark.parametrize("op", [Cmp.EQ, Cmp.NE])
    def test_it_is_a_comparison(self, op: Cmp) -> None:
        i, j = self.P, self.Q
        pairs = [
            (i.var, j.var),
            (i.var, j),
            (i, j.var),
            (i, j),
            (i, 3),
            (i.var, 3),
            (3, i),
            (3, i.var),
            (np.int64(3), i),
        ]
        for a, b in pairs:
            e = as_expr(a == b if op is Cmp.EQ else a != b)
            assert isinstance(e, Compare), (a, b)
            assert e.op is op
            assert {e.a, e.b} == {as_expr(a), as_expr(b)}

    def test_it_may_stand_in_a_condition(self) -> None:
        i, j = self.P, self.Q
        e = te.if_then_else(i == j, 1.0, 0.0)
        assert isinstance(e.cond, Compare)
        assert te.all(i == 0, j != 1).dtype == bool_
        assert ((i == 0) | (j == 0)).dtype == bool_
        assert (i > 0) & (j == 0) is te.all(i > 0, j == 0)
        assert (~(i == j)).dtype == bool_
        assert (i == j).astype("float32").dtype == float32

    def test_as_a_bool_it_is_identity(self) -> None:
        i, j = self.P, self.Q
        assert i == i
        assert i.var == i.var
        assert i != j
        assert not i.var == j.var  # noqa: SIM201
        assert [i, j].index(j) == 1
        assert {i.var: 1}[i.var] == 1
        assert A[0, 0] != None  # noqa: E711


class TestAxis:
    def test_arithmetic(self) -> None:
        k = te.reduce_axis(16, name="k")
        for e in (
            k // 4,
            k % 4,
            3 - k,
            2 * k,
            k << 1,
            k >> 1,
            k & 1,
            k | 1,
            k ^ 1,
            -k,
            100 // k,
            100 % k,
            ~k,
            abs(k),
        ):
            assert e.dtype == int64
        assert isinstance(k // 4, Binary)
        assert (k // 4).op is Op.FLOORDIV
        assert (k / 2).dtype == float32
        assert (2.0**k).dtype == float32
        assert repr(k) == "IterVar(k, 16, reduce)"

    def test_two_axes_of_one_name_are_two(self) -> None:
        assert te.reduce_axis(4, "k").var is not te.reduce_axis(4, "k").var

    def test_refusals(self) -> None:
        with pytest.raises(TensorError, match=r"reduce_axis 'k' starts at 1. Start at 0 and add the offset"):
            te.reduce_axis((1, 4), name="k")
        with pytest.raises(TensorError, match="reduce_axis 'k': shape"):
            te.reduce_axis(-4, name="k")


class TestFunctions:
    @pytest.mark.parametrize("name", MATH)
    def test_every_function_has_its_own(self, name: str) -> None:
        fn = getattr(te, name)
        args = (A[0, 0], 2.5) if name in ("pow", "atan2", "fmod", "floordiv", "floormod") else (A[0, 0],)
        e = fn(*args)
        assert isinstance(e, Call)
        assert e.name == name
        assert e.dtype == (bool_ if name in ("isnan", "isinf") else float32)
        assert fn.__doc__
        assert name in te.__all__

    def test_integers_become_float32(self) -> None:
        assert te.exp(B[0, 0]).dtype == float32
        assert te.abs(B[0, 0]).dtype == dtype_of("int8")
        assert te.power(2, A[0, 0]).dtype == float32

    def test_powers_with_small_constant_exponents_are_products_and_roots(self) -> None:
        x = A[0, 0]
        assert x**1 is x
        assert str(x**0).startswith("pow(")  # a program that lists A still reads A
        assert [str(x**n).replace(str(x), "x") for n in (2, 3.0, -1, -2, 5)] == [
            "x * x", "x * x * x", "1.0 / x", "1.0 / x * (1.0 / x)", "pow(x, 5.0)",
        ]  # fmt: skip
        assert str(x**0.5).startswith("sqrt(")
        assert str(x**-0.5).startswith("rsqrt(")
        assert str(B[0, 0] ** 3) == str(B[0, 0] * B[0, 0] * B[0, 0])
        half = te.placeholder((4,), "float16", name="H")[0]
        assert (half**3).dtype == half.dtype
        assert str(half**3).count("float32") > 0  # rounded once

    def test_index_arithmetic(self) -> None:
        i = te.reduce_axis(4).var
        assert te.indexdiv(i, 2) is te.floordiv(i, 2)
        assert te.indexmod(i, 2) is te.floormod(i, 2)

    def test_constants_and_limits(self) -> None:
        assert te.const(1.5).dtype == float32
        assert te.const(3).dtype == int64
        assert te.const(True).dtype == bool_
        assert te.min_value("int8") is te.const(-128, "int8")
        assert te.max_value("uint8") is te.const(255, "uint8")
        assert te.max_value("float16") is te.const(float("inf"), "float16")
        assert isinstance(te.cast("float16", A[0, 0]), Cast)

    def test_every_public_name_exists(self) -> None:
        assert [n for n in te.__all__ if not hasattr(te, n)] == []


def test_constants_keep_their_sign_and_kind() -> None:
    assert Const(0.0, float32) is not Const(-0.0, float32)
    assert Const(float("nan"), float32) is Const(float("nan"), float32)
    assert Const(1, int64) is not Const(True, bool_)


def test_an_expression_is_printed_with_the_names_of_its_axes() -> None:
    """Also if their names were used before."""
    for _ in range(2):
        k = te.reduce_axis(8, name="k")
        total = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="S")  # noqa: B023
        assert str(total) == "S[i: 4] = sum(A[i][k], axis=[k])"
        assert str(te.compute((4, 8), lambda i, j: A[i, j] * 2, name="D")) == "D[i: 4, j: 8] = A[i][j] * 2.0"


def test_objects_are_shown_without_their_addresses() -> None:
    A = te.placeholder((8, 4), name="A")
    k = te.reduce_axis(4, name="k")
    C = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="C")
    assert repr(C.op) == "Compute(C, shape=(8,))"
    assert repr(te.sum).startswith("<function sum at ")
    assert re.fullmatch(r"<Operators: \d+ functions on nodes>", repr(at.ops))
    assert re.fullmatch(r"<Registry: \d+ of kind 'model'>", repr(MODELS))
    assert repr(MODELS.get("mlp")) == "Model(mlp: perceptron 784-512-256-10)"


def test_completion_shows_public_names_of_te_only() -> None:
    assert dir(te) == sorted(te.__all__)
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib", "advice"} & set(dir(te))


def test_a_schedule_is_indexed_and_not_called():
    C = te.compute((4, 8), lambda i, j: A[i, j] * 2.0)
    with pytest.raises(ScheduleError, match=r"a schedule cannot be called. Index it: s\[C\]"):
        te.create_schedule(C)(C)


def test_round_takes_digits_as_numpy_does():
    x = np.array([0.125, -2.345, 12.5, 1e6], np.float32)
    X = te.placeholder((4,), name="X")
    Y = te.compute((4,), lambda i: round(X[i], 1) + round(X[i], -1))
    np.testing.assert_allclose(at.build([Y])(x), np.round(x, 1) + np.round(x, -1), rtol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        lambda i, j: A[i, j] if i == j else 0.0,
        lambda i, j: A[i, j] if i % 2 != 0 else 0.0,
        lambda i, j: A[i, j] if i in (0, 3) else 0.0,
        lambda i, j: A[i, j] if not (i == 0 and j > 0) else 0.0,
        lambda i, j: te.if_then_else((i == 0) or (j == 0), A[i, j], 0.0),
        lambda i, j: A[i, j] if A[i, j] == 1.0 else 0.0,
    ],
)
def test_python_cannot_decide_by_equality(body):
    """The test would decide once for all elements, by identity."""
    with pytest.raises(TensorError, match=r"no truth value .* instead of if, and, or, not, in"):
        te.compute((4, 8), body)


def test_functions_called_by_authors_may_still_look_for_a_node():
    def body(i, j):
        axes = {i: 1.0, j: 2.0}
        return A[i, j] + axes[i] - axes[j]

    assert te.compute((4, 8), body).shape == (4, 8)


def test_types_equal_their_names():
    assert A.dtype == "float32"
    assert A.dtype == np.float32
    assert A.dtype != "int8"
    assert B.dtype == np.dtype("int8")
    assert A.dtype != None  # noqa: E711
