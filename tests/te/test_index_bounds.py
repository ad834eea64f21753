"""Reads outside tensors are found before anything is compiled, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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


def test_nothing_to_compute_is_refused() -> None:
    z = te.placeholder((0, 3), name="z")
    with pytest.raises(TensorError, match="stage 'w': axis 'i' has extent 0, so there is nothing to compute"):
        at.build([z, te.compute((0, 3), lambda i, j: z[i, j] + 1.0, name="w")])
