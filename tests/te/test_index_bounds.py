"""Reads outside tensors are found before anything is compiled, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fences import ended_by, fenced

import autotensor as at
from autotensor import te
from autotensor.base.dtype import dtype_of
from autotensor.base.errors import GraphError, TensorError
from autotensor.operators import OPERATORS
from autotensor.te.dag import ComputeDAG
from autotensor.te.index_bounds import check_reads

A = te.placeholder((64, 32), name="A")
K = te.reduce_axis(32, name="k")
N = te.placeholder((64,), "int32", name="N")

Body = Callable[..., Any]


def made(body: Body, shape: tuple[int, ...] = (64, 32), *others: te.Tensor) -> list[te.Tensor]:
    return [A, *others, te.compute(shape, body, name="C")]


@pytest.mark.parametrize(
    ("body", "shape", "text"),
    [
        (lambda i, j: A[i + 1, j], (64, 32), "index 0 of 'A' becomes 64; its shape is (64, 32)"),
        (lambda i, j: A[i, j + (1 << 28)], (64, 32), "index 1 of 'A' becomes"),
        (lambda i, j: A[i, j], (65, 32), "index 0 of 'A' becomes 64"),
        (lambda i, j: A[i - 1, j], (64, 32), "index 0 of 'A' becomes -1"),
        (lambda i, j: te.sum(A[i, j + K], axis=K), (64, 32), "index 1 of 'A' becomes 32"),
        (lambda i, j: te.if_then_else(i < 63, A[i + 2, j], 0.0), (64, 32), "index 0 of 'A' becomes 64"),
        (lambda i, j: A[(63 - i) * 2, j], (64, 32), "index 0 of 'A' becomes 126"),
        (lambda i, j: A[70, j], (64, 32), "index 0 of 'A' becomes 70"),
        # neither the ends nor the middle of an axis tell
        (lambda i, j: A[i * i % 67, j], (64, 32), "index 0 of 'A' becomes 64"),
        (lambda i, j: A[te.if_then_else(te.all(i >= 7, i < 8), 10**9, i), j], (64, 32), "becomes 1000000000"),
        (lambda i, j: te.if_then_else((i * 3 + j).equal(40), A[i + 60, j], 0.0), (64, 32), "becomes 64"),
        (lambda i, j: A[i * i % 67 * (j // 31), j], (64, 32), "index 0 of 'A' becomes 64"),
    ],
)
def test_a_read_outside_is_refused(body: Body, shape: tuple[int, ...], text: str) -> None:
    args = made(body, shape)
    with pytest.raises(TensorError) as caught:
        check_reads(ComputeDAG.of(args))
    assert text in caught.value.what
    assert caught.value.what.startswith("stage 'C': ")
    for use in (at.build, lambda a: at.build(te.create_schedule(a[-1]), a), at.tune):
        with pytest.raises(TensorError, match=r"index . of 'A' becomes"):
            use(args)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (lambda i, j: A[N[i], j + 1], "index 1 of 'A' becomes 32"),
        (lambda i, j: A[N[i + 1], j], "index 0 of 'N' becomes 64"),
    ],
)
def test_indices_beside_and_inside_those_from_memory_are_looked_at(body: Body, text: str) -> None:
    with pytest.raises(TensorError) as caught:
        check_reads(ComputeDAG.of(made(body, (64, 32), N)))
    assert text in caught.value.what


def test_in_a_model() -> None:
    with pytest.raises(GraphError, match=r"call: function .* stage 'y': index 0 of 'x0' becomes 4"):
        at.call(lambda x: te.compute((4,), lambda i: x[i + 1], name="y"), at.input((4,), name="x"))


@pytest.mark.parametrize(
    "args",
    [
        made(lambda i, j: te.if_then_else(i < 63, A[i + 1, j], 0.0)),
        made(lambda i, j: A[te.minimum(i + 1, 63), j]),
        made(lambda i, j: A[(i + 5) % 64, j]),
        made(lambda i, j: A[i * i % 79, j], (8, 32)),
        made(lambda i, j: te.if_then_else((i * 3 % 7).equal(j), A[63 - (i * 3 % 7 - j), j], 0.0)),
        made(lambda i, j: A[N[i] - 1, j], (64, 32), N),  # known only when it runs
        made(lambda i, j: te.if_then_else(N[i] > 0, A[i - N[i], j], 0.0), (64, 32), N),
        made(lambda i, j: te.if_then_else(N[i] == 0, A[i, j], A[i, j]), (64, 32), N),
    ],
)
def test_what_stays_inside_passes(args: list[te.Tensor]) -> None:
    check_reads(ComputeDAG.of(args))


@pytest.mark.parametrize("name", OPERATORS.names())
def test_every_operator_passes(name: str) -> None:
    op = OPERATORS.get(name)
    for case in op.cases:
        arrays = case.arrays(np.random.default_rng(0))
        inputs = [te.placeholder(a.shape, str(dtype_of(a.dtype)), name=f"x{n}") for n, a in enumerate(arrays)]
        check_reads(ComputeDAG.of([*inputs, op.compute(*inputs, **case.attrs)]))


def test_conditions_around_conditions_take_no_time() -> None:
    def body(i: Any, j: Any) -> Any:
        value: Any = A[i * 0, j]
        for n in range(40):  # 2^40 ways, and no proof for any of them
            value = te.if_then_else((i * 7 % (n + 2)).equal(0), value, value + A[te.minimum(i + n, 63), j])
        return value

    check_reads(ComputeDAG.of(made(body)))


def test_all_points_of_a_bent_index_are_tried() -> None:
    """The index leaves the tensor at few of four million points, none of them at an end or in the middle."""
    D = te.placeholder((2000, 2000), name="D")
    args = [D, te.compute((2000, 2000), lambda i, j: D[i, (i * j) % 2001], name="C")]
    with pytest.raises(TensorError, match="index 1 of 'D' becomes 2000; its shape is"):
        check_reads(ComputeDAG.of(args))


def test_halves_of_an_axis_are_proved() -> None:
    """The whole axis proves nothing; each of its halves does, so ten billion points take no time."""
    B = te.placeholder((50_001,), name="B")
    body: Body = lambda i, j: B[te.maximum(i - 50_000, 50_000 - i) + j * 0]  # noqa: E731
    check_reads(ComputeDAG.of([B, te.compute((100_000, 100_000), body, name="C")]))


def bent(x: Any) -> Any:
    """At most 64, which intervals do not prove."""
    return x % 97 - x % 97 // 3


def test_a_bent_index_with_too_many_points_is_refused() -> None:
    B = te.placeholder((65,), name="B")
    C = te.compute((5000, 5000, 50), lambda i, j, k: B[bent(i * j * k)], name="C")
    with pytest.raises(
        TensorError, match="is not proved to stay inside 0 … 64, and 1,250,000,000 points"
    ) as e:
        check_reads(ComputeDAG.of([B, C]))
    assert "te.maximum(te.minimum(index, 64), 0)" in e.value.fix
    limited = lambda i, j, k: B[te.maximum(te.minimum(bent(i * j * k), 64), 0)]  # noqa: E731
    check_reads(ComputeDAG.of([B, te.compute((5000, 5000, 50), limited, name="C")]))


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (lambda n, i: (n - 1) * (64 - n) // 14, "with n = 23: stage 'C': index 0 of 'A' becomes 64"),
        (lambda n, i: te.minimum(i * (65 - n), 70), "with n = 3: stage 'C': index 0 of 'A' becomes 70"),
        (lambda n, i: i * i % 67, "index 0 of 'A' becomes 64"),
    ],
)
def test_indices_that_bend_with_an_extent_are_tried_for_all_its_values(index: Any, text: str) -> None:
    n = te.var("n", range=(1, 64))
    B = te.placeholder((n,), name="B")
    args = [A, B, te.compute((n,), lambda i: B[i] + A[index(n, i), 0], name="C")]
    with pytest.raises(TensorError) as caught:
        at.build(args)
    assert text in caught.value.what


def test_reads_under_conditions_on_data_stay_inside() -> None:
    """The condition on data is true for all elements, also for the last one, which has no neighbour."""
    V = te.placeholder((64,), name="V")
    n = te.var("n", range=(1, 64))
    for extent in (64, n):
        C = te.compute((extent,), lambda i: te.if_then_else(N[i] > 0, V[i + 1], V[i - 1]), name="C")
        B = te.placeholder((extent,), name="B")
        D = te.compute((extent,), lambda i, C=C, B=B: C[i] + B[i] * 0, name="D")
        f = at.build(te.create_schedule(D), [N, V, B, D])
        v, sign = np.arange(64, dtype=np.float32), np.ones(64, np.int32)
        zeros = np.zeros(64, np.float32)
        assert ended_by(lambda f=f, v=v, s=sign, z=zeros: f(s, fenced(v), z)) == 0  # type: ignore[misc]
        np.testing.assert_array_equal(f(sign, v, zeros), np.minimum(np.arange(64) + 1, 63))
        np.testing.assert_array_equal(f(-sign, v, zeros), np.maximum(np.arange(64) - 1, 0))


def test_an_index_that_bends_with_too_many_extents_is_limited() -> None:
    n, m = te.var("n", range=(1, 5000)), te.var("m", range=(1, 5000))
    V, B = te.placeholder((65,), name="V"), te.placeholder((n, m), name="B")
    C = te.compute((n, m), lambda i, j: V[bent(n * m)] + B[i, j], name="C")
    f = at.build(te.create_schedule(C), [V, B, C])
    assert "V[max(min(" in f.source("ir") or "V[min(max(" in f.source("ir")
    v = np.arange(65, dtype=np.float32)
    np.testing.assert_array_equal(f(v, np.zeros((7, 9), np.float32)), np.full((7, 9), 63 - 63 // 3))


def test_nothing_to_compute_is_refused() -> None:
    z = te.placeholder((0, 3), name="z")
    with pytest.raises(TensorError, match="stage 'w': axis 'i' has extent 0, so there is nothing to compute"):
        at.build([z, te.compute((0, 3), lambda i, j: z[i, j] + 1.0, name="w")])
