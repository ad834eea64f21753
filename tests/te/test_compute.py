"""Computes: axes, reductions, several outputs, own reducers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import TensorError
from autotensor.ir.expr import Reduce

A = te.placeholder((4, 8), name="A")
B = te.placeholder((8, 4), name="B")
K = te.reduce_axis((0, 8), name="k")


def larger(x: Any, y: Any) -> Any:
    return te.select(x[1] >= y[1], x[0], y[0]), te.maximum(x[1], y[1])


argmax = te.comm_reducer(larger, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax")


class TestCompute:
    def test_matmul(self) -> None:
        c = te.compute((4, 4), lambda i, j: te.sum(A[i, K] * B[K, j], axis=K), name="C")
        assert (c.name, c.shape, str(c.dtype)) == ("C", (4, 4), "float32")
        assert [a.name for a in c.op.axis] == ["i", "j"]
        assert c.op.reduce_axis == (K,)
        assert c.op.input_tensors == (A, B)
        assert isinstance(c.op.bodies[0], Reduce)

    def test_shapes(self) -> None:
        assert te.compute((), lambda: A[0, 0]).shape == ()
        assert te.compute(3, lambda i: A[i, 0]).shape == (3,)
        assert te.compute((0,), lambda i: A[i, 0]).shape == (0,)

    def test_axes_are_named_after_the_parameters(self) -> None:
        def names(fn: Any, rank: int = 2, **options: Any) -> list[str]:
            return [a.name for a in te.compute((2,) * rank, fn, **options).op.axes]

        assert names(lambda y, x: A[y, x]) == ["y", "x"]
        assert names(lambda *i: A[i]) == ["i0", "i1"]
        assert names(lambda n, *rest: A[rest], rank=3) == ["n", "i1", "i2"]
        assert names(lambda _, j: A[0, j]) == ["i0", "j"]
        assert names(lambda *i: A[i], axis_names=("h", "w")) == ["h", "w"]
        assert names(lambda y, x, scale=2: A[y, x] * scale) == ["y", "x"]

    def test_numbers_and_comparisons_as_bodies(self) -> None:
        assert str(te.compute((4,), lambda i: 0).dtype) == "int64"
        assert str(te.compute((4,), lambda i: 1.5).dtype) == "float32"
        assert str(te.compute((4, 4), lambda i, j: i == j).dtype) == "bool"
        assert str(te.compute((4, 4), lambda i, j: te.all(i == j, i > 0)).dtype) == "bool"

    def test_several_outputs(self) -> None:
        s, p = te.compute((4, 8), lambda i, j: (A[i, j] + 1, A[i, j] > 0), name="both")
        assert (s.name, p.name) == ("both", "both_v1")
        assert (str(s.dtype), str(p.dtype)) == ("float32", "bool")
        assert s.op is p.op

    def test_arguments_of_a_reducer_over_pairs(self) -> None:
        at, most = te.compute((4,), lambda i: argmax((K.var, A[i, K]), axis=K), name="T")
        assert (str(at.dtype), str(most.dtype)) == ("int64", "float32")

    def test_one_result_of_a_reducer_over_pairs(self) -> None:
        """The stage computes both; the caller gets what the function returned."""
        most = te.compute((4,), lambda i: argmax((K, A[i, K]), axis=K)[1], name="T")
        assert (most.name, most.index, str(most.dtype)) == ("T_v1", 1, "float32")
        assert len(most.op.bodies) == 2
        swapped = te.compute((4,), lambda i: argmax((K, A[i, K]), axis=K)[::-1], name="T")
        assert [t.index for t in swapped] == [1, 0]

    def test_any_and_all_are_conditions_or_reductions(self) -> None:
        f = te.placeholder((4, 8), dtype="bool", name="F")
        assert isinstance(te.any(f[0, K], axis=K), Reduce)
        assert isinstance(te.all(A[0, K] > 0, axis=K), Reduce)
        assert not isinstance(te.any(f[0, 0], f[0, 1]), Reduce)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: te.compute((4, 4), lambda i, j: te.sum(A[i, K], axis=K) + 1.0, name="C"),
            "compute 'C': a reduction must be the whole body, not part of an expression. "
            "Give the reduction a compute of its own and use its result.",
        ),
        (
            lambda: te.compute((4,), lambda i: te.sum(te.max(A[i, K], axis=K), axis=K)),
            "must be the whole body",
        ),
        (
            lambda: te.compute((4,), lambda i: (te.sum(A[i, K], axis=K), te.max(A[i, K], axis=K)), name="C"),
            "compute 'C': several outputs must come from one reduction over the same axes.",
        ),
        (
            lambda: te.compute((4,), lambda i: (te.sum(A[i, K], axis=K), A[i, 0])),
            "several outputs must come from one",
        ),
        (
            lambda: te.compute((4, 4), lambda i: A[i, 0], name="C"),
            "'C' has 2 axes but its function takes 1 argument (i).",
        ),
        (
            lambda: te.compute((4,), lambda i, j, *k: A[i, j], name="C"),
            "'C' has 1 axes but 2 names for them: i, j.",
        ),
        (
            lambda: te.compute((4, 4), lambda *i: A[i], axis_names=("h",)),
            "has 2 axes but 1 names for them: h.",
        ),
        (lambda: te.compute((4,), lambda i: A[i, 0], axis_names=("h.w",)), "name 'h.w' must be letters"),
        (lambda: te.compute((4,), lambda i: A[i, 0], name="C.local"), "name 'C.local' must be letters"),
        (
            lambda: te.compute((-1,), lambda i: A[i, 0]),
            "compute 'compute': shape (-1,) must consist of non-negative",
        ),
        (lambda: te.compute((4,), lambda i: A), "cannot be part of an expression"),
        (lambda: te.compute((4,), lambda i: None), "None cannot be part of an expression"),
        (lambda: te.sum(A[0, 0], axis=0), "sum: axis 0 is not a reduce axis. Make it with te.reduce_axis."),
        (lambda: te.sum(A[0, K], axis=(K, K)), "sum: a reduce axis is listed twice."),
        (lambda: te.sum(A[0, K] > 0, axis=K), "'+' is not defined for bool."),
        (
            lambda: te.comm_reducer(lambda x, y: (x[0],), lambda t, u: (0, 0), name="odd")(
                (A[0, K], A[0, K]), axis=K
            ),
            "reducer 'odd' joins 1 values and starts from 2; its sources are 2.",
        ),
        (
            lambda: te.comm_reducer(lambda x, y: x + y, 0, name="odd")(A[0, K], axis=K),  # type: ignore[arg-type]
            "reducer 'odd' cannot be made: 'int' object is not callable. It takes two functions: ",
        ),
        (
            lambda: te.comm_reducer(lambda x: x, lambda t: te.const(0, t), name="odd")(A[0, K], axis=K),
            "2 were given. It takes two functions: te.comm_reducer(lambda x, y: x * y, ",
        ),
        (
            lambda: te.compute((4,), lambda i: np.ones(4)[i], name="C"),
            "compute 'C': an axis indexes a NumPy array, which takes numbers. "
            "Make it an argument: te.placeholder(shape).",
        ),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(TensorError) as caught:
        make()
    assert message in str(caught.value)


def test_a_spatial_axis_cannot_be_reduced_over() -> None:
    with pytest.raises(
        TensorError, match=r"sum: axis Var\(.*\) is not a reduce axis|sum: axis .* is not a reduce axis"
    ):
        te.compute((4, 8), lambda i, j: te.sum(A[i, j], axis=j))


FOREIGN = (
    "compute 'y': a function of NumPy, which computes with numbers, was given an expression. "
    "Write te.exp for numpy.exp, te.sqrt for numpy.sqrt, and so on."
)
NUMBERS = (
    "an expression has no value while the program is being written. int(), range(), math.exp() and lists "
    "take numbers: write te.exp, a te.reduce_axis, or make the list an argument, te.placeholder(shape)."
)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda i: te.sum(A[i, K]),
            "sum has no axis to reduce. "
            'k = te.reduce_axis(n, name="k") makes one; then sum(A[i, k], axis=k).',
        ),
        (lambda i: np.exp(A[i, 0]), FOREIGN),
        (lambda i: np.arctan2(i, A[i, 0] + 1), FOREIGN),
        (lambda i: math.sqrt(A[i, 0]), NUMBERS),
        (lambda i: sum(A[i, n] for n in range(i)), NUMBERS),
        (lambda i: [1, 2, 3, 4][i] * A[i, 0], NUMBERS),
        (lambda i: A[int(i), 0], NUMBERS),
        (
            lambda i: A @ A,
            "te has no product @ of whole tensors. "
            "Write the sum: k = te.reduce_axis(n), then te.sum(A[i, k] * B[k, j], axis=k).",
        ),
    ],
)
def test_how_users_of_python_begin(make: Any, message: str) -> None:
    with pytest.raises(TensorError) as caught:
        te.compute((4,), make, name="y")
    assert str(caught.value) == message


def test_a_mistake_in_the_function_stays_python_s() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        te.compute((4,), lambda i: "a" - i.dtype, name="y")  # type: ignore[operator]


class TestReducers:
    def test_identities(self) -> None:
        for dtype, reducer, want in [
            ("int8", te.max, te.const(-128, "int8")),
            ("uint8", te.min, te.const(255, "uint8")),
            ("float32", te.max, te.const(float("-inf"), "float32")),
            ("bfloat16", te.prod, te.const(1, "bfloat16")),
            ("float16", te.sum, te.const(0, "float16")),
        ]:
            x = te.placeholder((8,), dtype=dtype, name="x")
            assert reducer(x[K], axis=K).combiner.identity == (want,)

    def test_names_of_known_reducers_are_promises(self) -> None:
        assert te.sum(A[0, K], axis=K).combiner.name == "sum"
        honest = te.comm_reducer(lambda x, y: x + y, lambda t: te.const(0, t), name="sum")
        assert honest(A[0, K], axis=K).combiner.name == "sum"
        liar = te.comm_reducer(lambda x, y: x - y, lambda t: te.const(0, t), name="sum")
        assert liar(A[0, K], axis=K).combiner.name != "sum"
        twice = te.comm_reducer(lambda x, y: x + x, lambda t: te.const(0, t), name="sum")
        assert twice(A[0, K], axis=K).combiner.name != "sum"


@pytest.mark.parametrize(("reducer", "expected"), [(te.sum, [4.0, 0.0]), (te.max, [3.0, -np.inf])])
def test_a_condition_leaves_elements_out(reducer: Any, expected: list[float]) -> None:
    A = te.placeholder((2, 3), name="A")
    k = te.reduce_axis(3, name="k")
    B = te.compute((2,), lambda i: reducer(A[i, k], axis=k, where=A[i, k] > 0), name="B")
    a = np.array([[1, -2, 3], [-1, -2, -3]], np.float32)
    np.testing.assert_array_equal(at.build(te.create_schedule(B.op), [A, B])(a), expected)


def test_what_tvm_takes_and_we_do_not_is_answered() -> None:
    A = te.placeholder((4, 4), name="A")
    k = te.reduce_axis(4, name="k")
    with pytest.raises(TensorError, match=r"attrs=.*Leave it out; .*constant=True"):
        te.compute((4,), lambda i: A[i, 0], attrs={"layout_free_placeholders": [A]})
    with pytest.raises(TensorError, match="sum starts from its identity; init= is not taken"):
        te.compute((4,), lambda i: te.sum(A[i, k], axis=k, init=1.0))
