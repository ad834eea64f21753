"""Inputs that are copied to the beginning of a cache line: which inputs, and the same bits as without
copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.api.kernels import build
from autotensor.base.errors import ArgumentError
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.runtime.arrays import Array, aligned_copy
from autotensor.te.dag import ComputeDAG


def product(n: int, m: int, k: int) -> list[Any]:
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    r = te.reduce_axis(k, name="r")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")]


def added(n: int, m: int) -> list[Any]:
    x, y = te.placeholder((n, m), name="x"), te.placeholder((m,), name="y")
    return [x, y, te.compute((n, m), lambda i, j: x[i, j] + y[j], name="z")]


def off_its_line(array: Array, shift: int = 16) -> Array:
    raw = aligned_copy(np.zeros(array.nbytes + 64, np.uint8))
    moved: Array = np.ndarray(array.shape, array.dtype, raw.data, shift)
    moved[...] = array
    return moved


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (lambda: product(128, 16, 512), ["b"]),  # a panel that lies together is not copied
        (lambda: product(16, 16, 16), []),  # too little is read
        (lambda: added(1024, 512), ["y"]),
        (lambda: added(4, 4096), []),  # each is read four times
    ],
)  # fmt: skip
def test_what_vectors_read_again_and_again(tensors: Callable[[], list[Any]], expected: list[str]) -> None:
    assert build(tensors(), target="llvm -threads=1").artifact.meta["reread"] == expected


def test_one_branch_counts() -> None:
    """First rows, last rows and those between are three branches; each element is read three times."""
    x = te.placeholder((512, 1024), name="x")

    def body(i: Any, j: Any) -> Any:
        above, below = te.select(i > 0, x[i - 1, j], x[i, j]), te.select(i < 511, x[i + 1, j], x[i, j])
        return above + below - 2.0 * x[i, j]

    z = te.compute((512, 1024), body, name="z")
    s = te.create_schedule(z)
    i, j = s[z].op.axis
    rows, row = s[z].split(i, factor=2)
    _, many, lane = s[z].split(j, factors=[4, 16])
    s[z].parallel(rows)
    s[z].unroll(row)
    s[z].unroll(many)
    s[z].vectorize(lane)
    target = parse("llvm -mcpu=x86-64-v4 -threads=1")  # this processor need not run it
    assert compile_trace(ComputeDAG.of([x, z]), s.trace, target).meta["reread"] == []


@pytest.mark.parametrize("given_out", [False, True])
@pytest.mark.parametrize("shift", [0, 4, 16, 32])
def test_the_same_bits_wherever_inputs_begin(shift: int, given_out: bool) -> None:
    f = build(product(96, 160, 200), target="llvm -threads=1")
    assert f.artifact.meta["reread"]
    rng = np.random.default_rng(shift)
    arrays = [aligned_copy(rng.standard_normal(a.shape).astype(np.float32)) for a in f.args[:2]]
    expected = f(*arrays)
    moved = [off_its_line(a, shift) for a in arrays]
    for _ in range(3):  # the first call takes the long way, the others the short one
        out = np.empty_like(expected) if given_out else None
        found = f(*moved, out) if given_out else f(*moved)
        np.testing.assert_array_equal(out if given_out else found, expected)
    assert all((a == b).all() for a, b in zip(moved, arrays, strict=True))


def test_an_array_that_does_not_fit_is_refused_as_before() -> None:
    f = build(product(128, 128, 128), target="llvm -threads=1")
    a = off_its_line(np.ones((128, 128), np.float32))
    f(a, a)
    for wrong in (a.T, a.astype(np.float64), off_its_line(np.ones((128, 127), np.float32))):
        with pytest.raises(ArgumentError, match="argument 'b'"):
            f(a, wrong)
