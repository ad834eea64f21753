"""The inputs that are indices, and their allowed values. For any contents of memory, nothing outside is
read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import ArgumentError, GraphError
from autotensor.te.dag import ComputeDAG
from autotensor.te.indices import index_ranges

A = te.placeholder((7, 3), name="A")
N = te.placeholder((5,), "int64", name="N")
M = te.placeholder((5,), "int32", name="M")
U = te.placeholder((5,), "uint8", name="U")
P = te.placeholder((9,), "int64", name="P")

Body = Callable[..., Any]


def from_end(k: Any) -> Any:
    return te.select(k < 0, k + 7, k)


@pytest.mark.parametrize(
    ("body", "ranges"),
    [
        (lambda i, j: A[N[i], j], {"N": (0, 6)}),
        (lambda i, j: A[M[i] - 1, j], {"M": (1, 7)}),
        (lambda i, j: A[from_end(N[i]), j], {"N": (-7, 6)}),
        (lambda i, j: A[from_end(M[i]), j], {"M": (-7, 6)}),
        (lambda i, j: A[U[i], j], {"U": (0, 6)}),
        (lambda i, j: A[N[i], j] + A[0, N[i]], {"N": (0, 2)}),
        (lambda i, j: A[P[N[i]], j], {"N": (0, 8)}),  # P is read here and there
        (lambda i, j: A[P[i], j], {}),  # P[5] is never read: it may hold anything
        (lambda i, j: A[N[i] + i, j], {}),  # clamped when the program runs
        (lambda i, j: A[N[i] % 7, j], {}),
        (lambda i, j: te.if_then_else(N[i] >= 0, A[N[i], j], 0.0), {}),  # a guard may say that it is not read
        (lambda i, j: A[te.select(N[i] < 0, N[i] + 7, N[i] + 1), j], {"N": (-7, 5)}),
        (lambda i, j: A[te.select(N[i] < 0, N[i] + 7, M[i]), j], {}),
    ],
)
def test_what_indices_may_be(body: Body, ranges: dict[str, tuple[int, int]]) -> None:
    assert index_ranges(ComputeDAG.of([te.compute((5, 3), body, name="C")])) == ranges


@pytest.mark.parametrize("index", [7, -1, 1 << 40, -(1 << 62)])
def test_a_call_with_an_index_outside_is_refused(index: int) -> None:
    f = at.build([A, N, te.compute((5, 3), lambda i, j: A[N[i], j], name="C")])
    a, n = np.ones((7, 3), np.float32), np.arange(5)
    for _ in range(2):  # the second call could take the short way
        np.testing.assert_array_equal(f(a, n), a[n])
    n[3] = index
    with pytest.raises(ArgumentError) as caught:
        f(a, n)
    assert caught.value.what == f"C: argument 'N' holds indices from 0 to 6; N[3] is {index}."


@pytest.mark.parametrize("factor", [None, 4])
def test_computed_indices_are_held_inside(factor: int | None) -> None:
    c = te.compute((5, 3), lambda i, j: A[N[i] * 2 + i, j], name="C")
    s = te.create_schedule(c)
    if factor is not None:
        s[c].vectorize(s[c].split(c.op.axis[1], factor=factor)[1])
    a = np.arange(21, dtype=np.float32).reshape(7, 3)
    n = np.array([0, 1 << 40, -(1 << 40), 3, -5])
    want = a[np.clip(n * 2 + np.arange(5), 0, 6)]
    np.testing.assert_array_equal(at.build(s, [A, N, c])(a, n), want)


@pytest.mark.parametrize("inlined", [(), ("T",), ("P",), ("T", "P"), ("Q",), ("T", "Q")])
def test_they_are_held_inside_what_is_inlined(inlined: tuple[str, ...]) -> None:
    x, y = te.placeholder((6,), "int64", name="x"), te.placeholder((10,), name="y")
    t = te.compute((10,), lambda i: te.cast("float32", i) + y[i], name="T")
    p = te.compute((6,), lambda i: x[i] * 3, name="P")
    q = te.compute((6,), lambda i: i * 3 - 4, name="Q")
    out = te.compute((6,), lambda j: t[p[j]] + y[q[j]], name="out")
    s = te.create_schedule(out)
    for name in inlined:
        s[name].compute_inline()
    xs, ys = np.array([-5, 0, 1, 2, 3, 9]), np.arange(10, dtype=np.float32) * 100
    want = (np.arange(10) + ys)[np.clip(xs * 3, 0, 9)] + ys[np.clip(np.arange(6) * 3 - 4, 0, 9)]
    for f in (at.build(s, [x, y, out]), at.build([x, y, out])):
        np.testing.assert_array_equal(f(xs, ys), want)


def test_they_are_held_inside_what_has_another_layout() -> None:
    c = te.compute((5, 3), lambda i, j: A[N[i] * 2, j], name="C")
    s = te.create_schedule(c)
    s.layout(A, [(0, 4)], "1 0.0 0.1")
    a, n = np.arange(21, dtype=np.float32).reshape(7, 3), np.array([0, 7, -4, 3, -1])
    np.testing.assert_array_equal(at.build(s, [A, N, c])(a, n), a[np.clip(n * 2, 0, 6)])


def test_in_models() -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    ids = at.input((2,), "int64", name="ids")
    taken = at.compile_model(at.ops.take(table, ids))
    np.testing.assert_array_equal(taken(np.array([1, -4])), table[[1, -4]])
    with pytest.raises(ArgumentError, match=r"'ids' holds indices from -4 to 3; ids\[1\] is 4\."):
        taken(np.array([1, 4]))
    both = at.compile_model([at.ops.take(table, ids), at.ops.take(table[:, 0], ids)])
    with pytest.raises(ArgumentError, match=r"from -4 to 3; ids\[0\] is -5\."):
        both(np.array([-5, 0]))
    computed = at.compile_model(at.ops.take(table, at.ops.relu(ids) * 3))
    np.testing.assert_array_equal(computed(np.array([1, 9])), table[[3, 3]])
    with pytest.raises(GraphError, match=r"holds indices from -4 to 3; it has 7\."):
        at.compile_model(at.ops.take(at.input((4, 3)), np.array([1, 7])))
